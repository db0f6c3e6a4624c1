"""Roles of operators and the last owner: rules and the database, without a console."""

from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest
from django.contrib.auth.models import Group, Permission
from django.core.management import call_command
from django.db import IntegrityError, transaction
from django.test import RequestFactory

from accounts.admin.passwords import SetOneTimePassword
from accounts.audit import Actor
from accounts.models import AuditEvent, Client, Operator, Role, User
from accounts.people.access import delete_user, disable
from accounts.people.erasure import erase_user
from accounts.people.one_time_passwords import find_one_time, set_one_time_password
from accounts.people.password_links import use_link
from accounts.people.roles import (
    BelongsToClient,
    IsNoOperator,
    IsOperator,
    NotAccepted,
    NotEnabled,
    change_roles,
    dismiss_operator,
    make_operator,
)
from accounts.people.users import add_user, change_email, move_user
from accounts.rights import LastOwner, NotAnOwner, NotYourRight
from config.composition.roles import rights_of
from config.platform.problems.problem import InvalidRequest, Problem
from tests.console.conftest import password_hash
from tests.races import race
from tests.triggers import without_triggers

ROUNDS = 20


def account(email: str, *roles: str, **fields: Any) -> User:
    """Somebody with a password, who with roles is an operator."""
    user = User.objects.create(
        email=email, password=password_hash(), is_staff=bool(roles), **fields
    )
    if roles:
        user.put_roles(roles)
    return user


def actor(user: User) -> Actor:
    return Actor(name=user.email, id=user.pk)


def roles_of(user: User) -> frozenset[str]:
    return User.objects.get(pk=user.pk).roles


@pytest.fixture
def owner(db: None) -> User:
    return account("owner@shell.test", Role.OWNER)


@pytest.fixture
def bea(db: None) -> User:
    return account("bea@shell.test")


@pytest.mark.django_db
def test_an_owner_gives_and_takes_roles(owner: User, bea: User, now: datetime) -> None:
    given = {"user_id": bea.pk, "reason": "Joins.", "by": actor(owner), "now": now}
    make_operator(roles={"support", "release"}, **given)
    assert roles_of(bea) == {"support", "release"}
    assert User.objects.get(pk=bea.pk).is_staff
    change_roles(roles={"auditor"}, **given)
    assert roles_of(bea) == {"auditor"}
    assert not User.objects.get(pk=bea.pk).is_superuser
    change_roles(roles={"owner"}, **given)
    assert User.objects.get(pk=bea.pk).is_superuser
    dismiss_operator(**given)
    gone = User.objects.get(pk=bea.pk)
    assert (gone.is_staff, gone.is_superuser, gone.groups.count()) == (False, False, 0)
    events = AuditEvent.objects.filter(action="user:operator_set", target_id=str(bea.pk))
    assert [(each.before or {})["roles"] for each in events.reverse()] == [
        [], ["release", "support"], ["auditor"], ["owner"],
    ]  # fmt: skip
    assert {each.reason for each in events} == {"Joins."}
    assert {each.actor_id for each in events} == {owner.pk}


@pytest.mark.django_db
@pytest.mark.parametrize("role", sorted({*Role.values} - {Role.OWNER}))
def test_nobody_but_an_owner_gives_or_takes_roles(
    owner: User, bea: User, role: str, now: datetime
) -> None:
    helper = account("helper@shell.test", role)
    why: dict[str, Any] = {"reason": "x", "by": actor(helper), "now": now}
    for attempt in (
        lambda: make_operator(user_id=bea.pk, roles={role}, **why),
        lambda: change_roles(user_id=owner.pk, roles={role}, **why),
        lambda: dismiss_operator(user_id=owner.pk, **why),
        lambda: disable(user_id=owner.pk, **why),
        lambda: delete_user(user_id=owner.pk, **why),
        lambda: erase_user(user_id=owner.pk, email=owner.email, **why),
    ):
        with pytest.raises(NotAnOwner):
            attempt()
    assert roles_of(owner) == {"owner"}
    assert not AuditEvent.objects.exists()


@pytest.mark.django_db
def test_a_right_that_was_taken_meanwhile_counts_no_more(
    owner: User, bea: User, by: Actor, now: datetime
) -> None:
    second = account("second@shell.test", Role.OWNER)
    change_roles(user_id=second.pk, roles={"support"}, reason="x", by=actor(owner), now=now)
    with pytest.raises(NotAnOwner):
        make_operator(user_id=bea.pk, roles={"owner"}, reason="x", by=actor(second), now=now)


