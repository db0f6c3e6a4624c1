"""Queries customers one by one, so that failures of a few customers do not stop the others."""

from collections.abc import Callable, Collection
from dataclasses import dataclass

from accounts.jobs import NotDone

# The current statuses of a customer's subscriptions. Raises ``BillingUnavailable``.
StatusQuery = Callable[[str], Collection[str]]
# A request about no customer, to test the connection. Raises ``BillingUnavailable``.
Probe = Callable[[], object]

# After this number of failures in a row the connection is tested.
IN_A_ROW = 3


class BillingUnavailable(NotDone):
    """A failed request to the payment processor, for which no licence is suspended."""


class CustomerRefused(BillingUnavailable):
    """A request that the processor refuses for one customer."""


@dataclass(slots=True)
class CustomerQueries:
    """The requests of one run.

    ``given_up``: the processor is unavailable, and the run sends no more requests. ``why``: the last failure, in words
    that may be shown. Without a ``probe``, ``IN_A_ROW`` failures mean that the processor is unavailable.
    """

    query: StatusQuery
    probe: Probe | None = None
    given_up: bool = False
    why: str = ""
    in_a_row: int = 0

    def statuses_of(self, customer: str) -> Collection[str] | None:
        """The current statuses of a customer, or None after a failure."""
        try:
            statuses = self.query(customer)
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
        """Returns whether the processor responds, so that the failures are about these customers."""
        if self.probe is None:
            return False
        try:
            self.probe()
        except BillingUnavailable as error:
            self.why = str(error)
            return False
        return True
