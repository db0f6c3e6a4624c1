"""Measures of the answer to one attempt; the relay alone writes them."""

import time
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum, auto
from typing import NamedTuple

from django.utils import timezone

from llmproxy.dialects.protocol import Piece, PromptUsage, TokenUsage
from llmproxy.prompts.estimates import delivered_tokens

# A shorter pause between two deltas is no silence.
SILENCE_SECONDS = 1.0
# Output within this time after a silence may have been made during it.
BURST_SECONDS = 1.0
# A report is below what was delivered if it is below a token for each delta, or for each of so many bytes. Tokens of
# some languages and of program text are nearly as long.
LONG_TOKEN = 16
# A provider is out of control only well past its output limit, by its report, by the number of deltas, or by tokens of
# RUNAWAY_BYTES: a delta may be less than a token, and a token may be long.
RUNAWAY_TIMES = 2
RUNAWAY_SLACK = 256
RUNAWAY_BYTES = 8


class State(Enum):
    """The progress of an attempt."""

    ASKING = auto()
    # Its head has come, with the status 200.
    ANSWERING = auto()
    # Something for the caller has come.
    DELIVERING = auto()
    # Its answer has its finish reason, or is whole.
    FINISHED = auto()
    # The provider has refused it, by a status or by an error in place of the answer.
    ENDED = auto()


class Silence(NamedTuple):
    """A silence between two deltas, in seconds, its end, and the tokens of the burst that ended it."""

    seconds: float
    ended_at: float
    burst: int


@dataclass(slots=True)
class Meter:
    """Times are on the monotonic clock, but for the record's times of the first byte and the first output."""

    state: State = State.ASKING
    report: TokenUsage | None = None
    reported_at: float | None = None
    # The prompt's usage, where the provider reports it first.
    prompt: PromptUsage | None = None
    # Output was delivered after the report, which does not include it.
    exceeds_report: bool = False
    # The answer came with the status 200 and could not be read.
    is_unread: bool = False
    deltas: int = 0
    # The bytes of the output delivered.
    size: int = 0
    first_byte_at: datetime | None = None
    first_output_at: datetime | None = None
    first_delta_at: float | None = None
    delta_at: float | None = None
    silences: list[Silence] = field(default_factory=list)

    def mark_unread(self, report: TokenUsage | None) -> None:
        """Notes that the answer could not be read, with the usage that stood at its end.

        One that was reported before is of a part of it.
        """
        self.is_unread, self.exceeds_report = True, report is None
        self.report = report or self.report

    def mark_first_byte(self) -> None:
        if self.first_byte_at is None:
            self.first_byte_at = timezone.now()

    def count(self, piece: Piece) -> None:
        """Adds a piece of a streamed answer."""
        if piece.reported is not None:
            self.report, self.exceeds_report = piece.reported, False
            self.reported_at = time.monotonic()
        elif piece.size:
            self.exceeds_report = True
        if piece.prompt is not None:
            self.prompt = piece.prompt
        if piece.size:
            self.count_delta(piece.size)
        if piece.finished:
            self.state = State.FINISHED

    def count_delta(self, size: int) -> None:
        now = time.monotonic()
        pause = 0.0 if self.delta_at is None else now - self.delta_at
        if self.first_delta_at is None:
            self.first_delta_at, self.first_output_at = now, timezone.now()
        self.deltas, self.size, self.delta_at = self.deltas + 1, self.size + size, now
        if pause >= SILENCE_SECONDS:
            self.silences.append(Silence(pause, now, delivered_tokens(deltas=1, size=size)))
        elif self.silences and now - self.silences[-1].ended_at <= BURST_SECONDS:
            last = self.silences[-1]
            burst = last.burst + delivered_tokens(deltas=1, size=size)
            self.silences[-1] = last._replace(burst=burst)

    @property
    def is_finished(self) -> bool:
        return self.state is State.FINISHED

    @property
    def has_begun(self) -> bool:
        return self.state not in (State.ASKING, State.ENDED)

    @property
    def has_output(self) -> bool:
        """Returns whether something for the caller has come."""
        return self.state in (State.DELIVERING, State.FINISHED)

    @property
    def is_reported(self) -> bool:
        """Returns whether the provider has reported all output delivered."""
        return self.report is not None and not self.exceeds_report

    @property
    def awaits_usage(self) -> bool:
        """Returns whether only the provider's report is missing."""
        return self.is_finished and not self.is_reported

    @property
    def least_delivered(self) -> int:
        """The tokens that were delivered at least."""
        return max(self.deltas, -(-self.size // LONG_TOKEN))

    @property
    def delivered(self) -> int:
        """The estimate of the tokens that were delivered."""
        return delivered_tokens(deltas=self.deltas, size=self.size)

    def is_runaway(self, *, limit: int) -> bool:
        """Returns whether the provider has gone far past the output limit of the request."""
        reported = self.report.output if self.report is not None else 0
        output = max(self.deltas, self.size // RUNAWAY_BYTES, reported)
        return output > RUNAWAY_TIMES * limit + RUNAWAY_SLACK
