"""Inviting people, one or many, again, and only those who have no password."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import connection

from accounts.audit import Actor
from accounts.models import AuditEvent, Client, PasswordLink, User
from accounts.people.invitations import MOST_PEOPLE, Named, emails_in, invite, invite_again
from accounts.people.password_links import LinkSpent, find_link, use_link
from accounts.worker.tasks import send_password_link
from config.platform.problems.problem import InvalidRequest
from licensing.licences import create_client
from licensing.models import Plan
from tests.races import race

NEW = "another good horse battery"


def ask(text: str, client: Client, by: Actor, now: datetime) -> Any:
    return invite(named=emails_in(text), client=client, by=by, now=now)


def queued() -> list[str]:
    """Returns the emails that the worker is to send an invitation to."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT args->>'user_id' FROM procrastinate_jobs"
            " WHERE task_name = 'accounts.send_password_link' AND args->>'kind' = 'invitation' ORDER BY id"
        )
        ids = [identity for (identity,) in cursor.fetchall()]
    return [User.objects.get(pk=identity).email for identity in ids]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("ada@acme.test", [(1, "ada@acme.test")]),
        (
            "ada@acme.test, bert@acme.test;cleo@acme.test",
            [(1, "ada@acme.test"), (1, "bert@acme.test"), (1, "cleo@acme.test")],
        ),
        (
            "\r\nada@acme.test\r\n\r\n bert@acme.test ",
            [(2, "ada@acme.test"), (4, "bert@acme.test")],
        ),
        (
            "Ada Lovelace <ada@acme.test>, bert@acme.test",
            [(1, "ada@acme.test"), (1, "bert@acme.test")],
        ),
        ("ada@acme.test bert@acme.test", [(1, "ada@acme.test"), (1, "bert@acme.test")]),
        (" ,;\n", []),
    ],
)
def test_emails_are_found_as_people_write_them(text: str, found: list[tuple[int, str]]) -> None:
    assert [tuple(each) for each in emails_in(text)] == found


@pytest.mark.django_db
def test_a_new_person_is_added_and_mailed_a_link_of_72_hours(
    organisation: Client, by: Actor, now: datetime, mailoutbox: Any
) -> None:
    done = ask("Ada@ACME.test, bert@acme.test", organisation, by, now)
    assert (done.added, done.invited, done.left) == (2, 2, 0)
    ada = User.objects.get(email="ada@acme.test")
    assert (ada.client, ada.invited_at, ada.has_usable_password()) == (organisation, now, False)
    assert sorted(queued()) == ["ada@acme.test", "bert@acme.test"]
    send_password_link(user_id=str(ada.pk), kind="invitation")
    secret = str(mailoutbox[0].body).split("/account/password/")[1].split()[0]
    link = find_link(secret, now=now)
    assert link.expires_at - link.made_at == timedelta(hours=72)
    use_link(presented=secret, password=NEW, address=None, request_id="", now=now)
    ada.refresh_from_db()
    assert ada.check_password(NEW)
    assert set(AuditEvent.objects.filter(target=ada.email).values_list("action", flat=True)) == {
        "user:created", "user:password_link_requested", "user:password_set", "user:tokens_revoked",
    }  # fmt: skip


@pytest.mark.django_db
def test_a_person_who_has_not_accepted_is_invited_again_and_the_old_link_is_void(
    organisation: Client, by: Actor, now: datetime, mailoutbox: Any
) -> None:
    ask("ada@acme.test", organisation, by, now)
    ada = User.objects.get(email="ada@acme.test")
    send_password_link(user_id=str(ada.pk), kind="invitation")
    done = ask("ADA@acme.test", organisation, by, now + timedelta(days=2))
    assert (done.added, done.invited) == (0, 1)
    send_password_link(user_id=str(ada.pk), kind="invitation")
    old, new = (str(mail.body).split("/account/password/")[1].split()[0] for mail in mailoutbox)
    with pytest.raises(LinkSpent):
        find_link(old, now=now)
    assert find_link(new, now=now).kind == PasswordLink.Kind.INVITATION
    ada.refresh_from_db()
    assert ada.invited_at == now + timedelta(days=2)


@pytest.mark.django_db
def test_a_person_with_a_password_or_disabled_is_left_alone(
    user: User, organisation: Client, by: Actor, now: datetime
) -> None:
    gone = User.objects.create_user("gone@acme.test", client=organisation, is_active=False)
    done = ask(f"{user.email} {gone.email} new@acme.test new@ACME.test", organisation, by, now)
    assert (done.added, done.invited, done.left) == (1, 1, 3)
    assert queued() == ["new@acme.test"]
    assert invite_again(user_ids=[user.pk, gone.pk], by=by, now=now) == 0


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("email", "code"),
    [
        ("no-at-sign", "faulty"),
        ("two@@acme.test", "faulty"),
        ("elsewhere@borealis.test", "elsewhere"),
        ("operator@shell.test", "operator"),
        ("a" * 250 + "@acme.test", "too_long"),
        ("zero\N{ZERO WIDTH SPACE}width@acme.test", "faulty"),
    ],
)
def test_a_person_who_cannot_be_invited_is_named_and_nobody_is_invited(
    organisation: Client,
    plan: Plan,
    operator: User,
    by: Actor,
    now: datetime,
    email: str,
    code: str,
) -> None:
    other = create_client(name="Borealis", plan=plan, by=by, now=now)
    User.objects.create_user("elsewhere@borealis.test", client=other)
    before = User.objects.count()
    with pytest.raises(InvalidRequest) as refused:
        ask(f"fine@acme.test\n{email}", organisation, by, now)
    (fault,) = refused.value.errors
    assert (fault.pointer, fault.code) == ("/emails/2", code)
    assert fault.detail.startswith("Line 2: ")
    assert len(fault.detail) < 150
    assert User.objects.count() == before
    assert queued() == []


@pytest.mark.django_db
def test_nobody_and_too_many_are_refused(organisation: Client, by: Actor, now: datetime) -> None:
    for named in ([], [Named(n, f"p{n}@acme.test") for n in range(MOST_PEOPLE + 1)]):
        with pytest.raises(InvalidRequest) as refused:
            invite(named=named, client=organisation, by=by, now=now)
        assert refused.value.errors[0].pointer == "/emails"


@pytest.mark.django_db(transaction=True)
def test_the_same_people_invited_twice_at_once_are_added_once(
    organisation: Client, by: Actor, now: datetime
) -> None:
    def go() -> Any:
        return ask("ada@acme.test bert@acme.test", organisation, by, now)

    results = race(go, go, go)
    assert not [each for each in results if isinstance(each, Exception)]
    assert sum(each.added for each in results) == 2
    assert User.objects.filter(client=organisation).count() == 2
