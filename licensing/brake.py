"""A brake for runs that suspend by themselves: many at once are more likely a fault than so many debtors."""

from collections.abc import Collection
from datetime import datetime, timedelta

from django.db import transaction

from accounts.audit import Actor, record
from accounts.jobs import NotDone
from config.mail import queue_for_operators
from config.problems import instant
from licensing.models import Brake, Licence

# More than so many, and more than this share of all clients.
CLIENTS = 10
SHARE = 0.05
# A confirmation is about what is known now; after this the run has to ask again.
CONFIRMED_FOR = timedelta(days=3)
PAGE = "/admin/licensing/brake/"


class BrakeHeld(NotDone):
    """Nothing was changed; an operator has to look."""


def limit(clients: int) -> int:
    """How many of so many clients a run may suspend without asking."""
    return max(CLIENTS, int(clients * SHARE))


def hold_or_let_go(*, job: str, licence_ids: Collection[int], by: Actor, now: datetime) -> None:
    """Lets a run suspend these, unless they are too many that no operator has confirmed: ``BrakeHeld``."""
    held = None
    with transaction.atomic():
        brake = Brake.objects.select_for_update().filter(job=job, ended_at=None).first()
        clients = Licence.objects.count()
        asking = set(licence_ids) - _confirmed(brake, now=now)
        if len(asking) > limit(clients):
            held = _held(brake, job, sorted(licence_ids), clients=clients, by=by, now=now)
    if held is not None:
        raise BrakeHeld(
            f"{len(held.licence_ids)} of {held.clients} clients would be suspended, so nothing was changed; "
            "an operator has to confirm it."
        )


def end(*, job: str, now: datetime) -> None:
    """A run has gone through; what was asked about it is settled."""
    Brake.objects.filter(job=job, ended_at=None).update(ended_at=now)


def confirm(*, brake_id: int, reason: str, by: Actor, now: datetime) -> Brake:
    """An operator's leave to suspend exactly these; the next run does it."""
    with transaction.atomic():
        brake = Brake.objects.select_for_update().get(pk=brake_id)
        if brake.is_held:
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
    brake: Brake | None, job: str, licence_ids: list[int], *, clients: int, by: Actor, now: datetime
) -> Brake:
    """The brake for these; operators are told whenever it is about others than before."""
    if brake is not None and brake.is_held and brake.licence_ids == licence_ids:
        return brake
    if brake is None:
        brake = Brake(job=job)
    brake.licence_ids, brake.clients, brake.noticed_at = licence_ids, clients, now
    brake.confirmed_at, brake.confirmed_by = None, ""
    brake.save()
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
