"""What billing says of licences: from subscriptions once a night, and from the clock once a grace is over.

An operator's word counts before all of this and is never touched by it. Whoever would be suspended is asked about
once more right before, because they may have paid since.
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from django.conf import settings
from django.db.models import QuerySet

from accounts.audit import Actor
from accounts.jobs import NotDone
from licensing import suspension_guard
from licensing.asking import Again, Control, Questions
from licensing.licences import end_operator_grace, set_billing_status
from licensing.models import Licence, Standing

SYNC = "sync_subscriptions"
EXPIRE = "expire_grace"
ACTIVE = frozenset({"active", "trialing"})
DUE = frozenset({"past_due"})
# ``paused`` is among them because it can mean that nobody has paid.
SUSPENDED = frozenset({"unpaid", "incomplete", "incomplete_expired", "canceled", "paused"})
NAMES_SHOWN = 5
RUN_OUT = "The grace has run out."


class NobodyKnown(NotDone):
    """Stripe answers, but about others than our customers."""


class SomeLeft(NotDone):
    """Of some it could not be learnt whether they have paid. All others are done; the next run asks again."""


class Saying(NamedTuple):
    """What billing says of one licence from now on."""

    licence: Licence
    status: Standing
    grace_until: datetime | None
    reason: str

    @property
    def ends(self) -> bool:
        """Whether billing takes back its leave to work."""
        known = self.licence.billing_status
        return self.status == Standing.SUSPENDED and known != Standing.SUSPENDED

    @property
    def suspends(self) -> bool:
        """Whether people notice at once: an operator's word hides it for as long as it counts."""
        return self.ends and self.licence.operator_status is None

    @property
    def is_news(self) -> bool:
        known = (self.licence.billing_status, self.licence.billing_grace_until)
        return known != (self.status, self.grace_until)


