"""Error reports: sent only where operators name a place for them, and built anew from what may leave.

The library gathers local variables, bodies, headers and log arguments by default. None of that is switched
on, and what it hands over just before sending is replaced by what :func:`_told` takes from the exception itself.
"""

import logging
from typing import Any

import sentry_sdk
from sentry_sdk.integrations.logging import LoggingIntegration
from sentry_sdk.types import Event, Hint

from config.failures import Failure, chain
from config.logs import allowed_of, event_of
from config.request_ids import current


def start(dsn: str, version: str) -> None:
    """Reports every error that is logged to ``dsn``; does nothing without one. Once per process."""
    if not dsn:
        return
    sentry_sdk.init(
        dsn,
        release=version,
        environment="production",
        server_name="",
        default_integrations=False,
        auto_enabling_integrations=False,
        # No breadcrumbs and no copies of log lines; an event for everything logged as an error.
        integrations=[
            LoggingIntegration(level=None, event_level=logging.ERROR, sentry_logs_level=None)
        ],
        before_send=_told,
        before_send_transaction=_nothing,
        before_breadcrumb=_nothing,
        max_breadcrumbs=0,
        include_local_variables=False,
        include_source_context=False,
        max_request_body_size="never",
        send_default_pii=False,
        attach_stacktrace=False,
        auto_session_tracking=False,
        send_client_reports=False,
        propagate_traces=False,
        traces_sample_rate=None,
        profiles_sample_rate=None,
        spotlight=False,
        debug=False,
    )


def _told(event: Event, hint: Hint) -> Event | None:
    """A new event of allowed parts; the given one lends only its id and its time."""
    hint.pop("attachments", None)
    record: logging.LogRecord | None = hint.get("log_record")
    error = (hint.get("exc_info") or (None, None, None))[1]
    told: dict[str, Any] = {
        "event_id": event["event_id"],
        "timestamp": event["timestamp"],
        "platform": "python",
        "level": event.get("level", "error"),
        "release": event.get("release"),
        "tags": {"request_id": current()},
    }
    if record is not None:
        allowed = allowed_of(record)
        told["logger"] = record.name
        told["transaction"] = allowed.pop("route", None)
        told["logentry"] = {"message": event_of(record)}
        told["tags"] |= {name: str(value) for name, value in allowed.items()}
    if isinstance(error, BaseException):
        # Sentry wants the first cause first.
        told["exception"] = {"values": [_exception(failure) for failure in reversed(chain(error))]}
    elif record is None:
        return None
    return told  # type: ignore[return-value]


def _exception(failure: Failure) -> dict[str, Any]:
    frames = [
        {"filename": each.file, "lineno": each.line, "function": each.function, "in_app": each.own}
        for each in failure.frames
    ]
    shape: dict[str, Any] = {"type": failure.name, "stacktrace": {"frames": frames}}
    if failure.facts:
        shape["mechanism"] = {"type": "generic", "data": failure.facts}
    return shape


def _nothing(event: Any, hint: Hint) -> None:
    """Lets nothing of its kind leave."""
