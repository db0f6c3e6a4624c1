"""Seats: how many people of a client may be enabled, by its licence; invited ones count too.

One rule at every door by which somebody becomes an enabled person of a client, under the client's lock.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from uuid import UUID

from django.core.cache import cache

from accounts.hooks import extensions
from accounts.models import Client, User
from config.platform.problems.problem import Problem

REFUSAL_SHOWN_SECONDS = 24 * 3600
# Set where any client was refused a seat within a day, so that a look without one costs no query.
ANY_REFUSED = "seats-refused"


class SeatsExhausted(Problem):
    code = "seats_exhausted"
    status = 409
    title = "No seat free"
    default_detail = "The licence has no free seat."


@contextmanager
def within_seats(client: Client | None, *, now: datetime) -> Iterator[None]:
    """Locks a client, and refuses a change of its people that enables more of them than it has seats.

    Raises ``SeatsExhausted``. A client that has more people than seats already may keep them, and gets no further one.
    Needs a transaction, and comes before the locks of people.
    """
    if client is None:
        yield
        return
    Client.objects.select_for_update(no_key=True).filter(pk=client.pk).first()
    seats = extensions().seats_of(client.pk)
    before = seats_used(client.pk) if seats is not None else 0
    yield
    if seats is None:
        return
    after = seats_used(client.pk)
    if after > max(seats, before):
        # Outside of the transaction, which is about to be rolled back.
        cache.set(ANY_REFUSED, 1, REFUSAL_SHOWN_SECONDS)
        cache.add(_key(client.pk), int(now.timestamp()), REFUSAL_SHOWN_SECONDS)
        wanted = f"{after - before} more people are" if after - before > 1 else "One more person is"
        detail = f"{before} of {seats} seats are taken. {wanted} too many; disable somebody or raise the seats."
        raise SeatsExhausted(detail, seats=seats, used=before)


def seats_used(client_id: UUID) -> int:
    """The number of enabled people of a client, invited ones too."""
    return User.objects.filter(client=client_id, is_active=True, erased_at=None).count()


def has_refused() -> bool:
    """Returns whether any client was refused a seat within a day."""
    return cache.get(ANY_REFUSED) is not None


def refused_since(client_ids: list[UUID]) -> dict[UUID, datetime]:
    """The clients among these that were refused a seat within a day, and the first time."""
    keys = {_key(each): each for each in client_ids}
    found = cache.get_many(keys).items()
    return {keys[key]: datetime.fromtimestamp(at, UTC) for key, at in found}


def _key(client_id: UUID) -> str:
    return f"seats-refused:{client_id}"
