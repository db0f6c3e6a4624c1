"""Tells operators of storage that lacks conditional writes, at the start and in ``check``.

Versions of micro apps rely on them: the first bytes of a path stay. Without them they are written under a lock of ours
and read back, which holds for writers of this service alone.
"""

import logging
from collections.abc import Sequence
from threading import Thread
from typing import Any

from django.apps import AppConfig
from django.core import checks

from releases.delivery import storage
from releases.delivery.storage import Conditions, StorageUnavailable

HINT = (
    "Apps are published under a lock and read back. Let nothing else write below apps/, or use a server that keeps the "
    "condition."
)

log = logging.getLogger(__name__)


def start() -> Thread:
    """Asks storage aside, so that no start waits for it or fails by it, and logs what it lacks."""
    thread = Thread(target=_tell, name="storage-probe", daemon=True)
    thread.start()
    return thread


def _tell() -> None:
    try:
        seen = storage.conditions()
    except StorageUnavailable:
        log.warning("storage_not_probed", exc_info=True)
        return
    if seen != Conditions.KEPT:
        log.warning("storage_without_conditional_writes", extra={"state": seen.value})


def storage_keeps_conditions(
    app_configs: Sequence[AppConfig] | None, **options: Any
) -> list[checks.CheckMessage]:
    """A system check that asks storage; only the command ``check`` registers it."""
    try:
        seen = storage.conditions()
    except StorageUnavailable as error:
        said = f"Storage could not be asked: {_cause(error)}."
        return [checks.Warning(said, hint="See STORAGE_URL.", id="releases.W001")]
    warning = found(seen)
    return [warning] if warning else []


def found(seen: Conditions) -> checks.CheckMessage | None:
    """The warning about storage of this kind, if any."""
    if seen == Conditions.KEPT:
        return None
    does = "refuses" if seen == Conditions.REFUSED else "ignores"
    said = f"Storage {does} conditional writes (If-None-Match)."
    return checks.Warning(said, hint=HINT, id="releases.W002")


def _cause(error: StorageUnavailable) -> str:
    """The server's code of an error, or the error's class; no message, which may name more."""
    cause = error.__cause__
    answered = getattr(cause, "response", None)
    code = answered["Error"].get("Code") if isinstance(answered, dict) else None
    return code or type(cause).__name__
