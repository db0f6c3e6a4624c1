import json
import logging
from collections.abc import Iterator
from queue import Empty
from typing import Any

import pytest
import sentry_sdk
from django.db import OperationalError
from django.http import HttpRequest, HttpResponse
from django.test import Client, override_settings
from django.urls import path
from sentry_sdk.integrations.logging import EventHandler

from config.platform.observability import reports
from config.platform.problems import rendering as handlers
from config.platform.problems.problem import NotFound
from tests.standins.error_sink import SECONDS, Sink

TOKEN = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJjYW5hcnkifQ.c2lnbmF0dXJl"
PASSWORD = "correct horse battery canary"
PROMPT = "Summarise the canary's layoff plan"
PATH_SECRET = "canary-in-the-path"
# A word of each of them.
LEAKS = (TOKEN, "canary", "layoff", "horse")

log = logging.getLogger("llmproxy.calls.relay")


class Reports(Sink):
    """The reports that have arrived, checked for secrets."""

    def envelope(self) -> bytes:
        return self.envelopes.get(timeout=SECONDS)

    def event(self) -> dict[str, Any]:
        """The event of the next envelope, of which nothing has leaked."""
        envelope = self.envelope()
        assert [leak for leak in LEAKS if leak in envelope.decode()] == []
        _, header, event = envelope.splitlines()
        assert json.loads(header)["type"] == "event"
        told: dict[str, Any] = json.loads(event)
        return told

    def assert_nothing_came(self) -> None:
        """Once everything that was to be sent has been."""
        sentry_sdk.flush(SECONDS)
        with pytest.raises(Empty):
            self.envelopes.get_nowait()


@pytest.fixture
def sink() -> Iterator[Reports]:
    sink = Reports()
    try:
        reports.start(sink.dsn, "1.2.3")
        yield sink
    finally:
        root = logging.getLogger()
        for handler in [each for each in root.handlers if isinstance(each, EventHandler)]:
            root.removeHandler(handler)
        sentry_sdk.get_client().close(timeout=SECONDS)
        sentry_sdk.get_global_scope().set_client(None)
        sink.close()


class RelayBroke(Exception):
    pass


def break_down(password: str, messages: list[dict[str, str]]) -> None:
    headers = {"Authorization": f"Bearer {TOKEN}"}
    raise RelayBroke(f"{password} {headers} {messages}") from KeyError(messages[0]["content"])


def breaking(request: HttpRequest, secret: str = "") -> HttpResponse:
    break_down(PASSWORD, [{"role": "user", "content": request.body.decode() or PROMPT}])
    raise AssertionError


def refusing(request: HttpRequest) -> HttpResponse:
    raise NotFound(PROMPT)


def lost(request: HttpRequest) -> HttpResponse:
    raise OperationalError(PROMPT)


urlpatterns = [
    path("v1/lost", lost),
    path("v1/breaking/<str:secret>", breaking, name="breaking"),
    path("v1/refusing", refusing),
]
handler404 = handlers.page_not_found
handler500 = handlers.server_error


@pytest.fixture
def client() -> Iterator[Client]:
    with override_settings(ROOT_URLCONF=__name__, SECURE_SSL_REDIRECT=False):
        yield Client(raise_request_exception=False)


def test_nothing_is_set_up_without_an_address() -> None:
    reports.start("", "1.2.3")
    assert not sentry_sdk.get_client().is_active()


def test_a_report_holds_nothing_of_the_request(sink: Reports, client: Client) -> None:
    response = client.generic(
        "GET",
        f"/v1/breaking/{PATH_SECRET}?token={TOKEN}",
        PROMPT,
        headers={
            "Authorization": f"Bearer {TOKEN}",
            "Cookie": f"session={PASSWORD}",
            "X-Request-ID": "request-0001",
        },
    )
    assert response.status_code == 500
    event = sink.event()
    assert event.keys() <= {
        *("event_id", "timestamp", "platform", "level", "release"),
        *("tags", "logger", "transaction", "logentry", "exception"),
    }
    assert (event["level"], event["release"], event["transaction"]) == (
        "error",
        "1.2.3",
        "breaking",
    )
    assert event["tags"] == {"request_id": "request-0001"}
    assert event["logentry"] == {"message": "internal_error"}
    sink.assert_nothing_came()


def test_exceptions_are_reported_by_type_and_frames(sink: Reports) -> None:
    try:
        break_down(PASSWORD, [{"content": PROMPT}])
    except RelayBroke:
        log.exception("relay_broke")
    first, last = sink.event()["exception"]["values"]
    assert (first["type"], last["type"]) == (
        "KeyError",
        "tests.platform.observability.test_reports.RelayBroke",
    )
    assert last["stacktrace"]["frames"][-1] == {
        "filename": "tests/platform/observability/test_reports.py",
        "function": "break_down",
        "lineno": break_down.__code__.co_firstlineno + 2,
        "in_app": True,
    }
    assert last.keys() == {"type", "stacktrace"}


@pytest.mark.parametrize("secret", [TOKEN, PASSWORD, PROMPT])
def test_other_log_lines_are_not_reported(sink: Reports, secret: str) -> None:
    log.info("before %s", secret)
    log.error(
        "relay_broke %s",
        secret,
        extra={"prompt": secret, "body": {"a": secret}, "reason": "cut", "model": secret},
    )
    event = sink.event()
    assert event["logentry"] == {"message": "relay_broke %s"}
    assert event["tags"]["reason"] == "cut"
    assert "breadcrumbs" not in event


@pytest.mark.parametrize("secret", [TOKEN, PASSWORD, PROMPT])
def test_assembled_text_is_not_reported(sink: Reports, secret: str) -> None:
    logging.getLogger("asyncio").error(f"could not use {secret}")  # noqa: G004 - that is the point
    assert sink.event()["logentry"]["message"].startswith(
        "tests/platform/observability/test_reports.py:"
    )


def test_data_given_to_the_library_directly_is_not_reported(sink: Reports) -> None:
    scope = sentry_sdk.get_isolation_scope()
    scope.set_user({"email": PASSWORD})
    scope.set_tag("prompt", PROMPT)
    scope.set_context("request", {"body": PROMPT})
    scope.add_breadcrumb(message=PROMPT)
    scope.add_attachment(bytes=PROMPT.encode(), filename="prompt.txt")
    try:
        break_down(PASSWORD, [{"content": PROMPT}])
    except RelayBroke as error:
        sentry_sdk.capture_exception(error)
    scope.clear()
    event = sink.event()
    assert (
        event["exception"]["values"][-1]["type"]
        == "tests.platform.observability.test_reports.RelayBroke"
    )
    assert event.keys().isdisjoint(
        {"user", "contexts", "breadcrumbs", "extra", "request", "modules", "server_name"}
    )
    sentry_sdk.capture_message(PROMPT)
    sink.assert_nothing_came()


def test_refusals_and_warnings_are_not_reported(sink: Reports, client: Client) -> None:
    client.get("/v1/refusing")
    log.warning("slow")
    sink.assert_nothing_came()


def test_a_lost_database_does_not_flood_the_reports(sink: Reports, client: Client) -> None:
    assert client.get("/v1/lost").status_code == 503
    sink.assert_nothing_came()


def test_traces_and_sessions_are_not_sent(sink: Reports) -> None:
    with sentry_sdk.start_transaction(name=PATH_SECRET):
        pass
    sentry_sdk.get_isolation_scope().start_session()
    sentry_sdk.get_isolation_scope().end_session()
    sink.assert_nothing_came()
