"""Redacts exceptions to their class, frames and codes, for logs and error reports.

Messages, source lines and local variables may contain tokens and prompts, and PostgreSQL repeats whole rows in its
DETAIL lines, so nothing else of an exception is written.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from types import TracebackType

import psycopg

from config.platform.problems.problem import Problem

ROOT = f"{Path(__file__).resolve().parents[3]}/"
INSTALLED = "site-packages/"
NAME = re.compile(r"\w{1,63}", re.ASCII)
# A chain or a recursion may be endless; its last steps explain it.
MAX_FAILURES = 8
MAX_FRAMES = 30
# Frames of libraries are kept only next to the fault.
LAST_FRAMES = 3


@dataclass(frozen=True, slots=True)
class Frame:
    """One step of a traceback; ``own`` for this project's code."""

    file: str
    line: int
    function: str
    own: bool

    def __str__(self) -> str:
        return f"{self.file}:{self.line} {self.function}"


@dataclass(frozen=True, slots=True)
class Failure:
    """One exception of a chain: its class, its frames (the innermost last), and codes without values."""

    name: str
    frames: tuple[Frame, ...] = ()
    facts: dict[str, str | int] = field(default_factory=dict)


def chain(error: BaseException) -> list[Failure]:
    """Returns an exception and its causes, the newest first; members of a group after the group."""
    waiting: list[BaseException] = [error]
    seen: set[int] = set()
    failures: list[Failure] = []
    while waiting and len(failures) < MAX_FAILURES:
        each = waiting.pop(0)
        if id(each) in seen:
            continue
        seen.add(id(each))
        failures.append(Failure(class_name(each), tuple(_frames(each.__traceback__)), _facts(each)))
        if isinstance(each, BaseExceptionGroup):
            waiting.extend(each.exceptions)
        before = each.__cause__ if each.__suppress_context__ else each.__context__
        if before is not None:
            waiting.append(before)
    return failures


def class_name(value: object) -> str:
    """Returns ``psycopg.errors.UniqueViolation``; a built-in class has no module."""
    kind = type(value)
    return (
        kind.__qualname__
        if kind.__module__ == "builtins"
        else f"{kind.__module__}.{kind.__qualname__}"
    )


@lru_cache(maxsize=4096)
def place_of(filename: str) -> tuple[str, bool]:
    """Returns a file's name within the project or its package, and whether it is the project's."""
    _, installed, within = filename.rpartition(INSTALLED)
    if installed:
        return within, False
    if filename.startswith(ROOT):
        return filename.removeprefix(ROOT), True
    return "/".join(filename.split("/")[-2:]), False


def _frames(traceback: TracebackType | None) -> list[Frame]:
    steps = list(_steps(traceback))
    kept = [step for step in steps[:-LAST_FRAMES] if step.own] + steps[-LAST_FRAMES:]
    return kept[-MAX_FRAMES:]


def _steps(traceback: TracebackType | None) -> Iterator[Frame]:
    while traceback is not None:
        code = traceback.tb_frame.f_code
        file, own = place_of(code.co_filename)
        yield Frame(file, traceback.tb_lineno, code.co_qualname, own)
        traceback = traceback.tb_next


def _facts(error: BaseException) -> dict[str, str | int]:
    """Returns codes and names without values; a constraint names the broken rule without the row."""
    facts: dict[str, str | int] = {}
    if isinstance(error, Problem):
        facts["code"] = error.code
    elif isinstance(error, OSError) and isinstance(error.errno, int):
        facts["errno"] = error.errno
    elif isinstance(error, psycopg.Error):
        named = {"sqlstate": error.sqlstate, "constraint": error.diag.constraint_name}
        facts |= {key: value for key, value in named.items() if value and NAME.fullmatch(value)}
    return facts
