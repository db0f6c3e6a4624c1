"""Rules about people, without a console."""

from datetime import datetime, timedelta
from typing import Any

import jwt
import pytest
from procrastinate.contrib.django.models import ProcrastinateJob

from accounts.audit import Actor
from accounts.models import AuditEvent, Client, PasswordLink, Session, User
from accounts.people.access import StillNeeded, delete_user, disable, enable
from accounts.people.password_links import request_link, send_link
from accounts.people.roles import change_roles, dismiss_operator, make_operator
from accounts.people.users import add_user, change_email, move_user, set_password
from accounts.rights import NotYourself
from accounts.sessions.sign_in import Device, InvalidCredentials, TokenPair, sign_in
from config.platform.problems.problem import InvalidRequest
from licensing.licences import create_client
from licensing.models import Plan
from tests.accounts.people.test_erasure import use
from tests.conftest import PASSWORD
from tests.races import race
from usage.models import MonthlyUsage

NEW = "another good horse battery"


def actions() -> list[str]:
    return [
        event.action for event in AuditEvent.objects.filter(action__startswith="user:").reverse()
    ]


def mails_queued() -> list[dict[str, Any]]:
    return list(
        ProcrastinateJob.objects.filter(task_name="mail.send").values_list("args", flat=True)
    )


@pytest.mark.django_db
def test_an_email_is_one_person_in_whatever_case(
    organisation: Client, by: Actor, now: datetime
) -> None:
    user = add_user(email="Ada@Acme.TEST", client=organisation, by=by, now=now)
    assert user.email == "ada@acme.test"
    assert not user.has_usable_password()
    with pytest.raises(InvalidRequest) as refused:
        add_user(email="aDA@acme.test", client=None, by=by, now=now)
    assert refused.value.errors[0].pointer == "/email"
    assert actions() == ["user:created"]


@pytest.mark.django_db
def test_an_email_of_somebody_else_cannot_be_taken(user: User, by: Actor, now: datetime) -> None:
    other = add_user(email="bert@acme.test", client=user.client, by=by, now=now)
    with pytest.raises(InvalidRequest):
        change_email(user_id=other.pk, email="ADA@acme.test", reason="x", by=by, now=now)
    other.refresh_from_db()
    assert (other.email, other.client) == ("bert@acme.test", user.client)


@pytest.mark.django_db
def test_changing_nothing_writes_nothing(user: User, by: Actor, now: datetime) -> None:
    change_email(user_id=user.pk, email="ADA@acme.test", reason="x", by=by, now=now)
    assert actions() == mails_queued() == []


@pytest.mark.django_db
def test_a_new_email_needs_a_reason_and_the_old_address_is_informed(
    user: User, by: Actor, now: datetime
) -> None:
    with pytest.raises(InvalidRequest) as refused:
        change_email(user_id=user.pk, email="eve@evil.test", reason=" ", by=by, now=now)
    assert refused.value.errors[0].pointer == "/reason"
    assert mails_queued() == []
    change_email(user_id=user.pk, email="eve@evil.test", reason="Married.", by=by, now=now)
    assert AuditEvent.objects.get(action="user:email_changed").reason == "Married."
    (mail,) = mails_queued()
    assert mail["to"] == ["ada@acme.test"]
    for text in (mail["text"], mail["html"]):
        assert f"{now:%H:%M} UTC" in text
        assert "Tell your administrator at once" in text
    assert "evil" not in str(mail)


@pytest.mark.django_db
def test_a_move_ends_sessions_and_leaves_the_ledger_where_it_was(
    user: User, pair: TokenPair, plan: Plan, by: Actor, now: datetime
) -> None:
    old = user.client
    other = create_client(name="Borealis", plan=plan, by=by, now=now)
    record = use(user, now)
    with pytest.raises(InvalidRequest):
        move_user(user_id=user.pk, client=old, reason="x", by=by, now=now)
    with pytest.raises(InvalidRequest):
        move_user(user_id=user.pk, client=other, reason=" ", by=by, now=now)
    assert move_user(user_id=user.pk, client=other, reason="Changed jobs.", by=by, now=now) == 1
    again = sign_in(email=user.email, password=PASSWORD, device=Device(), now=now)
    assert jwt.decode(again.access, options={"verify_signature": False})["cid"] == str(other.pk)
    record.refresh_from_db()
    assert old is not None
    assert (record.client_id, MonthlyUsage.objects.get(user=user).input_used) == (old.pk, 7)
    assert actions() == ["user:moved", "user:tokens_revoked"]


@pytest.mark.django_db
def test_an_invitation_ends_with_a_move_and_with_another_email(
    organisation: Client, plan: Plan, by: Actor, now: datetime
) -> None:
    other = create_client(name="Borealis", plan=plan, by=by, now=now)
    user = add_user(email="ada@acme.test", client=organisation, by=by, now=now)
    kind = PasswordLink.Kind.INVITATION
    for end in (
        lambda: move_user(user_id=user.pk, client=other, reason="x", by=by, now=now),
        lambda: change_email(
            user_id=user.pk, email="ada@borealis.test", reason="x", by=by, now=now
        ),
    ):
        request_link(user_id=user.pk, kind=kind, by=by, now=now)
        send_link(user_id=user.pk, kind=kind, now=now)
        assert PasswordLink.objects.live(at=now).filter(user=user).exists()
        end()
        assert not PasswordLink.objects.live(at=now).filter(user=user).exists()
        user.refresh_from_db()
        assert user.invited_at is None


