"""People to be, made by the rules that make them."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import count
from uuid import UUID, uuid4

from accounts.audit import Actor
from accounts.models import User
from licensing.licences import create_client, set_operator_status
from licensing.models import Licence, Plan, Standing
from tests.served.database import Database

PASSWORD = "correct horse battery staple"
BY = Actor(name="operator@served.test")
NO_CAPS: Mapping[str, int] = {}
_numbers = count(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Person:
    """Somebody with a client, a licence and a plan of their own."""

    id: UUID
    email: str
    password: str
    client_id: UUID
    licence_id: int


def add_person(
    database: Database,
    caps: Mapping[str, int] = NO_CAPS,
    *,
    user_id: UUID | None = None,
    email: str = "",
) -> Person:
    """A person who can sign in. Caps in tokens by ``monthly_input``, ``monthly_output`` and ``daily``."""
    number, now = next(_numbers), datetime.now(UTC)
    with database.rows():
        plan = Plan.objects.create(
            name=f"Plan {number}",
            entitlements=["notes"],
            allows_keys=True,
            **{f"{name}_tokens": cap for name, cap in caps.items()},
        )
        client = create_client(name=f"Client {number}", plan=plan, by=BY, now=now)
        user = User.objects.create_user(
            email or f"person-{number}@served.test", PASSWORD, id=user_id or uuid4(), client=client
        )
        licence = Licence.objects.get(client=client)
    return Person(
        id=user.pk,
        email=user.email,
        password=PASSWORD,
        client_id=client.pk,
        licence_id=licence.pk,
    )


def suspend(database: Database, person: Person) -> None:
    """An operator's word on the person's licence."""
    with database.rows():
        set_operator_status(
            licence_id=person.licence_id,
            status=Standing.SUSPENDED,
            reason="The test says so.",
            by=BY,
            now=datetime.now(UTC),
        )
