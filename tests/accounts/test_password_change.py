"""Changing one's own password while others do things with it."""

from collections.abc import Iterator
from datetime import datetime, timedelta

import pytest
from django.db import connection

from accounts.audit import Actor
from accounts.keys.signing_keys import rotate_signing_key
from accounts.models import AuditEvent, Client, Session, User
from accounts.people.users import WrongPassword, change_password
from accounts.sessions.sign_in import Device, InvalidCredentials, TokenPair, sign_in
from tests.conftest import PASSWORD
from tests.races import race

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("_empty_queue")]
NEW = "another good horse battery"


@pytest.fixture
def _empty_queue() -> Iterator[None]:
    """The queue's tables are not Django's, so they are not emptied with the others."""
    yield
    with connection.cursor() as cursor:
        cursor.execute("TRUNCATE procrastinate_jobs CASCADE")


@pytest.fixture
def person(organisation: Client) -> User:
    return User.objects.create_user("ada@acme.test", PASSWORD, client=organisation)


def test_one_of_many_concurrent_changes_takes_effect(
    person: User, by: Actor, now: datetime
) -> None:
    passwords = [f"{NEW} {number}" for number in range(3)]
    results = race(
        *(
            lambda new=new: change_password(
                user_id=person.pk, current=PASSWORD, new=new, by=by, now=now
            )
            for new in passwords
        )
    )
    assert [type(each) for each in results].count(WrongPassword) == 2
    person.refresh_from_db()
    (won,) = [each for each in passwords if person.check_password(each)]
    assert isinstance(results[passwords.index(won)], int)
    assert AuditEvent.objects.filter(action="user:password_set").count() == 1


def test_no_sign_in_with_the_old_password_outlives_the_change(
    person: User, by: Actor, now: datetime
) -> None:
    rotate_signing_key(publish_ahead=timedelta(0), by=by, now=now)

    def enter() -> object:
        return sign_in(email=person.email, password=PASSWORD, device=Device(), now=now)

    def change() -> object:
        return change_password(user_id=person.pk, current=PASSWORD, new=NEW, by=by, now=now)

    *entered, changed = race(*[enter] * 4, change)
    assert isinstance(changed, int)
    assert {type(each) for each in entered} <= {TokenPair, InvalidCredentials}
    assert not Session.objects.filter(ended_at=None).exists()
