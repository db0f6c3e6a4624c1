"""Sends error reports to Sentry, if operators configure an address.

By default the library collects local variables, bodies, headers and log arguments. All of that is disabled, and
:func:`_redacted` replaces each event just before it is sent with allowed parts of the exception and its log record.
"""

import logging
from typing import Any

import sentry_sdk
from sentry_sdk.envelope import Envelope
from sentry_sdk.integrations.logging import EventHandler
from sentry_sdk.transport import HttpTransport
from sentry_sdk.types import Event, Hint

from config.platform.observability.logs import allowed_of, event_of
from config.platform.observability.redaction import Failure, chain
from config.platform.request.request_id import current


def start(dsn: str, version: str) -> None:
    """Reports every error that reaches the root logger to ``dsn``; does nothing without one. Once per process."""
    if not dsn:
        return
    sentry_sdk.init(
        dsn,
        release=version,
        environment="production",
        server_name="",
        transport=_EventsOnly,
        before_send=_redacted,
        # No integration: they read requests, patch libraries and keep breadcrumbs.
        default_integrations=False,
        auto_enabling_integrations=False,
        max_breadcrumbs=0,
        include_local_variables=False,
        include_source_context=False,
        max_request_body_size="never",
        attach_stacktrace=False,
        auto_session_tracking=False,
        send_client_reports=False,
        propagate_traces=False,
        spotlight=False,
        debug=False,
    )
    logging.getLogger().addHandler(EventHandler(logging.ERROR))


class _EventsOnly(HttpTransport):
    """Sends events only; no attachments, traces, sessions, logs or metrics."""

    def capture_envelope(self, envelope: Envelope) -> None:
        envelope.items = [item for item in envelope.items if item.type == "event"]
        if envelope.items:
            super().capture_envelope(envelope)


def _redacted(event: Event, hint: Hint) -> Event | None:
    """Builds a new event from allowed parts; only id and time are those of the given one."""
    record: logging.LogRecord | None = hint.get("log_record")
    error = (hint.get("exc_info") or (None, None, None))[1]
    report: dict[str, Any] = {
        "event_id": event["event_id"],
        "timestamp": event["timestamp"],
        "platform": "python",
        "level": event.get("level", "error"),
        "release": event.get("release"),
        "tags": {"request_id": current()} if current() else {},
    }
    if record is not None:
        allowed = allowed_of(record)
        report["logger"] = record.name
        report["transaction"] = allowed.pop("route", None)
        report["logentry"] = {"message": event_of(record)}
        report["tags"] |= {name: str(value) for name, value in allowed.items()}
    if isinstance(error, BaseException):
        # Sentry expects the root cause first.
        report["exception"] = {
            "values": [_exception(failure) for failure in reversed(chain(error))]
        }
    elif record is None:
        return None
    return report  # type: ignore[return-value]


def _exception(failure: Failure) -> dict[str, Any]:
    frames = [
        {"filename": each.file, "lineno": each.line, "function": each.function, "in_app": each.own}
        for each in failure.frames
    ]
    shape: dict[str, Any] = {"type": failure.name, "stacktrace": {"frames": frames}}
    if failure.facts:
        shape["mechanism"] = {"type": "generic", "data": failure.facts}
    return shape
