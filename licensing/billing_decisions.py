"""The billing status that a customer's subscriptions, or the end of a grace, mean for a licence."""

from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from django.conf import settings

from licensing.models import Licence, Standing

ACTIVE = frozenset({"active", "trialing"})
DUE = frozenset({"past_due"})
PAUSED = "paused"
# ``paused`` is among them because it can mean that nobody has paid.
SUSPENDED = frozenset({"unpaid", "incomplete", "incomplete_expired", "canceled", PAUSED})
GRACE_EXPIRED = "The grace period is over."


class BillingDecision(NamedTuple):
    """The billing status of one licence from now on."""

    licence: Licence
    status: Standing
    grace_until: datetime | None
    reason: str

    @property
    def suspends_billing(self) -> bool:
        """Returns whether the billing status becomes suspended."""
        known = self.licence.billing_status
        return self.status == Standing.SUSPENDED and known != Standing.SUSPENDED

    @property
    def suspends_client(self) -> bool:
        """Returns whether people notice at once: an operator's decision hides it for as long as it applies."""
        return self.suspends_billing and self.licence.operator_status is None

    @property
    def changes_licence(self) -> bool:
        known = (self.licence.billing_status, self.licence.billing_grace_until)
        return known != (self.status, self.grace_until)


def best(statuses: Collection[str]) -> str | None:
    """The status of a customer with several subscriptions: the best that is known. None if none is."""
    if paid := sorted(ACTIVE.intersection(statuses)):
        return paid[0]
    # A subscription we do not understand may be the good one, so nobody suffers beside it.
    if set(statuses) - DUE - SUSPENDED:
        return None
    return next((each for group in (DUE, SUSPENDED) for each in sorted(group & {*statuses})), None)


def decision_of_status(licence: Licence, status: str, now: datetime) -> BillingDecision:
    """A grace runs from the first time that payment was seen to be due, and is given once."""
    reason = f"Stripe says {status}."
    if status in ACTIVE:
        return BillingDecision(licence, Standing.ACTIVE, None, reason)
    until = licence.billing_grace_until
    if status in DUE:
        # In UTC, where every day has 24 hours.
        until = until or now.astimezone(UTC) + timedelta(days=settings.GRACE_DAYS)
        over = until <= now and licence.billing_status == Standing.SUSPENDED
        standing = Standing.SUSPENDED if over else Standing.GRACE
        return BillingDecision(licence, standing, until, reason)
    return suspension(licence, reason)


def decision_after_grace(licence: Licence, status: str, now: datetime) -> BillingDecision:
    """A grace that has run out ends in a suspension, whatever the debt is called; only a payment prevents it."""
    if status in ACTIVE:
        return decision_of_status(licence, status, now)
    return suspension(licence, GRACE_EXPIRED)


def suspension(licence: Licence, reason: str) -> BillingDecision:
    """The end of a grace is kept, so that the same debt earns no second one."""
    return BillingDecision(licence, Standing.SUSPENDED, licence.billing_grace_until, reason)
