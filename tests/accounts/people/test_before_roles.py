"""Operators from before roles get the role that fits their permissions, which count no more."""

from collections.abc import Callable
from datetime import datetime
from importlib import import_module
from typing import Any

import pytest
from django.apps import apps
from django.contrib import auth
from django.contrib.auth.models import Group, Permission
from django.contrib.contenttypes.models import ContentType
from django.test import RequestFactory
from django.urls import reverse

from accounts.audit import Actor
from accounts.models import AuditEvent, Role, User
from accounts.people.one_time_passwords import set_one_time_password
from accounts.people.users import change_email
from accounts.rights import NotYourRight
from config.composition.attention.listing import items
from config.platform.acts import PAGES, RIGHTS
from tests.conftest import PASSWORD, SIGNS_IN, Browser
from tests.console.conftest import password_hash

pytestmark = pytest.mark.django_db
MIGRATION = import_module("accounts.migrations.0036_operators_from_before_roles_get_one")
LICENSING = {
    "accounts.add_client", "accounts.change_client", "licensing.change_licence", "usage.add_override",
    "usage.view_usagerecord",
}  # fmt: skip
EVERYTHING_OF_RELEASE = {
    "releases.change_appversion", "releases.change_microapp", "releases.change_shellchannel",
    "releases.delete_apppin", "releases.view_appchannel", "releases.view_apppin",
    "releases.view_shellrelease", "telemetry.view_event", "procrastinate.change_procrastinatejob",
}  # fmt: skip


@pytest.fixture(autouse=True)
def _permissions_of_before(db: None) -> None:
    """Held suspensions were once brakes; a new database lacks their permissions."""
    kind, _ = ContentType.objects.get_or_create(app_label="licensing", model="brake")
    for verb in ("add", "change", "delete", "view"):
        Permission.objects.get_or_create(
            content_type=kind, codename=f"{verb}_brake", defaults={"name": f"Can {verb} brake"}
        )


def before(email: str, *permissions: str, **fields: Any) -> User:
    """An operator as releases before roles could make one."""
    fields = {"password": password_hash(), "is_staff": True, **fields}
    operator = User.objects.create(email=email, **fields)
    operator.user_permissions.set(rows(*permissions))
    return operator


def rows(*names: str) -> list[Permission]:
    parts = [each.split(".") for each in names]
    return [Permission.objects.get(content_type__app_label=a, codename=b) for a, b in parts]


def every(*, verb: str = "") -> list[str]:
    known = Permission.objects.filter(codename__startswith=verb)
    return [
        f"{a}.{b}" for a, b in known.values_list("content_type__app_label", "codename").distinct()
    ]


def migrate() -> None:
    MIGRATION.give_roles(apps, None)


def roles_of(user: User) -> frozenset[str]:
    return User.objects.get(pk=user.pk).roles


@pytest.mark.parametrize(
    ("permissions", "role"),
    [
        ({"accounts.view_client"}, Role.AUDITOR),
        ({"usage.view_usagerecord", "accounts.view_signingkey"}, Role.AUDITOR),
        # Nobody could change an event, and its page opened for whoever might.
        ({"accounts.change_auditevent"}, Role.AUDITOR),
        (LICENSING, Role.LICENSING),
        ({"accounts.add_user"}, Role.LICENSING),
        ({"accounts.change_session", "accounts.delete_connection"}, Role.SUPPORT),
        ({"usage.add_override"}, Role.SUPPORT),
        ({"releases.change_shellchannel"}, Role.RELEASE),
        # Permissions that allowed nothing in the console are no obstacle.
        ({"releases.change_shellchannel", "auth.add_group", "accounts.delete_session"}, Role.RELEASE),
        # Rights of owners alone, of an operator who also had all rights of a role.
        (EVERYTHING_OF_RELEASE, Role.RELEASE),
        (EVERYTHING_OF_RELEASE | {"accounts.delete_user"}, Role.RELEASE),
        ({"accounts.change_user"}, None),
        ({"accounts.delete_user", "accounts.view_user"}, None),
        ({"llmproxy.add_provider"}, None),
        ({"releases.change_shellchannel", "licensing.change_licence"}, None),
        ({"auth.add_group"}, None),
        (set(), None),
    ],
)  # fmt: skip
def test_an_operator_gets_the_role_that_fits_his_permissions(
    permissions: set[str], role: Role | None
) -> None:
    operator = before("helper@shell.test", *permissions)
    migrate()
    assert roles_of(operator) == ({role} if role else set())
    assert {each.codename for each in operator.user_permissions.all()} == {
        each.partition(".")[2] for each in permissions
    }