@pytest.mark.django_db
def test_a_person_without_a_client_any_more_cannot_sign_in(
    user: User, pair: TokenPair, by: Actor, now: datetime
) -> None:
    assert move_user(user_id=user.pk, client=None, reason="Left.", by=by, now=now) == 1
    with pytest.raises(InvalidCredentials):
        sign_in(email=user.email, password=PASSWORD, device=Device(), now=now)


@pytest.mark.django_db
def test_a_person_in_the_ledger_is_not_deleted(
    user: User, pair: TokenPair, by: Actor, now: datetime
) -> None:
    use(user, now)
    with pytest.raises(StillNeeded) as refused:
        delete_user(user_id=user.pk, reason="Has left.", by=by, now=now)
    assert "Disable or erase the person instead" in refused.value.detail
    assert Session.objects.live(at=now).exists()
    assert actions() == []


@pytest.mark.django_db
def test_a_new_password_ends_every_session(
    user: User, pair: TokenPair, by: Actor, now: datetime
) -> None:
    epoch = user.epoch
    assert set_password(user_id=user.pk, password=NEW, by=by, now=now) == 1
    user.refresh_from_db()
    assert user.check_password(NEW)
    assert user.epoch == epoch + 1
    assert not Session.objects.live(at=now).exists()
    assert actions() == ["user:password_set", "user:tokens_revoked"]


@pytest.mark.django_db
@pytest.mark.parametrize(
    "password", ["Zy7-quux", "1" * 20, "password1234", "ada@acme.test", "é" * 1025]
)
def test_a_poor_password_is_refused_with_its_faults(
    user: User, by: Actor, now: datetime, password: str
) -> None:
    with pytest.raises(InvalidRequest) as refused:
        set_password(user_id=user.pk, password=password, by=by, now=now)
    assert {fault.pointer for fault in refused.value.errors} == {"/password"}
    assert all(fault.detail and password not in fault.detail for fault in refused.value.errors)
    assert actions() == []


@pytest.mark.django_db
def test_a_disabled_person_cannot_sign_in_until_enabled(
    user: User, pair: TokenPair, by: Actor, now: datetime
) -> None:
    def enter() -> TokenPair:
        return sign_in(email=user.email, password=PASSWORD, device=Device(), now=now)

    assert disable(user_id=user.pk, reason="Has left.", by=by, now=now) == 1
    with pytest.raises(InvalidCredentials):
        enter()
    enable(user_id=user.pk, reason="Is back.", by=by, now=now)
    assert enter().access
    assert actions() == ["user:disabled", "user:tokens_revoked", "user:enabled"]


@pytest.mark.django_db
@pytest.mark.parametrize("reason", ["", " \n"])
def test_every_change_of_a_person_requires_a_reason(
    user: User, by: Actor, now: datetime, reason: str
) -> None:
    for act in (disable, enable, delete_user, dismiss_operator):
        with pytest.raises(InvalidRequest) as refused:
            act(user_id=user.pk, reason=reason, by=by, now=now)
        assert refused.value.errors[0].pointer == "/reason"
    for giving in (make_operator, change_roles):
        with pytest.raises(InvalidRequest) as refused:
            giving(user_id=user.pk, roles={"support"}, reason=reason, by=by, now=now)
        assert refused.value.errors[0].pointer == "/reason"
    assert actions() == []


@pytest.mark.django_db
def test_nobody_does_these_to_himself(operator: User, now: datetime) -> None:
    oneself = Actor(name=operator.email, id=operator.pk)
    for act in (disable, delete_user, dismiss_operator):
        with pytest.raises(NotYourself):
            act(user_id=operator.pk, reason="x", by=oneself, now=now)
    with pytest.raises(NotYourself):
        change_roles(user_id=operator.pk, roles={"auditor"}, reason="x", by=oneself, now=now)


@pytest.mark.django_db(transaction=True)
def test_a_login_that_races_a_new_password_leaves_nothing_alive(
    organisation: Client, signing_key: None, by: Actor, now: datetime
) -> None:
    user = User.objects.create_user("ada@acme.test", PASSWORD, client=organisation)
    for round_ in range(10):
        at = now + timedelta(seconds=round_)
        old, new = (PASSWORD, NEW) if round_ % 2 == 0 else (NEW, PASSWORD)

        def enter(password: str = old, at: datetime = at) -> None:
            sign_in(email=user.email, password=password, device=Device(), now=at)

        def change(password: str = new, at: datetime = at) -> None:
            set_password(user_id=user.pk, password=password, by=by, now=at)

        race(enter, change, enter)
        assert not Session.objects.live(at=at).exists()


@pytest.mark.django_db(transaction=True)
def test_one_email_added_twice_at_once_is_one_person(
    organisation: Client, by: Actor, now: datetime
) -> None:
    def add() -> User:
        return add_user(email="ada@acme.test", client=organisation, by=by, now=now)

    results = race(add, add, add)
    assert [type(each) for each in results].count(User) == 1
    assert [type(each) for each in results].count(InvalidRequest) == 2
    assert AuditEvent.objects.filter(action="user:created").count() == 1