@dataclass(slots=True)
class Report:
    """What a run changed, or would; and whom it left as they were because nothing is known of them."""

    dry_run: bool = False
    changed: Counter[str] = field(default_factory=Counter)
    unknown: list[str] = field(default_factory=list)
    without_subscription: list[str] = field(default_factory=list)
    without_customer: int = 0
    unanswered: list[str] = field(default_factory=list)
    not_asked: list[str] = field(default_factory=list)
    brake: str = ""

    @property
    def left(self) -> bool:
        """Whether anybody is left for the next run."""
        return bool(self.unanswered or self.not_asked)

    def leave(self, licence: Licence, statuses: Collection[str]) -> None:
        """Notes a licence of which Stripe says nothing, or nothing that is understood."""
        names = self.unknown if statuses else self.without_subscription
        names.append(licence.client.name)

    def __str__(self) -> str:
        changes = ", ".join(f"{number} {status}" for status, number in sorted(self.changed.items()))
        did = "would change" if self.dry_run else "changed"
        nothing = "nothing would change" if self.dry_run else "nothing changed"
        parts = [f"{did}: {changes}" if changes else nothing]
        if self.unknown:
            parts.append(f"with a status that is not known here: {_named(self.unknown)}")
        if self.without_subscription:
            parts.append(f"without a subscription: {_named(self.without_subscription)}")
        if self.without_customer:
            parts.append(f"without a customer: {self.without_customer}")
        if self.brake:
            parts.append(f"but the brake would hold: {self.brake}")
        if self.unanswered:
            parts.append(f"left for the next night, without an answer: {_named(self.unanswered)}")
        if self.not_asked:
            parts.append(f"left for the next night, not asked about: {_named(self.not_asked)}")
        return "; ".join(parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run of a job. ``says``: what a status of Stripe's means for a licence in this job."""

    job: str
    says: Callable[[Licence, str, datetime], Saying]
    questions: Questions | None
    by: Actor
    now: datetime
    report: Report

    @property
    def dry_run(self) -> bool:
        return self.report.dry_run

    def ask_leave(self, suspended: Collection[int]) -> None:
        """Raises ``BrakeHeld`` where these are too many to suspend; a dry run only says so."""
        if not self.dry_run:
            suspension_guard.hold_or_let_go(
                job=self.job, licence_ids=suspended, by=self.by, now=self.now
            )
        elif suspension_guard.too_many(job=self.job, licence_ids=suspended, now=self.now):
            self.report.brake = f"{len(suspended)} would be suspended"

    def apply(self, sayings: list[Saying]) -> None:
        """Those who may work again come first, so that nothing which goes wrong later keeps them out."""
        for each in sorted(sayings, key=lambda saying: (saying.ends, saying.suspends)):
            saying = self._asked_again(each) if each.ends else each
            if saying is None or not saying.is_news:
                continue
            if self.dry_run or set_billing_status(
                known=saying.licence,
                status=saying.status,
                grace_until=saying.grace_until,
                reason=saying.reason,
                by=self.by,
                now=self.now,
            ):
                self.report.changed[saying.status] += 1

    def _asked_again(self, saying: Saying) -> Saying | None:
        """The same of what Stripe says now; None where that is nothing, which suspends nobody."""
        customer = saying.licence.stripe_customer_id
        if self.questions is None or not customer or self.report.brake:
            return saying
        if self.questions.given_up:
            self.report.not_asked.append(saying.licence.client.name)
            return None
        statuses = self.questions.statuses_of(customer)
        if statuses is None:
            self.report.unanswered.append(saying.licence.client.name)
            return None
        if (status := best(statuses)) is None:
            self.report.leave(saying.licence, statuses)
            return None
        return self.says(saying.licence, status, self.now)

    def end(self) -> Report:
        """What the run did. Raises ``SomeLeft`` where it could not do all of it."""
        if self.questions and self.report.left:
            # What was confirmed is not settled: the next run is to do the rest by it.
            raise SomeLeft(f"{self.report}. {self.questions.why}")
        if not self.dry_run:
            suspension_guard.end(job=self.job, now=self.now)
        return self.report


def best(statuses: Collection[str]) -> str | None:
    """The status of a customer with several subscriptions: the best that is known. None if none is."""
    if paid := sorted(ACTIVE.intersection(statuses)):
        return paid[0]
    # A subscription we do not understand may be the good one, so nobody suffers beside it.
    if set(statuses) - DUE - SUSPENDED:
        return None
    return next((each for group in (DUE, SUSPENDED) for each in sorted(group & {*statuses})), None)


def sync(
    *,
    subscriptions: Mapping[str, Collection[str]],
    again: Again | None = None,
    control: Control | None = None,
    by: Actor,
    now: datetime,
    dry_run: bool = False,
) -> Report:
    """Takes over what the processor says of each customer. ``subscriptions``: statuses by customer.

    Raises ``BrakeHeld`` where too many would be suspended, ``NobodyKnown`` where the answer is about others, and,
    once all others are done, ``SomeLeft`` where it could not be asked about some again. Killed half way, the next
    run does the rest.
    """
    questions = Questions(again, control) if again else None
    run = _run(SYNC, _of_status, questions=questions, by=by, now=now, dry_run=dry_run)
    sayings = _sayings(run, subscriptions)
    run.ask_leave([each.licence.pk for each in sayings if each.suspends])
    run.apply(sayings)
    return run.end()


def expire_grace(
    *,
    again: Again | None = None,
    control: Control | None = None,
    by: Actor,
    now: datetime,
    dry_run: bool = False,
) -> Report:
    """Graces that have run out become suspensions, on the axis on which they were given.

    Who has paid since is active instead. Raises ``BrakeHeld`` where too many would be suspended, and ``SomeLeft``
    as ``sync`` does: a grace goes on while nobody can say whether it was paid.
    """
    questions = Questions(again, control) if again else None
    run = _run(EXPIRE, _of_grace, questions=questions, by=by, now=now, dry_run=dry_run)
    licences = Licence.objects.select_related("client", "plan")
    over = licences.filter(billing_status=Standing.GRACE, billing_grace_until__lte=now)
    sayings = [_suspended(each, RUN_OUT) for each in over]
    words = licences.graces_of_operators_over(at=now)
    suspended = {each.licence.pk for each in sayings if each.suspends}
    run.ask_leave(suspended.union(words.values_list("pk", flat=True)))
    _end_words(run, words)
    run.apply(sayings)
    return run.end()


def _run(
    job: str,
    says: Callable[[Licence, str, datetime], Saying],
    *,
    questions: Questions | None,
    by: Actor,
    now: datetime,
    dry_run: bool,
) -> Run:
    return Run(
        job=job, says=says, questions=questions, by=by, now=now, report=Report(dry_run=dry_run)
    )


def _sayings(run: Run, subscriptions: Mapping[str, Collection[str]]) -> list[Saying]:
    """What is news, of licences with a customer whose subscriptions are understood."""
    sayings, customers = [], 0
    for licence in Licence.objects.select_related("client", "plan").iterator():
        if not licence.stripe_customer_id:
            run.report.without_customer += 1
            continue
        customers += 1
        statuses = subscriptions.get(licence.stripe_customer_id, ())
        if (status := best(statuses)) is None:
            run.report.leave(licence, statuses)
        else:
            sayings.append(_of_status(licence, status, run.now))
    if customers > 1 and len(run.report.without_subscription) == customers:
        raise NobodyKnown(
            f"Stripe knows a subscription of none of {customers} customers, so nothing was changed; "
            "STRIPE_API_KEY may be of another account or of its test mode."
        )
    return [each for each in sayings if each.is_news]


def _end_words(run: Run, words: QuerySet[Licence]) -> None:
    for licence in words:
        if run.dry_run or end_operator_grace(
            licence_id=licence.pk, reason=RUN_OUT, by=run.by, now=run.now
        ):
            run.report.changed[Standing.SUSPENDED] += 1


def _of_status(licence: Licence, status: str, now: datetime) -> Saying:
    """A grace runs from the first time that payment was seen to be due, and is given once."""
    reason = f"Stripe says {status}."
    if status in ACTIVE:
        return Saying(licence, Standing.ACTIVE, None, reason)
    until = licence.billing_grace_until
    if status in DUE:
        # In UTC, where every day has 24 hours.
        until = until or now.astimezone(UTC) + timedelta(days=settings.GRACE_DAYS)
        over = until <= now and licence.billing_status == Standing.SUSPENDED
        return Saying(licence, Standing.SUSPENDED if over else Standing.GRACE, until, reason)
    return _suspended(licence, reason)


def _of_grace(licence: Licence, status: str, now: datetime) -> Saying:
    """A grace that has run out ends in a suspension, whatever the debt is called; only a payment saves it."""
    return _of_status(licence, status, now) if status in ACTIVE else _suspended(licence, RUN_OUT)


def _suspended(licence: Licence, reason: str) -> Saying:
    """The end of a grace is kept, so that the same debt earns no second one."""
    return Saying(licence, Standing.SUSPENDED, licence.billing_grace_until, reason)


def _named(names: list[str]) -> str:
    shown = ", ".join(sorted(names)[:NAMES_SHOWN])
    return f"{len(names)} ({shown}{', …' if len(names) > NAMES_SHOWN else ''})"