def test_permissions_of_groups_made_by_hand_count_as_well() -> None:
    operator = before("helper@shell.test", "accounts.change_session")
    friends = Group.objects.create(name="friends")
    friends.permissions.set(rows("licensing.change_licence"))
    reader = before("reader@shell.test")
    for each in (operator, reader):
        each.groups.add(friends)
    migrate()
    assert roles_of(operator) == set()
    assert roles_of(reader) == {Role.LICENSING}


def test_an_operator_who_could_look_at_everything_is_an_auditor_and_with_all_else_no_owner() -> (
    None
):
    viewer = before("viewer@shell.test", *every(verb="view_"))
    almighty = before("almighty@shell.test", *every())
    migrate()
    assert roles_of(viewer) == {Role.AUDITOR}
    assert roles_of(almighty) == {Role.LICENSING}


def test_owners_operators_with_roles_and_people_are_left_alone() -> None:
    superuser = before("root@shell.test", "accounts.change_session", is_superuser=True)
    supporter = before("support@shell.test", "licensing.change_licence")
    supporter.groups.add(Group.objects.get(name=Role.SUPPORT))
    person = before("person@shell.test", "accounts.change_session", is_staff=False)
    migrate()
    assert roles_of(superuser) == {Role.OWNER}
    assert roles_of(supporter) == {Role.SUPPORT}
    for nobody in (superuser, person):
        assert not nobody.groups.exists()
    assert not AuditEvent.objects.exists()


def test_the_audit_log_names_each_and_a_second_time_nothing_happens() -> None:
    before("a@shell.test", "usage.add_override")
    before("b@shell.test", *EVERYTHING_OF_RELEASE)
    lost = before("c@shell.test", "accounts.change_user")
    migrate()
    events = AuditEvent.objects.filter(action="user:operator_set").order_by("target")
    assert [(each.target, (each.after or {})["roles"], each.reason) for each in events] == [
        ("a@shell.test", ["support"], MIGRATION.ALL_HELD),
        ("b@shell.test", ["release"], MIGRATION.PART_HELD),
        ("c@shell.test", [], MIGRATION.NOT_HELD),
    ]
    assert {each.actor for each in events} == {"manage.py migrate"}
    last = events[2]
    assert last.target_id == str(lost.pk)
    assert (last.before or {})["permissions"] == ["accounts.change_user", "accounts.view_user"]
    assert MIGRATION.Migration.operations[0].reversible


def test_an_operator_without_a_role_needs_attention_until_one_is_chosen(now: datetime) -> None:
    def told() -> str:
        return " ".join(str(each) for each in items(now=now) if each.kind.name == "without_role")

    operator = before("helper@shell.test", "accounts.change_user")
    before("owner@shell.test", is_superuser=True)
    before("gone@shell.test", is_active=False)
    migrate()
    assert told().startswith("1 operator without a role")
    operator.put_roles({Role.SUPPORT})
    assert told() == ""


def test_permissions_of_rows_give_no_right() -> None:
    operator = before("helper@shell.test", *every())
    friends = Group.objects.create(name="friends")
    friends.permissions.set(Permission.objects.all())
    operator.groups.add(friends)
    fresh = User.objects.get(pk=operator.pk)
    rights = {*every(), *(each.name for each in RIGHTS)}
    rights |= {each.model.replace(".", ".view_") for each in PAGES}
    assert not [each for each in sorted(rights) if fresh.has_perm(each)]
    assert not any(fresh.has_module_perms(each.partition(".")[0]) for each in rights)


@pytest.mark.parametrize(
    "take_over",
    [lambda **who: change_email(email="mine@shell.test", **who), set_one_time_password],
    ids=["email", "one-time password"],
)
def test_a_rule_refuses_permissions_of_rows(
    user: User, now: datetime, take_over: Callable[..., Any]
) -> None:
    operator = before("helper@shell.test", *every())
    with pytest.raises(NotYourRight):
        take_over(user_id=user.pk, reason="x", by=Actor(name="x", id=operator.pk), now=now)


def test_a_session_of_the_release_before_goes_on_and_gets_the_role(stranger: Browser) -> None:
    operator = before("reader@shell.test", "accounts.view_client")
    stranger.force_login(operator)
    assert stranger.session[auth.BACKEND_SESSION_KEY] == SIGNS_IN
    clients = reverse("admin:accounts_client_changelist")
    assert stranger.get(clients).status_code == 403
    migrate()
    assert stranger.get(clients).status_code == 200


def test_signing_in_names_the_backend_of_the_previous_release(rf: RequestFactory) -> None:
    operator = before("reader@shell.test")
    known: Any = auth.authenticate(rf.get("/"), username=operator.email, password=PASSWORD)
    assert (known, known.backend) == (operator, SIGNS_IN)
