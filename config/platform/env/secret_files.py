"""Secrets in files that operators may replace while the service runs."""

import logging
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from environs import ValidationError, validate

from config.platform.env.reading import env, plain

log = logging.getLogger(__name__)
# A file that is overwritten in place is empty for a moment.
REPLACED_WITHIN_NS = 1_000_000_000
NOT_EMPTY = validate.Length(min=1, error="Must not be empty.")


class Secret:
    """A secret that may be in a file which operators replace while the service runs.

    Calling it returns the current value; a changed file is read again. The file of an optional secret may be emptied.
    ``repr`` shows only the name.
    """

    def __init__(
        self,
        name: str,
        value: str,
        path: str | None = None,
        check: Callable[[str], Any] | None = None,
        *,
        may_be_empty: bool = False,
    ) -> None:
        self.name = name
        self._check = check
        self._may_be_empty = may_be_empty
        self._value = value
        self._path = Path(path) if path else None
        self._stamp: tuple[int, int, int] | None = None
        self._stamp = self._look()

    def __call__(self) -> str:
        if self._path is not None and (stamp := self._look()) != self._stamp:
            self._read(self._path, stamp)
        return self._value

    def _read(self, path: Path, stamp: tuple[int, int, int] | None) -> None:
        """Reads the value from the file; an invalid one is logged once and changes nothing."""
        value = self._usable(path)
        if value == "" and stamp and _is_fresh(stamp):
            # The file may be half written. If it is not, a later call takes the empty value.
            return
        self._stamp = stamp
        if value is None:
            log.error("secret_file_not_usable", extra={"setting": self.name})
        else:
            self._value = value

    def _usable(self, path: Path) -> str | None:
        try:
            value = plain(path.read_text())
            if value or not self._may_be_empty:
                NOT_EMPTY(value)
                if self._check:
                    self._check(value)
        except (OSError, ValueError, ValidationError):
            return None
        return value

    def listed(self) -> list[str]:
        """The members of a comma-separated value, without empty ones."""
        return [part for each in self().split(",") if (part := each.strip())]

    def __repr__(self) -> str:
        return f"<Secret {self.name}>"

    def _look(self) -> tuple[int, int, int] | None:
        """Returns a stamp that changes with the file; the old one while a replacement has removed the file."""
        if self._path is None:
            return None
        try:
            stat = self._path.stat()
        except OSError:
            return self._stamp
        return stat.st_ino, stat.st_mtime_ns, stat.st_size


def _is_fresh(stamp: tuple[int, int, int]) -> bool:
    _, written_ns, _ = stamp
    return 0 <= time.time_ns() - written_ns < REPLACED_WITHIN_NS


def secret(name: str, *, default: Any = ..., check: Callable[[str], Any] | None = None) -> Secret:
    """Reads a secret; one that is missing or empty is a fault unless there is a default."""
    value = env.text(name, default, check=check or (NOT_EMPTY if default is ... else None))
    path = os.environ.get(f"{name}_FILE")
    return Secret(name, value or "", path, check, may_be_empty=default is not ...)
