"""Licences of the releases before after an upgrade, also beside their processes, which know no seats and no notices."""

import gzip
import json
import re
from collections.abc import Iterator
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql
from pytest_django.plugin import DjangoDbBlocker

from licensing.models import Licence
from tests.served.shell import Shell
from tests.served.test_upgrade import BEFORE, Upgraded, upgraded_from

pytestmark = pytest.mark.full
STATUS = "/v1/license/status"
MADE_BY_THE_DATABASE = {"id", "status", "grace_until"}
# Columns that no process of those releases writes.
NOTICES = ("minimum_version", "message_level", "message_text", "shell_channel", "shell_version")


@pytest.fixture(scope="module", params=["1f2697d", "213cb5a1"])
def upgraded(
    request: pytest.FixtureRequest,
    django_db_blocker: DjangoDbBlocker,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Upgraded]:
    with upgraded_from(request.param, django_db_blocker, tmp_path_factory) as found:
        yield found


def columns_of(upgraded: Upgraded, table: str) -> set[str]:
    """The columns of a table in the release before."""
    (dump,) = (
        path
        for path in BEFORE.glob("*.json")
        if json.loads(path.read_text())["recorded_at"] == upgraded.before["recorded_at"]
    )
    text = gzip.decompress(dump.with_suffix(".sql.gz").read_bytes()).decode()
    made = re.search(rf"CREATE TABLE public\.{table} \((.*?)\n\);", text, re.DOTALL)
    assert made is not None
    return set(re.findall(r"^    ([a-z_]+) ", made[1], re.MULTILINE))


def test_a_signed_in_person_continues_after_the_upgrade_and_receives_later_notices(
    upgraded: Upgraded,
) -> None:
    shell, demo = Shell(upgraded.service.url), upgraded.before["demo"]
    kept = {"refresh": upgraded.before["unused"]["refresh"], "device_fp": "upgrade"}
    answer = shell.post("/v1/auth/refresh", kept)
    assert (answer.status_code, answer.json().keys()) == (200, {"access", "refresh", "expires_in"})
    shell.access = answer.json()["access"]
    before = shell.get(STATUS)
    assert before.json().keys() == {"status", "plan", "entitlements"}
    with upgraded.database.rows():
        licences = Licence.objects.filter(client__users__email=demo["email"])
        licences.update(seats=1, minimum_version="0.1.0", shell_channel="beta")
    known = {"If-None-Match": before.headers["ETag"]}
    after = shell.get(STATUS, headers=known)
    told = {"seats": 1, "minimum_version": "0.1.0", "shell": {"channel": "beta"}}
    assert (after.status_code, after.json()) == (200, {**before.json(), **told})
    # Fewer seats than people keep nobody out.
    assert shell.login(demo["email"], demo["password"]).status_code == 200
    assert shell.refresh().status_code == 200
    with upgraded.database.rows():
        licences.update(seats=None, minimum_version="", shell_channel="")
    again = shell.get(STATUS, headers=known)
    assert again.status_code == 304


def test_a_process_of_that_release_adds_clients_beside_this_one(upgraded: Upgraded) -> None:
    new = uuid4()
    licence = sorted(columns_of(upgraded, "licensing_licence") - MADE_BY_THE_DATABASE)
    assert not {*NOTICES, "seats"} & set(licence)
    copied = [sql.Literal(new) if each == "client_id" else sql.Identifier(each) for each in licence]
    insert = sql.SQL("INSERT INTO licensing_licence ({}) SELECT {} FROM licensing_licence LIMIT 1")
    with psycopg.connect(upgraded.database.service_url) as connection:
        connection.execute(
            "INSERT INTO accounts_client (id, name, created_at) VALUES (%s, 'Beside', now())", [new]
        )
        names = sql.SQL(", ").join(map(sql.Identifier, licence))
        connection.execute(insert.format(names, sql.SQL(", ").join(copied)))
    with upgraded.database.rows():
        made = Licence.objects.get(client=new)
        assert {getattr(made, each) for each in NOTICES} == {""}
        assert (made.seats, made.message_id, made.message_until) == (None, None, None)
