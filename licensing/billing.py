"""Sets the billing status of licences: from subscriptions once a night, and from the clock once a grace is over.

Operators' decisions take precedence and are never changed here. A customer who would be suspended is queried once more
right before, because they may have paid since.
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from django.conf import settings

from accounts.audit import Actor
from accounts.jobs import NotDone
from licensing import suspension_guard
from licensing.billing_decisions import (
    GRACE_EXPIRED,
    PAUSED,
    BillingDecision,
    best,
    decision_after_grace,
    decision_of_status,
    suspension,
)
from licensing.customer_queries import CustomerQueries
from licensing.licences import end_operator_grace, set_billing_status
from licensing.models import Licence, Standing

SYNC = "sync_subscriptions"
EXPIRE = "expire_grace"
# Each minute, apart from billing's, so that the guard holds neither for the other.
EXPIRE_OPERATORS = "expire_operator_grace"
NAMES_SHOWN = 5


class NoCustomerKnown(NotDone):
    """Stripe answers, but about others than our customers."""


class SyncIncomplete(NotDone):
    """Some customers' payments are not known. All others are done; the next run queries them again."""


@dataclass(slots=True)
class Report:
    """The changes of a run, made or planned, and the clients whose status is unknown."""

    dry_run: bool = False
    changed: Counter[str] = field(default_factory=Counter)
    unknown: list[str] = field(default_factory=list)
    without_subscription: list[str] = field(default_factory=list)
    paused: list[str] = field(default_factory=list)
    without_customer: int = 0
    unanswered: list[str] = field(default_factory=list)
    not_asked: list[str] = field(default_factory=list)
    held: str = ""

    @property
    def is_incomplete(self) -> bool:
        """Returns whether the next run has to query anybody again."""
        return bool(self.unanswered or self.not_asked)

    def skip(self, licence: Licence, statuses: Collection[str]) -> None:
        """Notes a licence without a subscription, or without one that is understood."""
        names = self.unknown if statuses else self.without_subscription
        names.append(licence.client.name)

    def __str__(self) -> str:
        changes = ", ".join(f"{number} {status}" for status, number in sorted(self.changed.items()))
        did = "would change" if self.dry_run else "changed"
        nothing = "nothing would change" if self.dry_run else "nothing changed"
        notes = {
            "with a status that is not known here": _named(self.unknown),
            "with payments paused at Stripe": _named(self.paused),
            "without a subscription": _named(self.without_subscription),
            "without a customer": self.without_customer,
            "but held for confirmation": self.held,
            "left for the next night, without an answer": _named(self.unanswered),
            "left for the next night, not asked about": _named(self.not_asked),
        }
        parts = [f"{did}: {changes}" if changes else nothing]
        return "; ".join(parts + [f"{note}: {value}" for note, value in notes.items() if value])


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run of a job. ``decide``: what a status of Stripe's means for a licence in this job."""

    job: str
    decide: Callable[[Licence, str, datetime], BillingDecision]
    queries: CustomerQueries | None
    by: Actor
    now: datetime
    report: Report

    @property
    def dry_run(self) -> bool:
        return self.report.dry_run

    def check_guard(self, suspended: Collection[int]) -> None:
        """Raises ``SuspensionsHeld`` where these are too many to suspend; a dry run only reports it."""
        if not self.dry_run:
            suspension_guard.check(job=self.job, licence_ids=suspended, by=self.by, now=self.now)
        elif suspension_guard.exceeds_limit(job=self.job, licence_ids=suspended, now=self.now):
            self.report.held = f"{len(suspended)} would be suspended"

    def apply(self, decisions: list[BillingDecision]) -> None:
        """Applies changes that allow work first, so that no later failure locks anybody out."""
        for each in sorted(decisions, key=lambda it: (it.suspends_billing, it.suspends_client)):
            decision = self._confirmed(each) if each.suspends_billing else each
            if decision is None or not decision.changes_licence:
                continue
            if self.dry_run or set_billing_status(
                known=decision.licence,
                status=decision.status,
                grace_until=decision.grace_until,
                reason=decision.reason,
                by=self.by,
                now=self.now,
            ):
                self.report.changed[decision.status] += 1

    def _confirmed(self, decision: BillingDecision) -> BillingDecision | None:
        """The decision by the customer's status now; None if that is not known, which suspends nobody."""
        customer = decision.licence.stripe_customer_id
        if self.queries is None or not customer or self.report.held:
            return decision
        if self.queries.given_up:
            self.report.not_asked.append(decision.licence.client.name)
            return None
        statuses = self.queries.statuses_of(customer)
        if statuses is None:
            self.report.unanswered.append(decision.licence.client.name)
            return None
        if (status := best(statuses)) is None:
            self.report.skip(decision.licence, statuses)
            return None
        return self.decide(decision.licence, status, self.now)

    def end(self) -> Report:
        """Returns a summary of the run. Raises ``SyncIncomplete`` where it could not finish."""
        if self.queries and self.report.is_incomplete:
            # The confirmation stays open: the next run does the rest by it.
            raise SyncIncomplete(f"{self.report}. {self.queries.why}")
        if not self.dry_run:
            suspension_guard.end(job=self.job, now=self.now)
        return self.report


