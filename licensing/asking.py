"""Asking about one customer after another, so that one without an answer keeps nobody else waiting."""

from collections.abc import Callable, Collection
from dataclasses import dataclass

from accounts.jobs import NotDone

# The statuses of a customer's subscriptions, as they are when it is called. Raises ``BillingUnavailable``.
Again = Callable[[str], Collection[str]]

# So many customers in a row without an answer, and it is no longer one of them that is the cause.
IN_A_ROW = 3


class BillingUnavailable(NotDone):
    """The payment processor did not answer as it should; nobody is to suffer for that."""


class CustomerRefused(BillingUnavailable):
    """It answers, and refuses to say anything of this one customer."""


@dataclass(slots=True)
class Questions:
    """Those of one run. ``why``: what the last one without an answer failed of, in words that may be shown."""

    again: Again
    why: str = ""
    unanswered: int = 0

    @property
    def given_up(self) -> bool:
        """Whether the processor is away, and nobody else is asked about."""
        return self.unanswered >= IN_A_ROW

    def statuses_of(self, customer: str) -> Collection[str] | None:
        """What is said of a customer now; None where that is not to be had in this run."""
        if self.given_up:
            return None
        try:
            statuses = self.again(customer)
        except BillingUnavailable as error:
            self.why = str(error)
            self.unanswered = 0 if isinstance(error, CustomerRefused) else self.unanswered + 1
            return None
        self.unanswered = 0
        return statuses
