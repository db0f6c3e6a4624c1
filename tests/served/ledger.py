"""The ledger as it stands, read beside the service."""

from typing import Any
from uuid import UUID

from django.db.models import Q, Sum
from django.db.models.functions import Coalesce

from tests.served.database import Database
from tests.served.people import Person
from tests.waiting import eventually
from usage.models import MonthlyUsage, UsageRecord

# A machine may stand still for a while and have much to do after it.
DEADLINE = 60.0


def records_of(database: Database, person: Person) -> list[UsageRecord]:
    """Every call of a person, the oldest first."""
    with database.rows():
        return list(UsageRecord.objects.filter(user_id=person.id).order_by("opened_at", "id"))


def the_record(database: Database, person: Person, *, seconds: float = DEADLINE) -> UsageRecord:
    """The only call of a person, once it is settled."""

    def is_settled() -> bool:
        records = records_of(database, person)
        return bool(records) and all(record.end for record in records)

    eventually(is_settled, seconds=seconds)
    (record,) = records_of(database, person)
    return record


def sums(user_id: UUID) -> dict[str, int]:
    """Returns the sums of a person's records; call it inside ``rows()``."""
    is_open = Q(state=UsageRecord.State.OPEN)
    totals: dict[str, Any] = UsageRecord.objects.filter(user_id=user_id).aggregate(
        input_used=Sum(Coalesce("capped_input", "input_tokens"), filter=~is_open, default=0),
        output_used=Sum("output_tokens", filter=~is_open, default=0),
        input_reserved=Sum("reserved_input", filter=is_open, default=0),
        output_reserved=Sum("reserved_output", filter=is_open, default=0),
    )
    return totals


def counters(user_id: UUID) -> dict[str, int]:
    """The running totals of the only month of a person, day's columns included; call it inside ``rows()``."""
    month = MonthlyUsage.objects.get(user_id=user_id)
    names = ("input_used", "output_used", "input_reserved", "output_reserved")
    return {
        **{name: getattr(month, name) for name in names},
        "day_used": month.day_used,
        "day_reserved": month.day_reserved,
    }


def assert_nothing_is_reserved(database: Database, person: Person) -> None:
    """Every running total equals the sum of its records."""
    with database.rows():
        summed, counted = sums(person.id), counters(person.id)
    assert summed["input_reserved"] == summed["output_reserved"] == 0
    assert counted == {
        **summed,
        "day_used": summed["input_used"] + summed["output_used"],
        "day_reserved": 0,
    }
