"""Holds a run that would suspend implausibly many clients at once, until an operator confirms it."""

from collections.abc import Collection
from datetime import datetime, timedelta

from django.db import transaction

from accounts.audit import Actor, check_reason, record
from accounts.jobs import NotDone
from config.platform.jobs.mail import queue_for_operators
from config.platform.problems.problem import Fault, InvalidRequest, instant
from licensing.models import Brake, Licence

# A run may suspend this number of clients, or one in ``ONE_IN`` of all clients if that is more.
CLIENTS = 10
ONE_IN = 20
# After this time a confirmation no longer applies.
CONFIRMED_FOR = timedelta(days=3)
PAGE = "/admin/licensing/brake/"
NOT_HELD = Fault(
    "", "not_held", "These suspensions are no longer pending; see the list for pending ones."
)


class BrakeHeld(NotDone):
    """A run that changed nothing and needs the confirmation of an operator."""


def limit(clients: int) -> int:
    """The number of clients that a run may suspend without confirmation."""
    return max(CLIENTS, clients // ONE_IN)


def exceeds_limit(*, job: str, licence_ids: Collection[int], now: datetime) -> bool:
    """Returns whether the unconfirmed ones of these suspensions exceed the limit."""
    brake = Brake.objects.filter(job=job, ended_at=None).first()
    unconfirmed = set(licence_ids) - _confirmed(brake, now=now)
    return len(unconfirmed) > limit(Licence.objects.count())


def check(*, job: str, licence_ids: Collection[int], by: Actor, now: datetime) -> None:
    """Raises ``BrakeHeld`` if these suspensions are too many without a confirmation."""
    with transaction.atomic():
        # Locked, so that nobody confirms a brake that is being replaced.
        brake = Brake.objects.select_for_update().filter(job=job, ended_at=None).first()
        if not exceeds_limit(job=job, licence_ids=licence_ids, now=now):
            if brake is not None and brake.is_held:
                # A confirmation is no longer needed.
                end(job=job, now=now)
            return
        held = _held(brake, job, sorted(licence_ids), by=by, now=now)
    raise BrakeHeld(
        f"{len(held.licence_ids)} of {held.clients} clients would be suspended, so nothing was changed; "
        "an operator has to confirm it."
    )


def end(*, job: str, now: datetime) -> None:
    """Ends the brake of a job after a complete run."""
    Brake.objects.filter(job=job, ended_at=None).update(ended_at=now)


def confirm(*, brake_id: int, reason: str, by: Actor, now: datetime) -> Brake:
    """Confirms exactly these suspensions, which the next run carries out.

    Raises ``InvalidRequest`` without a reason, and for a brake that is no longer held.
    """
    check_reason(reason)
    with transaction.atomic():
        brake = Brake.objects.select_for_update().get(pk=brake_id)
        if not brake.is_held:
            raise InvalidRequest(errors=[NOT_HELD])
        brake.confirmed_at, brake.confirmed_by = now, by.name
        brake.save(update_fields=["confirmed_at", "confirmed_by"])
        after = {"licences": len(brake.licence_ids)}
        record(
            "brake:confirmed",
            brake.job,
            by=by,
            now=now,
            target_id=brake.pk,
            reason=reason,
            after=after,
        )
    return brake


def _confirmed(brake: Brake | None, *, now: datetime) -> set[int]:
    if brake is None or brake.confirmed_at is None or brake.confirmed_at < now - CONFIRMED_FOR:
        return set()
    return set(brake.licence_ids)


def _held(
    brake: Brake | None, job: str, licence_ids: list[int], *, by: Actor, now: datetime
) -> Brake:
    """The brake for these licences. Other licences than before get a new brake and a new mail to operators, so that
    nobody confirms suspensions that their page does not show.
    """
    if brake is not None and brake.is_held and brake.licence_ids == licence_ids:
        return brake
    end(job=job, now=now)
    clients = Licence.objects.count()
    brake = Brake.objects.create(job=job, licence_ids=licence_ids, clients=clients, noticed_at=now)
    after = {"licences": len(licence_ids), "clients": clients}
    record("brake:held", job, by=by, now=now, target_id=brake.pk, after=after)
    queue_for_operators(
        subject=f"{len(licence_ids)} suspensions wait for your confirmation",
        text=(
            f"{job} would suspend {len(licence_ids)} of {clients} clients, which is more than it may without "
            f"confirmation.\nIt changed nothing at {instant(now)} and changes nothing until you confirm.\n\n"
            "If these clients have really not paid, confirm, and the next run suspends them. If not, check the "
            "payment processor: the key may be of another account, or the customers may have moved."
        ),
        path=f"{PAGE}{brake.pk}/change/",
    )
    return brake
