"""Failed attempts at calls, and the problems that their callers got: the form of ``UsageRecord.failures``."""

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from json import dumps
from typing import Any, NamedTuple

from config.platform.problems.problem import Problem, instant

# The attempts that a record keeps: the first ones and the last.
MOST_ATTEMPTS = 8
MOST_WORDS = 300


class What(StrEnum):
    """The kinds of failures. Only a refusal has a status, where its provider gave one."""

    REFUSED = "refused"
    UNREACHABLE = "unreachable"
    TIMED_OUT = "timed_out"
    BROKEN = "broken"
    UNREADABLE = "unreadable"
    TOO_LARGE = "too_large"
    # A key that cannot be decrypted, so that its provider was not asked.
    NO_KEY = "no_key"
    FAILED = "failed"


class FailedAttempt(NamedTuple):
    """An attempt that its provider refused, or that ended without a usable answer.

    ``model`` is the provider's name for the model, and ``words`` are its own without what is secret, or say how the
    connection failed. A later release may write a ``what`` that this one does not know.
    """

    provider: str
    model: str
    what: str
    status: int | None
    words: str
    asked_at: datetime
    ended_at: datetime


class CallersProblem(NamedTuple):
    """The problem that a caller got."""

    code: str
    status: int
    detail: str


class Failures(NamedTuple):
    """The failed attempts of one call, the first first; ``left_out`` stood before the last of them.

    ``problem`` ended the call; None where it had an answer, or nobody got one.
    """

    attempts: tuple[FailedAttempt, ...] = ()
    left_out: int = 0
    problem: CallersProblem | None = None

    def also(self, attempt: FailedAttempt) -> "Failures":
        """Returns these with one that came after them."""
        attempts, left_out = self.attempts, self.left_out
        if len(attempts) == MOST_ATTEMPTS:
            attempts, left_out = attempts[:-1], left_out + 1
        return self._replace(attempts=(*attempts, attempt), left_out=left_out)

    def ending(self, problem: Problem, *, detail: str) -> "Failures":
        """Returns these with the problem that ended the call, and as much of its detail as may be kept."""
        kept = _storable(detail)
        return self._replace(problem=CallersProblem(problem.code, problem.status, kept))

    def as_json(self) -> str | None:
        """The JSON of the column; None without a failure."""
        if self == NONE:
            return None
        attempts = [
            {
                **each._asdict(),
                "words": _storable(each.words),
                "asked_at": instant(each.asked_at),
                "ended_at": instant(each.ended_at),
            }
            for each in self.attempts
        ]
        problem = self.problem and self.problem._asdict()
        return dumps({"attempts": attempts, "left_out": self.left_out, "problem": problem})

    @classmethod
    def read(cls, column: Mapping[str, Any] | None) -> "Failures":
        """Reads what ``as_json`` wrote."""
        if column is None:
            return NONE
        problem = column["problem"] and CallersProblem(**column["problem"])
        return cls(tuple(map(_read, column["attempts"])), column["left_out"], problem)


NONE = Failures()


def _storable(words: str) -> str:
    """The beginning of a text without what PostgreSQL's JSON cannot hold: NUL, and halves of characters."""
    return words[:MOST_WORDS].replace("\0", "").encode("utf-8", "replace").decode()


def _read(entry: Mapping[str, Any]) -> FailedAttempt:
    times = {name: datetime.fromisoformat(entry[name]) for name in ("asked_at", "ended_at")}
    return FailedAttempt(**{**entry, **times})
