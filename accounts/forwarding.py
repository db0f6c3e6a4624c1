"""Sends the audit log to a syslog server as it is written: every event at least once, in order.

Requests pay nothing for it. The worker looks for new events each second, and a stored position says how far the server
has taken them, so events wait in their table while it is away. Whoever reads them there knows a repeated one by its id.
"""

import json
import logging
import threading
from datetime import datetime
from urllib.parse import urlsplit

from django.conf import settings
from django.core.serializers.json import DjangoJSONEncoder
from django.db.models import Max, Subquery
from django.db.models.functions import Coalesce
from django.forms.models import model_to_dict

from accounts.models import AuditEvent, AuditPosition
from config.platform.db.advisory_locks import alone, wait_for_writers
from config.platform.db.connections import database_now, release_connection
from config.platform.observability import syslog
from config.platform.observability.syslog import Receiver

log = logging.getLogger(__name__)

APP = "shell-backend"
AT_A_TIME = 500
EVERY_SECONDS = 1.0
AFTER_FAILURE_SECONDS = 15.0
# A longer event goes without its change and with the beginning of its reason, so that it fits every transport.
MOST_BYTES = 8000
REASON_KEPT = 500


def forward(*, to: Receiver, now: datetime) -> int:
    """Sends the new events; returns their number. ``OSError`` if the server is away, and a later call sends them.

    Does nothing while another process forwards.
    """
    sent = 0
    if waiting():
        with alone("audit forwarding") as first:
            while first and (batch := _forward_batch(to=to, now=now)):
                sent += batch
    return sent


def waiting() -> AuditEvent | None:
    """The oldest event that the server has not taken yet."""
    position = Coalesce(Subquery(AuditPosition.objects.values("event_id")[:1]), 0)
    return AuditEvent.objects.filter(pk__gt=position).order_by("pk").first()


def start() -> threading.Thread | None:
    """Forwards for the life of this process, if there is a server."""
    if settings.AUDIT_SYSLOG_URL is None:
        return None
    to = settings.AUDIT_SYSLOG_URL
    thread = threading.Thread(target=_forward_for_ever, args=(to,), name="audit", daemon=True)
    thread.start()
    return thread


def _forward_for_ever(to: Receiver) -> None:
    pause, failed = threading.Event(), False
    while True:
        try:
            forward(to=to, now=database_now())
            if failed:
                log.info("audit_forwarded_again")
            failed = False
        except Exception:
            # Said once; the console shows it for as long as it lasts.
            if not failed:
                log.warning("audit_not_forwarded", exc_info=True)
            failed = True
        release_connection()
        pause.wait(AFTER_FAILURE_SECONDS if failed else EVERY_SECONDS)


def _position() -> int:
    found = AuditPosition.objects.values_list("event_id", flat=True).first()
    return found or 0


def _forward_batch(*, to: Receiver, now: datetime) -> int:
    position = _position()
    unsent = AuditEvent.objects.filter(pk__gt=position)
    newest = unsent.aggregate(newest=Max("pk"))["newest"]
    # Ids are given out before they are committed: a lower one than the newest may still be on its way.
    if newest is None or not wait_for_writers(AuditEvent):
        return 0
    events = list(unsent.filter(pk__lte=newest).order_by("pk")[:AT_A_TIME])
    release_connection()
    syslog.send([as_message(event) for event in events], to=to)
    AuditPosition.objects.update_or_create(defaults={"event_id": events[-1].pk, "at": now})
    return len(events)


def as_message(event: AuditEvent) -> bytes:
    """One event as a message of syslog: its kind is the action, its text all fields as JSON."""
    fields = {"id": event.pk, **model_to_dict(event)}
    text = _json(fields)
    if len(text) > MOST_BYTES:
        short = {"reason": event.reason[:REASON_KEPT], "before": None, "after": None, "cut": True}
        text = _json(fields | short)
    host = urlsplit(settings.BASE_URL).hostname or "-"
    return syslog.message(at=event.at, host=host, app=APP, kind=event.action, text=text)


def _json(fields: dict[str, object]) -> str:
    return json.dumps(fields, cls=DjangoJSONEncoder, separators=(",", ":"))