def sync(
    *,
    subscriptions: Mapping[str, Collection[str]],
    queries: CustomerQueries | None = None,
    by: Actor,
    now: datetime,
    dry_run: bool = False,
) -> Report:
    """Takes over the processor's statuses of each customer. ``subscriptions``: statuses by customer.

    Raises ``SuspensionsHeld`` where too many would be suspended, ``NoCustomerKnown`` where the answer is about others,
    and, once all others are done, ``SyncIncomplete`` where a second query of some failed. Killed half way, the next
    run does the rest.
    """
    report = Report(dry_run=dry_run)
    run = Run(job=SYNC, decide=decision_of_status, queries=queries, by=by, now=now, report=report)
    decisions = _changes(run, subscriptions)
    run.check_guard([each.licence.pk for each in decisions if each.suspends_client])
    run.apply(decisions)
    return run.end()


def expire_grace(
    *, queries: CustomerQueries | None = None, by: Actor, now: datetime, dry_run: bool = False
) -> Report:
    """Graces that have run out become suspensions, by whom they were given: billing or an operator.

    A client who has paid since is active instead. Raises ``SuspensionsHeld`` where too many would be suspended, and
    ``SyncIncomplete`` as ``sync`` does: a grace goes on while its payment is not known.
    """
    report = Report(dry_run=dry_run)
    run = Run(
        job=EXPIRE, decide=decision_after_grace, queries=queries, by=by, now=now, report=report
    )
    licences = Licence.objects.select_related("client", "plan")
    over = licences.filter(billing_status=Standing.GRACE, billing_grace_until__lte=now)
    decisions = [suspension(each, GRACE_EXPIRED) for each in over]
    run.check_guard({each.licence.pk for each in decisions if each.suspends_client})
    run.apply(decisions)
    run.end()
    if ended := end_operator_graces(by=by, now=now, dry_run=dry_run):
        report.changed[Standing.SUSPENDED] += ended
    return report


def end_operator_graces(*, by: Actor, now: datetime, dry_run: bool = False) -> int:
    """Operators' graces that have run out become operators' suspensions; returns their number.

    Raises ``SuspensionsHeld`` where too many would be suspended.
    """
    over = [each.pk for each in Licence.objects.graces_of_operators_over(at=now)]
    if dry_run:
        return len(over)
    suspension_guard.check(job=EXPIRE_OPERATORS, licence_ids=over, by=by, now=now)
    ended = sum(
        end_operator_grace(licence_id=pk, reason=GRACE_EXPIRED, by=by, now=now) for pk in over
    )
    suspension_guard.end(job=EXPIRE_OPERATORS, now=now)
    return ended


def _changes(run: Run, subscriptions: Mapping[str, Collection[str]]) -> list[BillingDecision]:
    """The decisions that change a licence, of customers whose subscriptions are understood."""
    decisions, customers = [], 0
    for licence in Licence.objects.select_related("client", "plan").iterator():
        if not licence.stripe_customer_id:
            run.report.without_customer += 1
            continue
        customers += 1
        statuses = subscriptions.get(licence.stripe_customer_id, ())
        if (status := best(statuses)) is None:
            run.report.skip(licence, statuses)
            continue
        if status == PAUSED:
            run.report.paused.append(licence.client.name)
        decisions.append(run.decide(licence, status, run.now))
    if customers > 1 and len(run.report.without_subscription) == customers:
        raise NoCustomerKnown(
            f"Stripe has no subscription for any of {customers} customers, so nothing was changed; "
            f"STRIPE_API_KEY may belong to another account or to its test mode{_other_products()}."
        )
    return [each for each in decisions if each.changes_licence]


def _other_products() -> str:
    return ", or STRIPE_PRODUCTS may name other products" if settings.STRIPE_PRODUCTS else ""


def _named(names: list[str]) -> str:
    """The number of clients and their first names; "" for none."""
    shown = ", ".join(sorted(names)[:NAMES_SHOWN])
    return f"{len(names)} ({shown}{', …' if len(names) > NAMES_SHOWN else ''})" if names else ""
