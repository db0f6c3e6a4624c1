"""Operators are touched only by those who may make operators: in every act that is about a person."""

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from typing import Any

import pytest
from django.contrib import admin
from django.db.models import Field
from django.test import RequestFactory
from django.urls import reverse

from accounts.admin.fields import PersonField
from accounts.audit import Actor
from accounts.models import AuditEvent, Role, User
from config.composition.roles import rights_of
from config.console.actions import Action, BulkAction
from tests.conftest import Browser
from tests.console.conftest import World
from tests.console.test_every_act import SAID, address_of, arranged, filled

pytestmark = pytest.mark.django_db

REFUSED = "This is an operator. Only owners may change operators."
# Acts of owners alone.
OF_OPERATORS = {"operator", "roles", "dismiss", "set_up_code", "reset_factor"}


def column_of_person(model: Any) -> str | None:
    """Returns the column by which a model refers to a person."""
    if model is User:
        return "pk"
    columns = (field for field in model._meta.get_fields() if isinstance(field, Field))
    return next(
        (each.attname for each in columns if each.related_model is User or each.name == "user_id"),
        None,
    )


def consoles() -> Iterator[Any]:
    """The pages of what is a person's, or a person."""
    for model, console in admin.site._registry.items():
        if console.row_actions and column_of_person(model):
            yield console


def acts() -> list[tuple[Any, Action]]:
    return [(console, act) for console in consoles() for act in console.row_actions]


def rows(console: Any, act: Action, request: Any) -> list[Any]:
    """Returns the rows for which an act is offered."""
    every = console.model._default_manager.all()
    return [row for row in every if console.available(request, act, row)]


@pytest.fixture
def helper(db: None, operator_of: Callable[[Iterable[str]], User]) -> User:
    """An operator with every right who is no owner."""
    return operator_of(rights_of(Role.OWNER))


@pytest.fixture
def browser(stranger: Browser, helper: User, world: World, by: Actor, now: datetime) -> Browser:
    arranged(world, by, now)
    stranger.force_login(helper)
    return stranger


def all_become_operators() -> None:
    # Half of it does; who may enter the console is for another act to say.
    User.objects.filter(is_staff=False).update(is_superuser=True)


def asked_by(user: User, rf: RequestFactory) -> Any:
    request = rf.get("/")
    request.user = user
    return request


def test_every_page_identifies_the_people_of_its_rows(browser: Browser) -> None:
    found = 0
    for console in consoles():
        for row in console.model._default_manager.all():
            found += 1
            person = console.owner(row)
            assert person.pk == getattr(row, column_of_person(console.model)), console
    assert found > 20
    names = {f"{console.opts.model_name}:{act.name}" for console, act in acts()}
    assert names >= {
        "user:stop_calls", "user:restart_calls", "session:end", "connection:disconnect", "override:end",
        "runningcall:end", "connectionrevocation:dismiss",
    }  # fmt: skip


def test_every_act_about_a_person_is_for_all_but_operators(
    browser: Browser, helper: User, operator: User, rf: RequestFactory
) -> None:
    before = {act: rows(console, act, asked_by(helper, rf)) for console, act in acts()}
    assert {act.name for act, found in before.items() if not found} == OF_OPERATORS
    all_become_operators()
    newest = AuditEvent.objects.count()
    for console, act in acts():
        if act.name == "operator":
            continue
        theirs = rows(console, act, asked_by(operator, rf))
        assert theirs, (console, act)
        assert not rows(console, act, asked_by(helper, rf)), (console, act)
        for row in theirs:
            address = address_of(console, act, row)
            for answer in (browser.get(address), browser.post(address, {"reason": "x"})):
                assert (answer.status_code, act.name in answer["Location"]) == (302, False), address
        if isinstance(act, BulkAction):
            label = f"{console.opts.app_label}_{console.opts.model_name}"
            chosen = {"target": [row.pk for row in theirs], "reason": "x"}
            answer = browser.post(reverse(f"admin:{label}_{act.name}_several"), chosen)
            assert answer["Location"] == reverse(f"admin:{label}_changelist"), act
            listed = {"action": act.name, "_selected_action": [row.pk for row in theirs]}
            answer = browser.post(reverse(f"admin:{label}_changelist"), listed)
            assert answer.status_code == 302, act
    assert AuditEvent.objects.count() == newest


def test_a_form_names_an_operator_to_no_avail(
    browser: Browser, helper: User, world: World, rf: RequestFactory, now: datetime
) -> None:
    forms = []
    for console in admin.site._registry.values():
        act: Any = console.add_action  # type: ignore[attr-defined]
        form = act and act.form(None, None, by=asked_by(helper, rf))
        if form and any(isinstance(field, PersonField) for field in form.fields.values()):
            given = {name: filled(field, name, now=now) for name, field in form.fields.items()}
            given |= SAID[f"{console.opts.model_name}_{act.name}"](None)
            forms.append((address_of(console, act, None), given))
    assert [address for address, _ in forms] == [reverse("admin:usage_override_add")]
    all_become_operators()
    for address, given in forms:
        answer = browser.post(address, given)
        assert REFUSED in answer.content.decode(), address
    User.objects.update(is_superuser=False)
    for address, given in forms:
        assert browser.post(address, given).status_code == 302


def test_an_operator_who_waits_for_an_invitation_is_sent_none_through_their_client(
    browser: Browser, console: Browser, world: World
) -> None:
    address = reverse("admin:accounts_client_invite", args=[world.client.pk])
    mine, theirs = {"emails": "waits-too@acme.test"}, {"emails": "waits@acme.test\nnew@acme.test"}
    assert User.objects.get(email="waits@acme.test").is_staff
    assert browser.post(address, mine).status_code == 302
    refused = browser.post(address, theirs)
    assert f"waits@acme.test: {REFUSED}" in refused.content.decode()
    assert not User.objects.filter(email="new@acme.test").exists()
    assert console.post(address, theirs).status_code == 302
