"""Holds a run that would suspend implausibly many clients at once, until an operator confirms it."""

from collections.abc import Collection
from datetime import datetime, timedelta

from django.db import transaction

from accounts.audit import Actor, check_reason, record
from accounts.jobs import NotDone
from config.platform.jobs.mail import queue_for_operators
from config.platform.problems.problem import Fault, InvalidRequest, instant
from licensing.models import HeldSuspension, Licence

# A run may suspend this number of clients, or one in ``ONE_IN`` of all clients if that is more.
CLIENTS = 10
ONE_IN = 20
# After this time a confirmation no longer applies.
CONFIRMED_FOR = timedelta(days=3)
PAGE = "/admin/licensing/heldsuspension/"
NOT_HELD = Fault(
    "", "not_held", "These suspensions are no longer pending; see the list for pending ones."
)


class SuspensionsHeld(NotDone):
    """A run that changed nothing and needs the confirmation of an operator."""


def limit(clients: int) -> int:
    """The number of clients that a run may suspend without confirmation."""
    return max(CLIENTS, clients // ONE_IN)


def exceeds_limit(*, job: str, licence_ids: Collection[int], now: datetime) -> bool:
    """Returns whether the unconfirmed ones of these suspensions exceed the limit."""
    held = HeldSuspension.objects.filter(job=job, ended_at=None).first()
    unconfirmed = set(licence_ids) - _confirmed(held, now=now)
    return len(unconfirmed) > limit(Licence.objects.count())


def check(*, job: str, licence_ids: Collection[int], by: Actor, now: datetime) -> None:
    """Raises ``SuspensionsHeld`` if these suspensions are too many without a confirmation."""
    with transaction.atomic():
        # Locked, so that nobody confirms suspensions that are being replaced.
        held = HeldSuspension.objects.select_for_update().filter(job=job, ended_at=None).first()
        if not exceeds_limit(job=job, licence_ids=licence_ids, now=now):
            if held is not None and held.is_held:
                # A confirmation is no longer needed.
                end(job=job, now=now)
            return
        held = _hold(held, job, sorted(licence_ids), by=by, now=now)
    raise SuspensionsHeld(
        f"{len(held.licence_ids)} of {held.clients} clients would be suspended, so nothing was changed; "
        "an operator has to confirm it."
    )


def end(*, job: str, now: datetime) -> None:
    """Ends the held suspensions of a job after a complete run."""
    HeldSuspension.objects.filter(job=job, ended_at=None).update(ended_at=now)


def confirm(*, held_id: int, reason: str, by: Actor, now: datetime) -> HeldSuspension:
    """Confirms exactly these suspensions, which the next run carries out.

    Raises ``InvalidRequest`` without a reason, and for suspensions that are no longer held.
    """
    check_reason(reason)
    with transaction.atomic():
        held = HeldSuspension.objects.select_for_update().get(pk=held_id)
        if not held.is_held:
            raise InvalidRequest(errors=[NOT_HELD])
        held.confirmed_at, held.confirmed_by = now, by.name
        held.save(update_fields=["confirmed_at", "confirmed_by"])
        after = {"licences": len(held.licence_ids)}
        record(
            "brake:confirmed",
            held.job,
            by=by,
            now=now,
            target_id=held.pk,
            reason=reason,
            after=after,
        )
    return held


def _confirmed(held: HeldSuspension | None, *, now: datetime) -> set[int]:
    if held is None or held.confirmed_at is None or held.confirmed_at < now - CONFIRMED_FOR:
        return set()
    return set(held.licence_ids)


def _hold(
    held: HeldSuspension | None, job: str, licence_ids: list[int], *, by: Actor, now: datetime
) -> HeldSuspension:
    """Returns the held suspensions of these licences. Other licences than before get a new row and a new mail to
    operators, so that nobody confirms suspensions that their page does not show.
    """
    if held is not None and held.is_held and held.licence_ids == licence_ids:
        return held
    end(job=job, now=now)
    clients = Licence.objects.count()
    held = HeldSuspension.objects.create(
        job=job, licence_ids=licence_ids, clients=clients, noticed_at=now
    )
    after = {"licences": len(licence_ids), "clients": clients}
    record("brake:held", job, by=by, now=now, target_id=held.pk, after=after)
    queue_for_operators(
        subject=f"{len(licence_ids)} suspensions wait for your confirmation",
        text=(
            f"{job} would suspend {len(licence_ids)} of {clients} clients, which is more than it may without "
            f"confirmation.\nIt changed nothing at {instant(now)} and changes nothing until you confirm.\n\n"
            "If these clients have really not paid, confirm, and the next run suspends them. If not, check the "
            "payment processor: the key may belong to another account, or the customers may have moved."
        ),
        path=f"{PAGE}{held.pk}/change/",
    )
    return held
