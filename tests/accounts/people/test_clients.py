"""Rules about client organisations."""

from datetime import datetime
from functools import partial
from uuid import UUID

import pytest
from django.db import connection

from accounts.audit import Actor
from accounts.models import AuditEvent, Client, User
from accounts.people.client_names import clients_look_alike
from accounts.people.clients import (
    ClientHasPeople,
    NoSuchClient,
    delete_client,
    find_client,
    rename_client,
)
from config.platform.problems.problem import InvalidRequest
from licensing.licences import create_client
from licensing.models import Licence, Plan
from tests.races import race

pytestmark = pytest.mark.django_db


def test_a_name_that_stays_writes_nothing(organisation: Client, by: Actor, now: datetime) -> None:
    rename_client(client_id=organisation.pk, name=" Acme ", by=by, now=now)
    assert not AuditEvent.objects.filter(action="client:renamed").exists()


def test_a_client_cannot_lose_its_name(organisation: Client, by: Actor, now: datetime) -> None:
    with pytest.raises(InvalidRequest):
        rename_client(client_id=organisation.pk, name="  ", by=by, now=now)


UNSEEN = [
    "Ac\nme",
    "Ac\r\nme",
    "Ac\tme",
    "Acme\u2028Ltd",
    "\u202eemcA",
    "Ac\u2066me\u2069",
    "A\u200fcme",
]
UNSEEN += ["Ac\u200bme", "\ufeffAcme", "Ac\u00adme", "Ac\x00me"]


@pytest.mark.parametrize("name", UNSEEN)
def test_a_name_has_no_signs_that_cannot_be_seen(
    organisation: Client, plan: Plan, by: Actor, now: datetime, name: str
) -> None:
    for refused in (
        lambda: rename_client(client_id=organisation.pk, name=name, by=by, now=now),
        lambda: create_client(name=name, plan=plan, by=by, now=now),
    ):
        with pytest.raises(InvalidRequest) as caught:
            refused()
        assert [(each.pointer, each.code) for each in caught.value.errors] == [
            ("/name", "invalid_characters")
        ]
    assert [each.name for each in Client.objects.all()] == ["Acme"]


# Names that look alike. Rows with a number are public reports of other projects.
ALIKE = [
    ("Acme Ltd", "Acme  Ltd"),  # Anaminus/roblox-bug-tracker#656, CDCgov/prime-simplereport#2564
    ("Acme  Ltd", "Acme Ltd"),  # mangei/tissquickregistrationscript#13
    ("Acme Ltd ", "acme ltd"),  # owncloud/core#39533
    ("  Acme Ltd", "Acme Ltd"),
    ("Acme Ltd", "Acme\u00a0Ltd"),
    ("Acme\u00a0Ltd", "Acme Ltd"),
    ("Acme\u202fLtd", "Acme \u2003 Ltd"),
    ("Acme Ltd", "\u3000Acme\u3000Ltd\u3000"),
    ("Acme\tLtd", "Acme Ltd"),
    ("Cafe\u0301  Ltd", "CAF\u00c9\u2007Ltd"),  # hasgeek/funnel#1544, Tr3kkR/Yuzu#3651
    ("\u1100\u1161 Ltd", "\uac00 Ltd"),
    # Signs that cannot be seen, in names of before or between letters that do not need them.
    ("Ac\u200bme\u200e", "Acme"),
    ("Acme \u2060 Ltd", "Acme Ltd"),
    ("Acme", "Ac\u200dme"),
    # A sigma at the end of a word.
    ("\u039f\u03c3\u03c2", "\u039f\u03a3\u03a3"),
]


@pytest.mark.parametrize(
    ("known", "name"),
    [
        ("Acme", "ACME"),
        ("Acme", " acme "),
        ("Müller GmbH", "MÜLLER GMBH"),
        ("Müller GmbH", "Mu\u0308ller GmbH"),
        ("Mu\u0308ller GmbH", "Müller GmbH"),
        *ALIKE,
    ],
)
def test_no_two_clients_have_one_name(
    organisation: Client, plan: Plan, by: Actor, now: datetime, known: str, name: str
) -> None:
    Client.objects.filter(pk=organisation.pk).update(name=known)
    other = create_client(name="Borealis", plan=plan, by=by, now=now)
    for refused in (
        lambda: rename_client(client_id=other.pk, name=name, by=by, now=now),
        lambda: create_client(name=name, plan=plan, by=by, now=now),
    ):
        with pytest.raises(InvalidRequest) as caught:
            refused()
        assert [(each.pointer, each.code) for each in caught.value.errors] == [("/name", "unique")]
    # Its own name in other letters is no other client's.
    assert rename_client(client_id=organisation.pk, name=name.upper(), by=by, now=now).name


def test_a_pair_of_before_stays(organisation: Client, plan: Plan, by: Actor, now: datetime) -> None:
    other = create_client(name="Borealis", plan=plan, by=by, now=now)
    Client.objects.filter(pk=other.pk).update(name="ACME\u200e")
    assert rename_client(client_id=other.pk, name="ACME\u200e", by=by, now=now).name == "ACME\u200e"
    Client.objects.filter(pk=other.pk).update(name="ACME")
    for each, name in ((other, "ACME"), (organisation, "Acme")):
        assert rename_client(client_id=each.pk, name=name, by=by, now=now).name == name
    assert not AuditEvent.objects.filter(action="client:renamed").exists()


