"""Holds a run that would suspend many clients at once: that is more likely a fault than so many debtors."""

from collections.abc import Collection
from datetime import datetime, timedelta

from django.db import transaction

from accounts.audit import Actor, record
from accounts.jobs import NotDone
from config.api.problems import Fault, InvalidRequest, instant
from config.jobs.mail import queue_for_operators
from licensing.models import Brake, Licence

# More than so many, and more than one in so many of all clients.
CLIENTS = 10
ONE_IN = 20
# A confirmation is about what is known now; after this the run has to ask again.
CONFIRMED_FOR = timedelta(days=3)
PAGE = "/admin/licensing/brake/"
NOT_HELD = Fault(
    "", "not_held", "These suspensions no longer wait; see the list for those that do."
)


class BrakeHeld(NotDone):
    """Nothing was changed; an operator has to confirm."""


def limit(clients: int) -> int:
    """How many of so many clients a run may suspend without confirmation."""
    return max(CLIENTS, clients // ONE_IN)


def too_many(*, job: str, licence_ids: Collection[int], now: datetime) -> bool:
    """Whether these suspensions need confirmation: they are many, and no operator has confirmed them."""
    brake = Brake.objects.filter(job=job, ended_at=None).first()
    asking = set(licence_ids) - _confirmed(brake, now=now)
    return len(asking) > limit(Licence.objects.count())


def hold_or_let_go(*, job: str, licence_ids: Collection[int], by: Actor, now: datetime) -> None:
    """Lets a run suspend these, unless they are too many that no operator has confirmed: ``BrakeHeld``."""
    with transaction.atomic():
        # Locked, so that nobody confirms what is being replaced.
        brake = Brake.objects.select_for_update().filter(job=job, ended_at=None).first()
        if not too_many(job=job, licence_ids=licence_ids, now=now):
            if brake is not None and brake.is_held:
                # It needs no confirmation any more, whatever else the run may leave undone.
                end(job=job, now=now)
            return
        held = _held(brake, job, sorted(licence_ids), by=by, now=now)
    raise BrakeHeld(
        f"{len(held.licence_ids)} of {held.clients} clients would be suspended, so nothing was changed; "
        "an operator has to confirm it."
    )


def end(*, job: str, now: datetime) -> None:
    """Ends the hold of a job, whose run has gone through."""
    Brake.objects.filter(job=job, ended_at=None).update(ended_at=now)


def confirm(*, brake_id: int, reason: str, by: Actor, now: datetime) -> Brake:
    """An operator's leave to suspend exactly these; the next run does it.

    Raises ``InvalidRequest`` without a reason, and where it is not asked any more: others may be meant by now.
    """
    if not reason.strip():
        raise InvalidRequest(errors=[Fault("/reason", "required", "Say why.")])
    with transaction.atomic():
        brake = Brake.objects.select_for_update().get(pk=brake_id)
        if not brake.is_held:
            raise InvalidRequest(errors=[NOT_HELD])
        brake.confirmed_at, brake.confirmed_by = now, by.name
        brake.save(update_fields=["confirmed_at", "confirmed_by"])
        record(
            "brake:confirmed",
            by=by,
            now=now,
            target=brake.job,
            target_id=brake.pk,
            reason=reason,
            after={"licences": len(brake.licence_ids)},
        )
    return brake


def _confirmed(brake: Brake | None, *, now: datetime) -> set[int]:
    if brake is None or brake.confirmed_at is None or brake.confirmed_at < now - CONFIRMED_FOR:
        return set()
    return set(brake.licence_ids)


def _held(
    brake: Brake | None, job: str, licence_ids: list[int], *, by: Actor, now: datetime
) -> Brake:
    """The brake for these. For others than before it is another one, and operators are told of it: whoever still
    looks at the page of the old one must not confirm what they have not seen.
    """
    if brake is not None and brake.is_held and brake.licence_ids == licence_ids:
        return brake
    end(job=job, now=now)
    clients = Licence.objects.count()
    brake = Brake.objects.create(job=job, licence_ids=licence_ids, clients=clients, noticed_at=now)
    record(
        "brake:held",
        by=by,
        now=now,
        target=job,
        target_id=brake.pk,
        after={"licences": len(licence_ids), "clients": clients},
    )
    queue_for_operators(
        subject=f"{len(licence_ids)} suspensions wait for you",
        text=(
            f"{job} would suspend {len(licence_ids)} of {clients} clients, which is more than it may by itself.\n"
            f"So it has changed nothing, at {instant(now)}, and changes nothing until you confirm.\n\n"
            "If so many have really not paid, confirm it, and the next run suspends them. If not, something is "
            "wrong between here and the payment processor: a key of another account, or customers that moved."
        ),
        path=f"{PAGE}{brake.pk}/change/",
    )
    return brake
