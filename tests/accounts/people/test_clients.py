"""Rules about client organisations."""

from datetime import datetime
from functools import partial
from uuid import UUID

import pytest

from accounts.audit import Actor
from accounts.models import AuditEvent, Client, User
from accounts.people.clients import ClientHasPeople, delete_client, rename_client
from config.api.problems import InvalidRequest
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


@pytest.mark.parametrize(
    ("known", "name"),
    [
        ("Acme", "ACME"),
        ("Acme", " acme "),
        ("Müller GmbH", "MÜLLER GMBH"),
        ("Müller GmbH", "Mu\u0308ller GmbH"),
        ("Mu\u0308ller GmbH", "Müller GmbH"),
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


@pytest.mark.parametrize(
    "name", ["می\u200cخواهم", "Société Générale", "株式会社", "क्\u200dष", "R&D <x>"]
)
def test_names_of_all_scripts_are_kept(plan: Plan, by: Actor, now: datetime, name: str) -> None:
    assert create_client(name=name, plan=plan, by=by, now=now).name == name


@pytest.mark.django_db(transaction=True)
def test_of_many_clients_of_one_name_made_at_once_one_is(
    plan: Plan, by: Actor, now: datetime
) -> None:
    names = ["Cumulus", "CUMULUS", "cumulus", "CumuluS"]
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
