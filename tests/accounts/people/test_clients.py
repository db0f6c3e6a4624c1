"""Rules about client organisations."""

from datetime import datetime
from uuid import UUID

import pytest

from accounts.audit import Actor
from accounts.models import AuditEvent, Client, User
from accounts.people.clients import ClientHasPeople, delete_client, rename_client
from config.api.problems import InvalidRequest
from licensing.models import Licence

pytestmark = pytest.mark.django_db


def test_a_name_that_stays_writes_nothing(organisation: Client, by: Actor, now: datetime) -> None:
    rename_client(client_id=organisation.pk, name=" Acme ", by=by, now=now)
    assert not AuditEvent.objects.filter(action="client:renamed").exists()


def test_a_client_cannot_lose_its_name(organisation: Client, by: Actor, now: datetime) -> None:
    with pytest.raises(InvalidRequest):
        rename_client(client_id=organisation.pk, name="  ", by=by, now=now)


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
