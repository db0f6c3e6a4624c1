"""Two databases on one server that differ in how many rows they hold, and people in both whose own history is alike."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

from django.contrib.auth.hashers import make_password
from django.db import connection, transaction

from accounts.models import RefreshToken, SigningKey, User
from accounts.sessions.access_tokens import AccessToken
from accounts.sessions.refresh_tokens import RefreshSecret
from licensing.callers import claims_of
from licensing.models import Plan
from tests.bench.callers import PASSWORD
from tests.bench.stage import Served, Stage
from tests.served.database import Database, new_database
from tests.served.service import manage
from tests.tools.folders import ROOT

# A person has about a thousand records in ninety days at ten million, and a hundred in the small one.
SMALL, LARGE = 10_000, int(os.environ.get("ROWS", "10000000"))
PEOPLE = {"small": (100, 5), "large": (10_000, 500)}
# People whose own rows are as many in both: what is theirs may cost what it costs.
RECORDS = (40, 160)
CHOSEN = 60
# Some of each thousand, so that what is asked lies all over the tables.
_PEOPLE = """
SELECT r.user_id, u.email, t.session_id, t.id, u.client_id
FROM (
    SELECT user_id FROM usage_usagerecord
    GROUP BY user_id HAVING count(*) BETWEEN %(least)s AND %(most)s ORDER BY md5(user_id::text) LIMIT 500
) AS r
JOIN accounts_user AS u ON u.id = r.user_id
CROSS JOIN LATERAL (
    SELECT id, session_id FROM accounts_refreshtoken
    WHERE user_id = r.user_id AND revoked_at IS NULL AND replaced_at IS NULL AND expires_at > now() LIMIT 1
) AS t
LIMIT %(number)s
"""


@dataclass(kw_only=True)
class Person:
    """Somebody who was there before, with an access token and the refresh token of a session of theirs.

    They sign in with the password of all callers.
    """

    id: UUID
    email: str
    client_id: UUID
    session_id: UUID
    access: str
    refresh: str


@dataclass(frozen=True, kw_only=True)
class Side:
    """A database of ``rows`` rows in each large table, served by a service of its own."""

    name: str
    rows: int
    database: Database
    served: Served
    people: list[Person]
    operator: tuple[str, str]


@contextmanager
def grown(stage: Stage, environ: dict[str, str]) -> Iterator[dict[str, Side]]:
    """Both, made by ``tests.tools.grow``; ``environ`` is what their services are given besides."""
    with ExitStack() as stack:
        databases = {name: stack.enter_context(new_database(nullcontext)) for name in PEOPLE}
        for name, rows in (("small", SMALL), ("large", LARGE)):
            prepare(stage, databases[name])
            _grow(stage, databases[name], rows, *PEOPLE[name])
        with served(stage, databases, environ) as sides:
            yield sides


@contextmanager
def served(
    stage: Stage, databases: dict[str, Database], environ: dict[str, str]
) -> Iterator[dict[str, Side]]:
    """Services on databases that have grown."""
    with ExitStack() as stack:
        sides = {}
        for name, database in databases.items():
            served = stack.enter_context(stage.service(DATABASE_URL=database.url, **environ))
            demo = json.loads(_demo(stage, database).read_text())
            sides[name] = Side(
                name=name,
                rows=SMALL if name == "small" else LARGE,
                database=database,
                served=served,
                people=_people(database),
                operator=(demo["operator_email"], demo["operator_password"]),
            )
        yield sides


def prepare(stage: Stage, database: Database) -> None:
    """With the stage's own signing key, so that tokens made here are good for all."""
    environ = {**stage.environ, "DATABASE_URL": database.url}
    manage(environ, "migrate", "--no-input")
    with stage.database.rows():
        key = SigningKey.objects.get()
    with database.rows():
        key.save(force_insert=True)
    manage(environ, "seed_demo", "--output", str(_demo(stage, database)))


def _demo(stage: Stage, database: Database) -> Path:
    return stage.folder / f"demo-{database.url.rpartition('/')[2]}.json"


def _grow(stage: Stage, database: Database, rows: int, people: int, clients: int) -> None:
    numbers = {"--rows": rows, "--people": people, "--clients": clients}
    subprocess.run(
        [
            sys.executable,
            "-m",
            "tests.tools.grow",
            *(f"{name}={each}" for name, each in numbers.items()),
        ],
        cwd=ROOT,
        env={**stage.environ, "DATABASE_URL": database.url},
        check=True,
    )


def _people(database: Database) -> list[Person]:
    now = datetime.now(UTC)
    with database.rows():
        Plan.objects.filter(name__startswith="Grown").update(
            monthly_input_tokens=10**12, monthly_output_tokens=10**12, daily_tokens=10**12
        )
        with connection.cursor() as cursor:
            values = {"least": RECORDS[0], "most": RECORDS[1], "number": CHOSEN}
            cursor.execute(_PEOPLE, values)
            found = cursor.fetchall()
        chosen = User.objects.filter(pk__in=[row[0] for row in found])
        chosen.update(password=make_password(PASSWORD))
        assert len(found) > CHOSEN // 4, f"only {len(found)} people are alike"
        return [_person(*row, now=now) for row in found]


def _person(
    user_id: UUID, email: str, session_id: UUID, token_id: UUID, client_id: UUID, *, now: datetime
) -> Person:
    """Their last token becomes one that is known here, in the place where it is."""
    secret = RefreshSecret.new()
    with transaction.atomic():
        values: dict[str, Any] = {"id": secret.id, "token_hash": secret.hash()}
        RefreshToken.objects.filter(pk=token_id).update(**values)
        RefreshToken.objects.filter(replaced_by=token_id).update(replaced_by=secret.id)
    claims = claims_of(user_id)
    assert claims is not None
    access = AccessToken.issue(
        user_id=user_id, session_id=session_id, epoch=0, claims=claims, now=now
    )
    return Person(
        id=user_id,
        email=email,
        client_id=client_id,
        session_id=session_id,
        access=str(access),
        refresh=secret.text(),
    )
