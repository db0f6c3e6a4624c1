"""Asking about one customer after another, so that those without an answer keep nobody else waiting."""

from collections.abc import Callable, Collection
from dataclasses import dataclass

from accounts.jobs import NotDone

# The statuses of a customer's subscriptions, as they are when it is called. Raises ``BillingUnavailable``.
Again = Callable[[str], Collection[str]]
# A question about nobody, which is answered while any is. Raises ``BillingUnavailable``.
Control = Callable[[], object]

# So many customers in a row without an answer, and it may no longer be one of them that is the cause.
IN_A_ROW = 3


class BillingUnavailable(NotDone):
    """The payment processor did not answer as it should; nobody is to suffer for that."""


class CustomerRefused(BillingUnavailable):
    """It answers, and refuses to say anything of this one customer."""


@dataclass(slots=True)
class Questions:
    """Those of one run.

    ``given_up``: the processor is away, and nobody else is to be asked about. ``why``: what the last one without an
    answer failed of, in words that may be shown. Without a ``control`` so many in a row are taken for all.
    """

    again: Again
    control: Control | None = None
    given_up: bool = False
    why: str = ""
    in_a_row: int = 0

    def statuses_of(self, customer: str) -> Collection[str] | None:
        """What is said of a customer now; None where nothing is."""
        try:
            statuses = self.again(customer)
        except BillingUnavailable as error:
            self.why = str(error)
            self.in_a_row = 0 if isinstance(error, CustomerRefused) else self.in_a_row + 1
            if self.in_a_row == IN_A_ROW:
                self.given_up = not self._answers()
                self.in_a_row = 0
            return None
        self.in_a_row = 0
        return statuses

    def _answers(self) -> bool:
        """Whether it answers at all, so that the fault is with those few."""
        if self.control is None:
            return False
        try:
            self.control()
        except BillingUnavailable as error:
            self.why = str(error)
            return False
        return True
