"""People who call: their rows made in bulk, their tokens signed here, so that thousands are ready in seconds."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import count
from uuid import UUID

from django.contrib.auth.hashers import make_password

from accounts.audit import Actor
from accounts.models import Session, User
from accounts.sessions.access_tokens import AccessToken
from licensing.callers import claims_of
from licensing.licences import create_client
from licensing.models import Plan
from tests.served.database import Database

PASSWORD = "correct horse battery staple"
# High enough for any run; being there is what costs.
CAPS: Mapping[str, int] = {
    "monthly_input": 10**12,
    "monthly_output": 10**12,
    "daily": 10**12,
}
PEOPLE_A_CLIENT = 10
BY = Actor(name="operator@bench.test")
_numbers = count(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """A person with a session; ``access`` is a token of an hour that every service of the stage takes."""

    id: UUID
    email: str
    password: str
    client_id: UUID
    session_id: UUID
    access: str


def make_callers(
    database: Database, number: int, *, caps: Mapping[str, int] = CAPS
) -> list[Caller]:
    """So many people, ten a client, on one plan with these caps (empty: none)."""
    now, run = datetime.now(UTC), next(_numbers)
    limits = {f"{name}_tokens": cap for name, cap in caps.items()}
    with database.rows():
        plan = Plan.objects.create(name=f"Bench {run}", entitlements=["notes"], **limits)
        hashed = make_password(PASSWORD)
        users: list[User] = []
        while len(users) < number:
            client = create_client(name=f"Bench {run}-{len(users)}", plan=plan, by=BY, now=now)
            users += [
                User(
                    email=f"bench-{run}-{len(users) + each}@bench.test",
                    password=hashed,
                    client=client,
                )
                for each in range(min(PEOPLE_A_CLIENT, number - len(users)))
            ]
        User.objects.bulk_create(users)
        sessions = Session.objects.bulk_create(
            Session(user=user, started_at=now, last_used_at=now) for user in users
        )
        return [_caller(user, session, now) for user, session in zip(users, sessions, strict=True)]


def _caller(user: User, session: Session, now: datetime) -> Caller:
    claims = claims_of(user.pk)
    assert claims is not None
    assert user.client_id is not None
    token = AccessToken.issue(
        user_id=user.pk, session_id=session.pk, epoch=user.epoch, claims=claims, now=now
    )
    return Caller(
        id=user.pk,
        email=user.email,
        password=PASSWORD,
        client_id=user.client_id,
        session_id=session.pk,
        access=str(token),
    )
