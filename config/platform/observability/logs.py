"""The log format: one JSON object per line, with allowed members only.

A record's event is a string literal of the code that logged it. A text assembled from values is never written, not even
a library's; the place of the call replaces it. Arguments are dropped, except numbers of our own code and of gunicorn,
and names of signals. Of ``extra`` only the names in :data:`ALLOWED` remain, each in its form, and of exceptions only
classes and frames.
"""

import json
import logging
import re
import sys
import threading
import warnings
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from inspect import currentframe
from ipaddress import ip_address
from math import isfinite
from signal import Signals
from types import MappingProxyType
from typing import Any, TextIO
from uuid import UUID

from config.platform.observability.redaction import chain, class_name, place_of
from config.platform.request.request_id import current

Scalar = str | int | float
MAX_TEXT = 200
MAX_DEPTH = 60
# Replaces a value that does not match the form of its name.
REFUSED = "?"
WORD = re.compile(r"[\w.:/<>+@-]{1,80}", re.ASCII)
PATTERN = re.compile(r"[!-~]{1,120}")
# Matches apparent keys and tokens: upper case, lower case and digits in one long run, JSON in base64, personal keys.
SECRET = re.compile(
    r"(?=[\w-]*[A-Z])(?=[\w-]*[a-z])(?=[\w-]*\d)[\w-]{30,}|\beyJ[\w-]{8}|sk-shell-", re.ASCII
)
# gunicorn's logger, whose arguments are the ids of processes that began, ended or hung.
SERVER = "gunicorn.error"
# As gunicorn writes them: SIGSEGV, term.
SIGNALS = frozenset(
    name for each in Signals for name in (each.name, each.name.removeprefix("SIG").lower())
)

log = logging.getLogger(__name__)
# Texts already known to be literals.
_literals: set[str] = set()
_encode = json.JSONEncoder(separators=(",", ":")).encode


def _number(value: object) -> Scalar:
    return value if isinstance(value, int | float) and isfinite(value) else REFUSED


def _word(value: object) -> Scalar:
    if isinstance(value, str) and WORD.fullmatch(value) and not SECRET.search(value):
        return value
    return REFUSED


def _pattern(value: object) -> Scalar:
    """A route's name or pattern."""
    if isinstance(value, str) and PATTERN.fullmatch(value) and not SECRET.search(value):
        return value
    return REFUSED


def _identity(value: object) -> Scalar:
    if isinstance(value, int):
        return value
    try:
        return str(value if isinstance(value, UUID) else UUID(str(value)))
    except ValueError:
        return REFUSED


def _address(value: object) -> Scalar:
    return _written_address(str(value))


@lru_cache(maxsize=1024)
def _written_address(text: str) -> str:
    try:
        return str(ip_address(text))
    except ValueError:
        return REFUSED


_FORMS: tuple[tuple[Callable[[object], Scalar], str], ...] = (
    (_word, "method"),
    (_pattern, "route"),
    (_number, "status duration_ms bytes"),
    (_word, "ended problem"),
    (_identity, "user client session record connection"),
    (_address, "address"),
    (
        _number,
        "attempt attempts count deleted exit_code input_tokens output_tokens pid port seconds",
    ),
    (
        _word,
        "action category channel check code command dimension kind limit model outcome place plan",
    ),
    (_word, "platform provider queue reason signal slug source state task version"),
    (_number, "job worker"),
)
ALLOWED: Mapping[str, Callable[[object], Scalar]] = MappingProxyType(
    {name: form for form, names in _FORMS for name in names.split()}
)


class AllowListFormatter(logging.Formatter):
    """Writes a record as one line of JSON: time, level, logger, event, request_id, allowed members, exceptions."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat("T", "milliseconds")[:-6]
            + "Z",
            "level": record.levelname.lower(),
            "logger": record.name,
        }
        try:
            line["event"] = event_of(record)
            if request_id := current():
                line["request_id"] = request_id
            line |= allowed_of(record)
            error = record.exc_info[1] if isinstance(record.exc_info, tuple) else None
            if error is not None:
                line["exceptions"] = [
                    {"class": each.name, **each.facts, "frames": [str(at) for at in each.frames]}
                    for each in chain(error)
                ]
        except Exception as error:  # noqa: BLE001 - logging must neither fail nor print values
            line |= {"event": "unloggable", "reason": class_name(error)}
        return _encode(line)


def event_of(record: logging.LogRecord) -> str:
    """Returns a record's text if it is a literal of the code, else the place of the call."""
    if not (isinstance(record.msg, str) and _is_literal(record.msg)):
        file, _ = place_of(record.pathname)
        return f"{file}:{record.funcName}"
    is_filled = record.name == SERVER or place_of(record.pathname)[1]
    if is_filled and isinstance(record.args, tuple) and all(map(_is_harmless, record.args)):
        return record.getMessage()[:MAX_TEXT]
    return record.msg[:MAX_TEXT]


def _is_harmless(argument: object) -> bool:
    return isinstance(argument, int | float) or (isinstance(argument, str) and argument in SIGNALS)


def allowed_of(record: logging.LogRecord) -> dict[str, Scalar]:
    """Returns the allowed members of ``extra``, each in the form of its name."""
    members = record.__dict__
    if "job" in members or "worker" in members:
        members = members | _of_job(record)
    return {
        name: form(value)
        for name, form in ALLOWED.items()
        if name in members and (value := members[name]) is not None
    }


def take_over() -> None:
    """Logs warnings and uncaught errors; Python itself would print their values."""
    logging.raiseExceptions = False
    # The formatter never writes these facts.
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    warnings.showwarning = _show_warning
    sys.excepthook = lambda _kind, error, _where: log.critical("uncaught", exc_info=error)
    threading.excepthook = _log_thread_error
    sys.unraisablehook = lambda args: log.error("unraisable", exc_info=args.exc_value)


def _is_literal(text: str) -> bool:
    """Returns whether a text is a constant in the code of one of the callers, now or at an earlier record.

    A record is formatted while its logging call runs, so the code that logged it is still on the stack. A text that is
    one of its constants was not assembled from values. Each text is searched for once: an equal one reveals no more.
    """
    if text in _literals:
        return True
    frame = currentframe()
    for _ in range(MAX_DEPTH):
        if frame is None:
            break
        if any(each is text for each in frame.f_code.co_consts):
            _literals.add(text)
            return True
        frame = frame.f_back
    return False


def _of_job(record: logging.LogRecord) -> dict[str, object]:
    """Returns facts of a job and its worker without the job's arguments, which the queue logs as well."""
    job, worker = record.__dict__.get("job"), record.__dict__.get("worker")
    of_worker = {"worker": worker.get("worker_id")} if isinstance(worker, dict) else {}
    if not isinstance(job, dict):
        return of_worker
    return {
        **of_worker,
        "job": job.get("id"),
        "task": job.get("task_name"),
        "queue": job.get("queue"),
        "attempts": job.get("attempts"),
    }


def _log_thread_error(args: threading.ExceptHookArgs) -> None:
    if not issubclass(args.exc_type, SystemExit):
        log.error("uncaught_in_thread", exc_info=args.exc_value)


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    place, _ = place_of(filename)
    log.warning("warning", extra={"category": category.__name__, "place": f"{place}:{lineno}"})
