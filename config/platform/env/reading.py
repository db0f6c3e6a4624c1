"""Reads the environment once at start, with typed readers that fail loudly.

Every variable can be given as ``NAME_FILE`` instead: the name of a file that holds the value. An invalid value stops
the start with a sentence that says how to write it. :func:`seal` reports all faults together, so that an operator can
fix them in one go; no report repeats a value.
"""

import os
import re
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, TypeVar, cast

from environs import EnvValidationError, FileAwareEnv, ValidationError

Parse = TypeVar("Parse", bound=Callable[..., Any])

# Quotes that a shell removes and `docker --env-file` keeps, and those that word processors write.
QUOTES = {
    '"': '"',
    "'": "'",
    "`": "`",
    "\N{LEFT DOUBLE QUOTATION MARK}": "\N{RIGHT DOUBLE QUOTATION MARK}",
    "\N{LEFT SINGLE QUOTATION MARK}": "\N{RIGHT SINGLE QUOTATION MARK}",
}
# A comment that a shell and Compose remove, and `docker --env-file` and systemd keep.
COMMENT = re.compile(r"(?:^|\s)#\s")
BYTE_ORDER_MARK = "\ufeff"


def plain(value: str) -> str:
    """Strips surrounding white space from a value. Refuses surrounding quotes and a trailing comment."""
    bare = value.strip().removeprefix(BYTE_ORDER_MARK).strip()
    if len(bare) > 1 and QUOTES.get(bare[0]) == bare[-1]:
        raise ValidationError(
            "Must be written without quotes around it, because `docker --env-file` keeps them."
        )
    if COMMENT.search(bare):
        raise ValidationError(
            "Must be written without a comment beside it, because `docker --env-file` and systemd keep it."
        )
    return bare


class Environment:
    """Wraps the library's reader, so that an unreadable file is reported with all other faults."""

    def __init__(self) -> None:
        self._reader = FileAwareEnv(eager=False, strip_whitespace=True)
        self.add_parser, self.read_env = self._reader.add_parser, self._reader.read_env
        self._faults: dict[str, list[str]] = {}

    def __getattr__(self, parser: str) -> Callable[..., Any]:
        def read(name: str, *args: Any, **kwargs: Any) -> Any:
            if os.environ.get(name) and os.environ.get(f"{name}_FILE"):
                self._faults[name] = [f"Must be given once: {name} or {name}_FILE."]
                return None
            try:
                return getattr(self._reader, parser)(name, *args, **kwargs)
            except (OSError, ValueError):
                self._faults[name] = [f"{name}_FILE must name a file of text."]

        return read

    def faults(self) -> dict[str, list[str]]:
        """Ends the reading; returns the faults of each variable."""
        try:
            self._reader.seal()
        except EnvValidationError as error:
            self._faults |= cast("dict[str, list[str]]", error.error_messages)
        return self._faults


env = Environment()


def seal(combined: Mapping[str, str]) -> None:
    """Ends the reading; exits with one report if anything is missing or wrong.

    ``combined``: sentences about variables that contradict each other, by variable.
    """
    faults = {**{name: [sentence] for name, sentence in combined.items()}, **env.faults()}
    lines = [f"  {name}: {' '.join(map(str, faults[name]))}" for name in sorted(faults)]
    if lines:
        # SystemExit prints no traceback, which would bury the names of the variables.
        raise SystemExit(
            "The service cannot start; its environment is incomplete or too weak:\n"
            + "\n".join(lines)
        )


def parser(parse: Parse) -> Parse:
    """Registers a parser as ``env.<its name>``; its errors name the expected form and never the given value."""

    @wraps(parse)
    def of_given(value: Any, **kwargs: Any) -> Any:
        return parse(plain(value) if isinstance(value, str) else value, **kwargs)

    env.add_parser(parse.__name__, of_given)
    return parse


@parser
def text(value: str, *, check: Callable[[str], Any] | None = None) -> str:
    """Returns a text unchanged once ``check`` accepts it. The default of an absent one is not checked."""
    if check and isinstance(value, str):
        check(value)
    return value