@pytest.mark.parametrize(("known", "name"), ALIKE)
def test_a_client_is_found_by_a_name_that_looks_alike(
    organisation: Client, known: str, name: str
) -> None:
    Client.objects.filter(pk=organisation.pk).update(name=known)
    assert find_client(name) == organisation
    assert find_client(known.strip()) == organisation


def test_each_of_two_earlier_look_alikes_is_found_by_its_own_name(
    organisation: Client, plan: Plan, by: Actor, now: datetime
) -> None:
    other = create_client(name="Borealis", plan=plan, by=by, now=now)
    Client.objects.filter(pk=organisation.pk).update(name="Acme Ltd")
    Client.objects.filter(pk=other.pk).update(name="Acme  Ltd")
    assert find_client("ACME LTD") == organisation
    assert find_client("acme  ltd") == other
    with pytest.raises(NoSuchClient) as raised:
        find_client("Acme\u00a0Ltd")
    assert [each.code for each in raised.value.errors] == ["ambiguous"]


@pytest.mark.parametrize(
    ("known", "name"),
    [
        ("Strauß", "Strauss"),
        ("Acme Ltd", "AcmeLtd"),
        ("Acme²", "Acme2"),
        ("Ａｃｍｅ", "Acme"),
        ("Müller", "Muller"),
        ("A-B", "A B"),
    ],
)
def test_names_that_differ_are_two(
    organisation: Client, plan: Plan, by: Actor, now: datetime, known: str, name: str
) -> None:
    rename_client(client_id=organisation.pk, name=known, by=by, now=now)
    assert create_client(name=name, plan=plan, by=by, now=now).name == name


def test_a_name_of_joiners_alone_is_none(plan: Plan, by: Actor, now: datetime) -> None:
    with pytest.raises(InvalidRequest) as raised:
        create_client(name=" \u200d\u200c ", plan=plan, by=by, now=now)
    assert [each.code for each in raised.value.errors] == ["required"]


def test_a_check_names_the_clients_of_before_that_look_alike(
    organisation: Client, plan: Plan, by: Actor, now: datetime
) -> None:
    assert clients_look_alike(None, ["default"]) == []
    names = ["Acme  Ltd", "ACME Ltd", "Acme\u00a0ltd", "Ac me", "Borealis"]
    made = [create_client(name=f"Client {n}", plan=plan, by=by, now=now) for n in range(5)]
    for client, name in zip(made, names, strict=True):
        Client.objects.filter(pk=client.pk).update(name=name)
    (told,) = clients_look_alike(None, ["default"])
    assert told.id == "accounts.W002"
    assert all(
        f"{name} ({client.pk})" in told.msg for client, name in zip(made[:3], names, strict=False)
    )
    assert str(made[3].pk) not in told.msg
    # Each stays as it is, and can be renamed away.
    rename_client(client_id=made[0].pk, name=names[0], by=by, now=now)
    rename_client(client_id=made[0].pk, name="Acme One", by=by, now=now)
    rename_client(client_id=made[1].pk, name="Acme Two", by=by, now=now)
    assert clients_look_alike(None, ["default"]) == []


def test_the_check_passes_before_the_table_exists() -> None:
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE accounts_client RENAME TO away")
    assert clients_look_alike(None, ["default"]) == []


@pytest.mark.parametrize(
    "name", ["می\u200cخواهم", "Société Générale", "株式会社", "क्\u200dष", "R&D <x>"]
)
def test_names_of_all_scripts_are_kept(plan: Plan, by: Actor, now: datetime, name: str) -> None:
    assert create_client(name=name, plan=plan, by=by, now=now).name == name


@pytest.mark.django_db(transaction=True)
def test_one_of_many_concurrent_clients_with_one_name_is_created(
    plan: Plan, by: Actor, now: datetime
) -> None:
    names = ["Cumulus Ltd", "CUMULUS  LTD", "cumulus\u00a0ltd", " CumuluS Ltd"]
    outcomes = race(
        *(partial(create_client, name=name, plan=plan, by=by, now=now) for name in names)
    )
    assert sum(isinstance(each, Client) for each in outcomes) == 1
    assert sum(isinstance(each, InvalidRequest) for each in outcomes) == 3


def test_a_client_with_people_stays(
    organisation: Client, user: User, by: Actor, now: datetime
) -> None:
    with pytest.raises(ClientHasPeople):
        delete_client(client_id=organisation.pk, reason="x", by=by, now=now)
    assert Licence.objects.filter(client=organisation).exists()
    assert not AuditEvent.objects.filter(action="client:deleted").exists()


def test_a_client_is_not_deleted_without_a_reason(
    organisation: Client, by: Actor, now: datetime
) -> None:
    with pytest.raises(InvalidRequest):
        delete_client(client_id=organisation.pk, reason=" ", by=by, now=now)


def test_deleting_keeps_the_name_in_the_log(organisation: Client, by: Actor, now: datetime) -> None:
    identity: UUID = organisation.pk
    delete_client(client_id=identity, reason="Twice.", by=by, now=now)
    event = AuditEvent.objects.get(action="client:deleted")
    assert (event.target, event.target_id) == ("Acme", str(identity))
