"""The reason why this side has cut a call: a latch that is set once."""

from enum import Enum

from config.platform.problems.problem import Problem
from usage.models import UsageRecord

End = UsageRecord.End


class StopReason(Enum):
    """Each with the end of the call's record."""

    ACCESS_GONE = "access gone", End.STOPPED
    OPERATOR = "operator", End.STOPPED
    CLIENT_GONE = "client gone", End.CLIENT_GONE
    PROCESS_ENDS = "process ends", End.CRASHED
    TOO_LATE = "too late", End.TIMEOUT

    @property
    def end(self) -> End:
        return self.value[1]


class Stop:
    """Set by the watch or by the end of the process, before they cut the exchange; read by the relay."""

    __slots__ = ("problem", "reason")

    def __init__(self) -> None:
        self.reason: StopReason | None = None
        # The problem that the caller receives.
        self.problem: Problem | None = None

    def __bool__(self) -> bool:
        return self.reason is not None

    def set(self, reason: StopReason, problem: Problem | None = None) -> None:
        """Only the first reason counts."""
        if self.reason is None:
            # First, because others look at the reason.
            self.problem = problem
            self.reason = reason
