"""People to be, made by the rules that make them."""

from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import count
from uuid import UUID, uuid4

from accounts.audit import Actor
from accounts.models import User
from licensing.licences import create_client
from licensing.models import Licence, Plan
from tests.served.database import Database

PASSWORD = "correct horse battery staple"
BY = Actor(name="operator@served.test")
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
    *,
    user_id: UUID | None = None,
    email: str = "",
    monthly_input: int | None = None,
    monthly_output: int | None = None,
    daily: int | None = None,
) -> Person:
    """A person who can sign in. Caps in tokens; None is no cap (for ``daily``: as the plan's rule has it)."""
    number, now = next(_numbers), datetime.now(UTC)
    with database.rows():
        plan = Plan.objects.create(
            name=f"Plan {number}",
            entitlements=["notes"],
            monthly_input_tokens=monthly_input,
            monthly_output_tokens=monthly_output,
            daily_tokens=daily,
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
