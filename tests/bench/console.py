"""The console's lists of rows by the million, as an operator opens, narrows and searches them."""

import time
from datetime import UTC, datetime, timedelta

from tests.bench.grown import Side
from tests.served.browser import Browser
from usage.models import UsageRecord

USAGE = "/admin/usage/usagerecord/"
SESSIONS = "/admin/accounts/session/"
TOKENS = "/admin/accounts/refreshtoken/"
AUDIT = "/admin/accounts/auditevent/"
EVENTS = "/admin/telemetry/event/"


class Console:
    """One operator, signed in."""

    def __init__(self, side: Side) -> None:
        email, password = side.operator
        self._browser = Browser(side.served.url)
        self._browser.submit("/admin/login/?next=/admin/", username=email, password=password)
        with side.database.rows():
            record = UsageRecord.objects.filter(user=side.people[0].id).select_related("user")[0]
        now = datetime.now(UTC)
        self._words = {
            "email": record.user.email,
            "request": record.request_id,
            "person": str(record.user_id),
            "client": str(record.client_id),
            "month": f"{now.replace(day=1) - timedelta(days=40):%Y-%m}",
            "since": f"{now - timedelta(days=40):%Y-%m-%dT00:00}",
            "day": f"{now - timedelta(days=3):%Y-%m-%d}",
        }

    def ms(self, page: str) -> float:
        """Measures a whole page, in milliseconds."""
        address = page.format(**self._words)
        began = time.perf_counter()
        answer = self._browser.get(address)
        taken = time.perf_counter() - began
        assert answer.status_code == 200, address
        return taken * 1000


Page = str
PAGES: dict[str, Page] = {
    "front page": "/admin/",
    "a person": "/admin/accounts/user/{person}/change/",
    "a client": "/admin/accounts/client/{client}/change/",
    "people": "/admin/accounts/user/",
    "usage records": USAGE,
    "usage records, the last page that is counted": f"{USAGE}?p=200",
    "usage records of an earlier month": f"{USAGE}?month={{month}}",
    "usage records that crashed": f"{USAGE}?end__exact=crashed",
    "usage records that timed out (none)": f"{USAGE}?end__exact=timeout",
    "usage records by email": f"{USAGE}?q={{email}}",
    "usage records by a part of many emails": f"{USAGE}?q=person-",
    "usage records by request id": f"{USAGE}?q={{request}}",
    "usage records by a rare model": f"{USAGE}?q=stand-in-rare",
    "usage records by client": f"{USAGE}?q={{client}}",
    "usage records by nothing that is there": f"{USAGE}?q=nothing-like-this",
    "monthly usage": "/admin/usage/monthlyusage/",
    "sessions": SESSIONS,
    "sessions, live": f"{SESSIONS}?state=live",
    "sessions, expired": f"{SESSIONS}?state=expired",
    "sessions ended by reuse": f"{SESSIONS}?ended_by__exact=reuse",
    "sessions by email": f"{SESSIONS}?q={{email}}",
    "refresh tokens": TOKENS,
    "refresh tokens, live": f"{TOKENS}?state=live",
    "refresh tokens, revoked": f"{TOKENS}?state=revoked",
    "refresh tokens by email": f"{TOKENS}?q={{email}}",
    "audit events": AUDIT,
    "audit events of a rare act": f"{AUDIT}?subject=session&action=session:token_reused",
    "audit events since 40 days ago": f"{AUDIT}?since={{since}}",
    "audit events by email": f"{AUDIT}?q={{email}}",
    "audit events by request id (none)": f"{AUDIT}?q=nothing-like-this",
    "audit events of a person and their sessions": f"{AUDIT}?person={{person}}",
    "telemetry": EVENTS,
    "telemetry of an app and version": f"{EVENTS}?app=app-3&version=1.0.4",
    "telemetry of a day": f"{EVENTS}?day={{day}}",
    "telemetry volumes of a day": f"{EVENTS}volumes/?day={{day}}",
    "queued work": "/admin/procrastinate/procrastinatejob/",
}
