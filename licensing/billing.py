"""What billing says of licences: from subscriptions once a night, and from the clock once a grace is over.

An operator's word counts before all of this and is never touched by it.
"""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import NamedTuple

from django.conf import settings

from accounts.audit import Actor
from licensing import brake
from licensing.licences import set_billing_status, set_operator_status
from licensing.models import Licence, Standing

SYNC = "sync_subscriptions"
EXPIRE = "expire_grace"
ACTIVE = frozenset({"active", "trialing"})
DUE = "past_due"
# ``paused`` is among them because it can mean that nobody has paid.
SUSPENDED = frozenset({"unpaid", "incomplete", "incomplete_expired", "canceled", "paused"})
NAMES_SHOWN = 5


class Saying(NamedTuple):
    """What billing says of one licence from now on."""

    licence: Licence
    status: Standing
    grace_until: datetime | None
    reason: str

    @property
    def suspends(self) -> bool:
        """Whether people notice: an operator's word would hide it."""
        return (
            self.status == Standing.SUSPENDED
            and self.licence.billing_status != Standing.SUSPENDED
            and self.licence.operator_status is None
        )

    @property
    def is_news(self) -> bool:
        known = (self.licence.billing_status, self.licence.billing_grace_until)
        return known != (self.status, self.grace_until)


@dataclass(slots=True)
class Report:
    """What a run changed, or would; and whom it left as they were because nothing is known of them."""

    changed: Counter[str] = field(default_factory=Counter)
    unknown: list[str] = field(default_factory=list)
    without_subscription: list[str] = field(default_factory=list)
    without_customer: int = 0

    def __str__(self) -> str:
        changes = ", ".join(f"{number} {status}" for status, number in sorted(self.changed.items()))
        parts = [f"changed: {changes}" if changes else "nothing changed"]
        if self.unknown:
            parts.append(f"with a status that is not known here: {_named(self.unknown)}")
        if self.without_subscription:
            parts.append(f"without a subscription: {_named(self.without_subscription)}")
        if self.without_customer:
            parts.append(f"without a customer: {self.without_customer}")
        return "; ".join(parts)


def best(statuses: Collection[str]) -> str | None:
    """The status of a customer with several subscriptions: the best that is known. None if none is."""
    for group in (ACTIVE, {DUE}, SUSPENDED):
        if found := sorted(group.intersection(statuses)):
            # A subscription we do not understand may be the good one, so nobody is suspended beside it.
            unsure = group is SUSPENDED and set(statuses) - SUSPENDED
            return None if unsure else found[0]
    return None


def sync(
    *, subscriptions: Mapping[str, Collection[str]], by: Actor, now: datetime, dry_run: bool = False
) -> Report:
    """Takes over what the processor says of each customer. ``subscriptions``: statuses by customer.

    Raises ``BrakeHeld`` where too many would be suspended. Killed half way, the next run does the rest.
    """
    report, sayings = Report(), []
    for licence in Licence.objects.select_related("client", "plan").iterator():
        if not licence.stripe_customer_id:
            report.without_customer += 1
            continue
        statuses = subscriptions.get(licence.stripe_customer_id)
        if not statuses:
            report.without_subscription.append(licence.client.name)
        elif (status := best(statuses)) is None:
            report.unknown.append(licence.client.name)
        else:
            sayings.append(_saying(licence, status, now=now))
    return _apply(SYNC, sayings, report, by=by, now=now, dry_run=dry_run)


def expire_grace(*, by: Actor, now: datetime, dry_run: bool = False) -> Report:
    """Graces that have run out become suspensions, on the axis on which they were given.

    Raises ``BrakeHeld`` where too many of billing's would; an operator chose the end of his own himself.
    """
    over = Licence.objects.select_related("client", "plan").filter(
        billing_status=Standing.GRACE, billing_grace_until__lte=now
    )
    reason = "The grace has run out."
    sayings = [Saying(each, Standing.SUSPENDED, each.billing_grace_until, reason) for each in over]
    report = _apply(EXPIRE, sayings, Report(), by=by, now=now, dry_run=dry_run)
    words = Licence.objects.filter(operator_status=Standing.GRACE, operator_grace_until__lte=now)
    for licence_id, ends_at in words.values_list("pk", "operator_until"):
        report.changed[Standing.SUSPENDED] += 1
        if not dry_run:
            set_operator_status(
                licence_id=licence_id,
                status=Standing.SUSPENDED,
                ends_at=ends_at,
                reason=reason,
                by=by,
                now=now,
            )
    return report


def _saying(licence: Licence, status: str, *, now: datetime) -> Saying:
    """A grace runs from the first time that payment was seen to be due, and is given once."""
    reason = f"Stripe says {status}."
    if status in ACTIVE:
        return Saying(licence, Standing.ACTIVE, None, reason)
    until = licence.billing_grace_until
    if status == DUE:
        until = until or now + timedelta(days=settings.GRACE_DAYS)
        over = until <= now and licence.billing_status == Standing.SUSPENDED
        return Saying(licence, Standing.SUSPENDED if over else Standing.GRACE, until, reason)
    return Saying(licence, Standing.SUSPENDED, until, reason)


def _apply(
    job: str, sayings: list[Saying], report: Report, *, by: Actor, now: datetime, dry_run: bool
) -> Report:
    news = [each for each in sayings if each.is_news]
    if not dry_run:
        suspended = [each.licence.pk for each in news if each.suspends]
        brake.hold_or_let_go(job=job, licence_ids=suspended, by=by, now=now)
    for each in news:
        if dry_run or set_billing_status(
            licence_id=each.licence.pk,
            status=each.status,
            grace_until=each.grace_until,
            reason=each.reason,
            by=by,
            now=now,
        ):
            report.changed[each.status] += 1
    if not dry_run:
        brake.end(job=job, now=now)
    return report


def _named(names: list[str]) -> str:
    shown = ", ".join(sorted(names)[:NAMES_SHOWN])
    return f"{len(names)} ({shown}{', …' if len(names) > NAMES_SHOWN else ''})"