@pytest.mark.django_db
@pytest.mark.parametrize(
    "take_over",
    [
        lambda **who: change_email(email="mine@shell.test", **who),
        set_one_time_password,
    ],
    ids=["email", "one-time password"],
)
def test_taking_over_an_account_is_an_owners_right(
    owner: User, user: User, now: datetime, take_over: Callable[..., Any]
) -> None:
    for role in sorted({*Role.values} - {Role.OWNER}):
        helper = account(f"{role}@shell.test", role)
        with pytest.raises(NotYourRight):
            take_over(user_id=user.pk, reason="x", by=actor(helper), now=now)
    take_over(user_id=user.pk, reason="x", by=actor(owner), now=now)


@pytest.mark.django_db
def test_a_role_clears_the_permissions_from_before(owner: User, bea: User, now: datetime) -> None:
    User.objects.filter(pk=bea.pk).update(is_staff=True)
    bea.user_permissions.set(Permission.objects.all())
    bea.groups.add(Group.objects.create(name="friends"))
    given = {"user_id": bea.pk, "reason": "x", "by": actor(owner), "now": now}
    change_roles(roles={"auditor"}, **given)
    assert User.objects.get(pk=bea.pk).get_all_permissions() == rights_of("auditor")


@pytest.mark.django_db
@pytest.mark.parametrize("role", Role.values)
def test_roles_mean_something_for_operators_who_may_sign_in_alone(role: str, bea: User) -> None:
    bea.groups.add(Group.objects.get_or_create(name=role)[0])
    assert not User.objects.get(pk=bea.pk).get_all_permissions()
    User.objects.filter(pk=bea.pk).update(is_staff=True)
    assert User.objects.get(pk=bea.pk).get_all_permissions() == rights_of(role)
    User.objects.filter(pk=bea.pk).update(is_active=False)
    assert not User.objects.get(pk=bea.pk).get_all_permissions()


@pytest.mark.django_db
def test_only_enabled_people_with_a_password_and_no_client_become_operators(
    owner: User, bea: User, user: User, organisation: Client, by: Actor, now: datetime
) -> None:
    def make(person: User, *roles: str) -> None:
        why: dict[str, Any] = {"reason": "x", "by": actor(owner), "now": now}
        make_operator(user_id=person.pk, roles=roles or {"support"}, **why)

    invited = add_user(email="new@shell.test", client=None, by=by, now=now)
    disabled = account("gone@shell.test", is_active=False)
    helper = account("helper@shell.test", Role.SUPPORT)
    refusals: list[tuple[User, type[Problem], str]] = [
        (user, BelongsToClient, "operators belong to none"),
        (invited, NotAccepted, "never set a password"),
        (disabled, NotEnabled, "disabled"),
        (helper, IsOperator, "already"),
    ]
    for person, refusal, sentence in refusals:
        with pytest.raises(refusal) as refused:
            make(person)
        assert sentence in refused.value.detail
    for roles in ((), ("king",)):
        with pytest.raises(InvalidRequest) as refused:
            make_operator(user_id=bea.pk, roles=roles, reason="x", by=actor(owner), now=now)
        assert refused.value.errors[0].pointer == "/roles"
    with pytest.raises(IsNoOperator):
        change_roles(user_id=bea.pk, roles={"support"}, reason="x", by=actor(owner), now=now)
    with pytest.raises(InvalidRequest) as refused:
        move_user(user_id=helper.pk, client=organisation, reason="x", by=actor(owner), now=now)
    assert refused.value.errors[0].code == "operator"
    assert set(Operator.objects.values_list("email", flat=True)) == {owner.email, helper.email}


@pytest.mark.django_db
def test_a_refusal_for_want_of_a_password_names_what_mends_it(
    owner: User, by: Actor, now: datetime
) -> None:
    person = add_user(email="new@shell.test", client=None, by=by, now=now)
    why: dict[str, Any] = {"user_id": person.pk, "reason": "x", "by": actor(owner), "now": now}
    with pytest.raises(NotAccepted) as refused:
        make_operator(roles={"support"}, **why)
    assert "Set a one-time password" in refused.value.detail
    request = RequestFactory().get("/")
    request.user = owner
    assert SetOneTimePassword().available(person, by=request)
    secret = find_one_time(
        email=person.email, password=set_one_time_password(**why).password, now=now
    )
    chosen = {"presented": secret, "password": "another good horse battery"}
    use_link(**chosen, address=None, request_id="", now=now)
    make_operator(roles={"support"}, **why)
    assert roles_of(person) == {"support"}


