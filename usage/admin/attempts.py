"""The attempts at a call that failed, in words: for its story, and for why it failed."""

import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from config.platform.periods import Period
from usage.models import UsageRecord
from usage.models.failures import FailedAttempt, Failures, What
from usage.spending.statements import Attempt, attempts_of

End = UsageRecord.End
# Ends of calls whose last attempt may be the one that failed.
BY_ATTEMPT = frozenset({End.PROVIDER_FAILED, End.UNREAD, End.TIMEOUT})
# Failures of a provider without a status, by kind.
DID: dict[str, str] = {
    What.REFUSED: "reported an error",
    What.UNREACHABLE: "could not be reached",
    What.TIMED_OUT: "did not answer in time",
    What.BROKEN: "broke off",
    What.UNREADABLE: "sent an answer that could not be read",
    What.TOO_LARGE: "sent too long an answer",
    What.NO_KEY: "was not asked, because its key cannot be decrypted",
    What.FAILED: "failed",
}
# Failures of a connection, by the name of the error behind them.
CAUSES = {
    "ConnectionRefusedError": "it refused the connection",
    "gaierror": "its name does not resolve",
    "SSLCertVerificationError": "its certificate is not valid",
    "RemoteDisconnected": "it closed the connection",
    "ConnectionResetError": "it closed the connection",
    "BrokenPipeError": "it closed the connection",
    "IncompleteRead": "its answer was cut short",
}
CAUSE = re.compile(r"\((\w+)\)\Z")


@dataclass(frozen=True, slots=True)
class Tried:
    """A failed attempt: when it was asked, what came of it, and what it may cost.

    ``model`` is "" for one on a record of before, which has only what may be billed. ``left_out`` failed before it and
    are not on the record.
    """

    provider: str
    model: str
    asked_at: datetime
    ended_at: datetime
    did: str
    words: str = ""
    billed: Attempt | None = None
    left_out: int = 0

    @property
    def seconds(self) -> float:
        return max(0.0, (self.ended_at - self.asked_at).total_seconds())

    @property
    def sentence(self) -> str:
        """The attempt in one sentence, such as *default answered 429: rate limit reached*."""
        said = f"{self.provider} {self.did}"
        return f"{said}: {self.words.rstrip('.')}" if self.words else said


def tried(call: UsageRecord) -> list[Tried]:
    """The failed attempts at a call, the first first."""
    failures = Failures.read(call.failures)
    billed = {(each.provider, each.asked_at): each for each in attempts_of([call])[call.pk]}
    last = len(failures.attempts) - 1
    found = [
        _tried(
            each,
            billed.pop((each.provider, each.asked_at), None),
            left_out=failures.left_out if place == last else 0,
        )
        for place, each in enumerate(failures.attempts)
    ]
    found += [
        Tried(each.provider, "", each.asked_at, each.abandoned_at, DID[What.BROKEN], billed=each)
        for each in billed.values()
    ]
    return sorted(found, key=lambda each: each.asked_at)


def ends_by_attempt(call: UsageRecord, attempts: list[Tried]) -> bool:
    """Returns whether a call ended with the last of its failed attempts."""
    return call.end in BY_ATTEMPT and bool(attempts) and attempts[-1].provider == call.provider


def cause(call: UsageRecord) -> str:
    """Returns the cause of a failed call, in one sentence without its full stop; "" where the record does not say."""
    attempts = tried(call)
    if ends_by_attempt(call, attempts):
        return attempts[-1].sentence
    problem = Failures.read(call.failures).problem
    return problem.detail.rstrip(".") if problem else ""


def latest_failed(user_id: UUID, *, now: datetime) -> UsageRecord | None:
    """Returns the latest call of a person that has failed within a day."""
    since = now - timedelta(days=1)
    begin, today = Period.of(since), Period.of(now)
    # By the calls of the person's days, or by those of all people that did not end well.
    failed = UsageRecord.objects.filter(
        user=user_id,
        period__in={begin.month, today.month},
        day__in=(begin.day, today.day),
        end__in=BY_ATTEMPT,
        opened_at__gte=since,
    )
    return failed.order_by("-opened_at").first()


def _tried(attempt: FailedAttempt, billed: Attempt | None, *, left_out: int) -> Tried:
    did, words = DID.get(attempt.what, DID[What.FAILED]), attempt.words
    if attempt.status:
        did = f"answered {attempt.status}"
    if attempt.what != What.REFUSED:
        named = CAUSE.search(words)
        words = CAUSES.get(named[1], "") if named else ""
    return Tried(
        attempt.provider,
        attempt.model,
        attempt.asked_at,
        attempt.ended_at,
        did,
        words,
        billed,
        left_out,
    )
