"""The environment, read once at start by typed readers that fail loudly.

Every variable can be given as ``NAME_FILE`` instead: the name of a file that holds the value. :func:`seal` reports all
faults together, so that an operator mends them in one go; no report repeats a value.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast

from environs import EnvValidationError, FileAwareEnv

Parse = TypeVar("Parse", bound=Callable[..., Any])


class _Environment:
    """The library's reader, which reports a file that cannot be read with all other faults."""

    def __init__(self) -> None:
        self._reader = FileAwareEnv(eager=False, strip_whitespace=True)
        self.add_parser, self.read_env = self._reader.add_parser, self._reader.read_env
        self._faults: dict[str, list[str]] = {}

    def __getattr__(self, parser: str) -> Callable[..., Any]:
        def read(name: str, *args: Any, **kwargs: Any) -> Any:
            try:
                return getattr(self._reader, parser)(name, *args, **kwargs)
            except (OSError, ValueError):
                self._faults[name] = [f"{name}_FILE must name a file of text."]

        return read

    def faults(self) -> dict[str, list[str]]:
        """Ends the reading; returns what is wrong with each variable."""
        try:
            self._reader.seal()
        except EnvValidationError as error:
            self._faults |= cast("dict[str, list[str]]", error.error_messages)
        return self._faults


env = _Environment()


def seal(combined: Mapping[str, str]) -> None:
    """Ends the reading: exits with one report of everything missing or wrong, if there is anything.

    ``combined``: sentences about variables that do not fit together.
    """
    faults = {**{name: [said] for name, said in combined.items()}, **env.faults()}
    lines = [f"  {name}: {' '.join(map(str, faults[name]))}" for name in sorted(faults)]
    if lines:
        # Without a traceback, which would bury the names for the person who starts the server.
        raise SystemExit(
            "The service cannot start; its environment is incomplete or too weak:\n"
            + "\n".join(lines)
        )


def parser(parse: Parse) -> Parse:
    """Registers ``env.<its name>``: a parser whose errors name the expected form and never the given value."""
    env.add_parser(parse.__name__, parse)
    return parse