@pytest.mark.django_db
def test_the_database_refuses_operators_of_clients_and_without_a_password(
    bea: User, user: User, organisation: Client
) -> None:
    people = User.objects
    helper = account("helper@shell.test", Role.SUPPORT)
    nobody = User.objects.create_user("new@shell.test")
    for attempt, why in (
        (lambda: people.filter(pk=user.pk).update(is_staff=True), "belongs to no client"),
        (lambda: people.filter(pk=helper.pk).update(client=organisation), "belongs to no client"),
        (lambda: account("x@acme.test", "owner", client=organisation), "belongs to no client"),
        (lambda: people.filter(pk=nobody.pk).update(is_staff=True), "has set a password"),
    ):
        with pytest.raises(IntegrityError, match=why), transaction.atomic():
            attempt()
    assert people.filter(pk=bea.pk).update(is_staff=True) == 1


@pytest.mark.django_db
def test_an_operator_of_a_client_from_before_works_on_and_gains_nothing(
    owner: User, user: User, now: datetime
) -> None:
    with without_triggers():
        User.objects.filter(pk=user.pk).update(is_staff=True)
        User.objects.get(pk=user.pk).put_roles({"support", "release"})
    User.objects.get(pk=user.pk).save()
    given = {"user_id": user.pk, "reason": "x", "by": actor(owner), "now": now}
    with pytest.raises(BelongsToClient):
        change_roles(roles={"support", "licensing"}, **given)
    change_roles(roles={"support"}, **given)
    move_user(client=None, **given)
    change_roles(roles={"support", "licensing"}, **given)
    assert roles_of(user) == {"support", "licensing"}


@pytest.mark.django_db
def test_the_last_owner_stays(owner: User, by: Actor, now: datetime) -> None:
    # Neither counts: the one is disabled, the other has another role.
    account("gone@shell.test", Role.OWNER, is_active=False)
    account("helper@shell.test", *(set(Role.values) - {Role.OWNER}))
    why: dict[str, Any] = {"user_id": owner.pk, "reason": "x", "by": by, "now": now}
    for attempt in (
        lambda: disable(**why),
        lambda: delete_user(**why),
        lambda: erase_user(email=owner.email, **why),
        lambda: dismiss_operator(**why),
        lambda: change_roles(roles={"support"}, **why),
    ):
        with pytest.raises(LastOwner):
            attempt()
    assert roles_of(owner) == {"owner"}
    account("second@shell.test", Role.OWNER)
    assert disable(**why) == 0


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    "remove",
    [
        dismiss_operator,
        disable,
        lambda **who: change_roles(roles={"auditor"}, **who),
    ],
    ids=["dismiss", "disable", "change"],
)
def test_one_of_the_owners_who_remove_each_other_at_once_remains(
    remove: Callable[..., Any], now: datetime
) -> None:
    for round_ in range(ROUNDS):
        first, second, third = (
            account(f"{name}-{round_}@shell.test", Role.OWNER) for name in ("a", "b", "c")
        )

        def removal(by: User, of: User) -> Callable[[], Any]:
            return lambda: remove(user_id=of.pk, reason="x", by=actor(by), now=now)

        ended = race(removal(first, second), removal(second, third), removal(third, first))
        left = set(User.objects.owners().values_list("pk", flat=True))
        assert left, ended
        removed = {first.pk, second.pk, third.pk} - left
        # An owner who was removed removes nobody afterwards, so one or two succeeded.
        assert len(removed) == sum(not isinstance(each, Exception) for each in ended) in {1, 2}
        refusals = [each for each in ended if isinstance(each, Exception)]
        assert all(isinstance(each, NotAnOwner | LastOwner) for each in refusals), refusals
        User.objects.all().delete()


@pytest.mark.django_db
def test_the_command_for_the_first_operator_makes_an_owner(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DJANGO_SUPERUSER_EMAIL", "first@shell.test")
    call_command("createsuperuser", "--noinput")
    first = User.objects.get(email="first@shell.test")
    assert (first.roles, first.is_owner, first.is_superuser) == ({"owner"}, True, True)
    assert first.groups.get().name == "owner"
    assert AuditEvent.objects.get(action="operator:added").after["roles"] == ["owner"]  # type: ignore[index]
