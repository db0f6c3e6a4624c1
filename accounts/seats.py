"""Seats: how many people of a client may be enabled, by its licence; invited ones count too.

One rule at every door by which somebody becomes an enabled person of a client, under the client's lock.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import NamedTuple
from uuid import UUID

from django.db import transaction

from accounts.audit import Actor, record
from accounts.hooks import extensions
from accounts.models import AuditEvent, Client, User
from config.platform.problems.problem import Problem

REFUSED = "client:seat_refused"
# Operators hear of the first refusal at a client within this time.
REFUSAL_SHOWN = timedelta(days=1)


class SeatsExhausted(Problem):
    code = "seats_exhausted"
    status = 409
    title = "No free seat"
    default_detail = "The licence has no free seat."


class Seats(NamedTuple):
    """The seats of a client with a limit, and how many are taken: more than there are, once they were lowered."""

    limit: int
    used: int

    def __str__(self) -> str:
        return f"{self.used:,} of {self.limit:,}"

    @property
    def free(self) -> int:
        return max(self.limit - self.used, 0)

    @property
    def over(self) -> int:
        return max(self.used - self.limit, 0)

    def without(self, number: int) -> str:
        """The sentence that seats do not suffice for a number of people; "" where they do."""
        short = number - self.free
        if number <= 0 or short <= 0:
            return ""
        needed = "1 more seat is" if short == 1 else f"{short:,} more seats are"
        return f"{self} seats are taken. {needed} needed: raise the number, or disable somebody."


@contextmanager
def within_seats(client: Client | None, *, by: Actor, now: datetime) -> Iterator[None]:
    """Makes a change of a client's people, and refuses one that enables more of them than it has seats.

    It is one transaction, under the client's lock, which comes before those of people. Raises ``SeatsExhausted``. A
    client that has more people than seats already may keep them, and gets no further one.
    """
    try:
        with transaction.atomic():
            if client is None:
                yield
                return
            _lock(client)
            seats = seats_of(client)
            yield
            if seats is not None:
                _check(seats, after=seats_used(client.pk))
    except SeatsExhausted as refused:
        if client is not None:
            # The change is undone by now.
            _record(refused, client, by=by, now=now)
        raise


def seats_of(client: Client) -> Seats | None:
    """Returns the seats of a client, None without a limit."""
    limit = extensions().seats_of(client.pk)
    return None if limit is None else Seats(limit, seats_used(client.pk))


def lacking(client: Client, *, number: int) -> str:
    """The sentence that a client's seats do not suffice for a number of new people; "" where they do."""
    seats = seats_of(client)
    return seats.without(number) if seats else ""


def seats_used(client_id: UUID) -> int:
    """The number of enabled people of a client, invited ones too."""
    return User.objects.filter(client=client_id, is_active=True, erased_at=None).count()


def _lock(client: Client) -> None:
    Client.objects.select_for_update(no_key=True).get(pk=client.pk)


def _check(seats: Seats, *, after: int) -> None:
    """Raises ``SeatsExhausted``."""
    if sentence := seats.without(after - seats.used):
        raise SeatsExhausted(sentence, seats=seats.limit, used=seats.used)


def _record(refused: SeatsExhausted, client: Client, *, by: Actor, now: datetime) -> None:
    """Writes the event of a refusal, unless there is one within a day of it: a full client is asked often."""
    with transaction.atomic():
        _lock(client)
        near = {"at__gt": now - REFUSAL_SHOWN, "at__lt": now + REFUSAL_SHOWN}
        events = AuditEvent.objects.filter(action=REFUSED, target_id=str(client.pk), **near)
        if not events.exists():
            record(REFUSED, client, by=by, now=now, after=refused.members)
