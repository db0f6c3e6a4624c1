"""Each role may look at and do in the console what apps declare: every page and action is tried.

Pages and actions are found in the code, so that a new one without a role fails here.
"""

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from django.contrib import admin
from django.contrib.auth.models import Permission
from django.db import transaction
from django.urls import NoReverseMatch, URLResolver, reverse
from pytest_django.fixtures import Settings

from accounts.admin.exports import ExportedList
from accounts.admin.operators import OperatorAction
from accounts.audit import Actor
from accounts.models import Client, Role, User
from accounts.sessions.sign_in import TokenPair
from config.composition.roles import rights_of
from config.console.actions import Action
from config.platform.acts import PAGES, RIGHTS
from licensing.licences import create_client
from licensing.models import Plan
from tests.conftest import Browser
from tests.console.conftest import World
from tests.console.test_every_act import acts, arranged, written
from tests.generated_docs import role_rows

OTHERS = {Role.SUPPORT, Role.LICENSING, Role.RELEASE, Role.AUDITOR}
# Rights to see a block of another page, whose rows have no page of their own.
CLOSED = "nobody's"
BLOCKS = {"releases.appchannel"}


# The roles beside an owner that have each right.
EXPECTED: dict[str, set[str]] = {
    **{page.model: {*page.roles, Role.AUDITOR} for page in PAGES},
    **{right.name: {*right.roles} for right in RIGHTS},
}


def label_of(console: Any) -> str:
    return f"{console.opts.app_label}.{console.opts.model_name}"


def rights_of_actions() -> Iterator[str]:
    """The right of every action of every page."""
    for console in admin.site._registry.values():
        for act in (*console.row_actions, *filter(None, [console.add_action])):
            yield f"{label_of(console)}_{act.name}"
        if isinstance(console, ExportedList):
            yield f"{label_of(console)}_export"


def pages() -> Iterator[str]:
    yield from (label_of(console) for console in admin.site._registry.values())
    yield from BLOCKS


def test_every_page_and_action_is_declared_and_no_other() -> None:
    found = {*pages(), *rights_of_actions()}
    undeclared = sorted(found - EXPECTED.keys())
    assert undeclared == [], f"Owners alone may use {undeclared}: an app's `acts` declares each."
    gone = sorted(EXPECTED.keys() - found)
    assert gone == [], f"{gone} are declared and not there."


@pytest.mark.django_db
def test_every_page_is_there_by_the_name_in_the_docs(console: Browser) -> None:
    for right, kind, name, *_ in role_rows():
        address = f"admin:{right.replace('.', '_')}_changelist"
        if kind == "page":
            answer = console.get(reverse(address))
            assert answer.status_code == 200, right
            assert f"<h1>{name} " in " ".join(answer.content.decode().split()), right
        elif kind == "part of a page":
            with pytest.raises(NoReverseMatch):
                reverse(address)


def test_an_auditor_looks_at_every_page_and_changes_nothing() -> None:
    assert set().union(*EXPECTED.values()) == OTHERS
    views = {page.model.replace(".", ".view_") for page in PAGES}
    acts = rights_of(Role.AUDITOR) - views
    assert views <= rights_of(Role.AUDITOR)
    assert acts == {right for right in acts if right.endswith("_export")}


# Further readers of the console's addresses, by the name of the route: every operator, or nobody.
EVERY_OPERATOR = {
    "index",
    "alerts",
    "search",
    "logout",
    "password_change",
    "password_change_done",
    "jsi18n",
}
NOBODY = {"autocomplete", "view_on_site", None}
# Further pages of a model, for whoever may look at it.
FURTHER = {"accounts_user_explain", "releases_shellchannel_explain", "telemetry_event_volumes"}
# Addresses of no model, with the right that each wants.
OF_NO_MODEL = {
    "settings": "accounts.signingkey",
    "latency": "usage.monthlyusage",
    "usage_and_money": "usage.monthlyusage",
    "usage_and_money_export": "usage.usagerecord_export",
    "usage_statement": "usage.usagerecord_export",
}
PRINCIPALS = ("anonymous", "bearer", "none", *Role.values)
# Of these, a short run asks with two.
SHORT = ("anonymous", Role.SUPPORT.value)
ADD_A_ROUTE = "{} is an address of the console that no test knows: say in tests/console/test_roles.py who may open it"
# An action is sent by who may not; who may opens its page, and the next test sends it.
ACTION = "GET or POST"
Asked = tuple[str, str, str | None]


def routes(request: Any) -> Iterator[Asked]:
    """Each address of the console with a method and the right it wants (None: that of every operator)."""
    for pattern in admin.site.get_urls():
        if not isinstance(pattern, URLResolver):
            if pattern.name in EVERY_OPERATOR - {"logout"}:
                yield "GET", reverse(f"admin:{pattern.name}"), None
            elif right := OF_NO_MODEL.get(pattern.name):
                ending = ["csv"] if right.endswith("_export") else []
                asked = f"?client={Client.objects.all()[0].pk}&month=2026-11"
                yield "GET", f"{reverse(f'admin:{pattern.name}', args=ending)}{asked}", right
            else:
                known = {*EVERY_OPERATOR, *NOBODY, "login", "app_list"}
                assert pattern.name in known, ADD_A_ROUTE.format(pattern.name)
    for console in admin.site._registry.values():
        yield from routes_of(console, request)


def routes_of(console: Any, request: Any) -> Iterator[Asked]:
    """The addresses of one page of the console, with rows for which an owner may do each action."""
    label, prefix = label_of(console), label_of(console).replace(".", "_")
    named = {pattern.name for pattern in console.get_urls() if pattern.name}
    row = console.model._default_manager.first()
    named_acts = {act.name: act for act in console.row_actions}
    for name in named:
        part = name.removeprefix(f"{prefix}_")
        if part in {"changelist", "add"} or part.startswith("export_"):
            right = {"changelist": label, "add": f"{label}_add"}.get(part, f"{label}_export")
            closed = part == "add" and console.add_action is None
            yield "GET", reverse(f"admin:{name}"), CLOSED if closed else right
        elif part in {"change", "history"} and row is not None:
            yield "GET", reverse(f"admin:{name}", args=[row.pk]), label
            if part == "change":
                yield "POST", reverse(f"admin:{name}", args=[row.pk]), CLOSED
        elif part == "delete" and row is not None:
            yield "GET", reverse(f"admin:{name}", args=[row.pk]), CLOSED
        elif name in FURTHER:
            keys = [row.pk] if name.endswith("explain") else []
            yield "GET", reverse(f"admin:{name}", args=keys), label
        elif part.removesuffix("_several") in named_acts:
            act = named_acts[part.removesuffix("_several")]
            yield from routes_of_action(console, act, name, request)
        else:
            assert row is None, ADD_A_ROUTE.format(name)


def routes_of_action(console: Any, act: Action, name: str, request: Any) -> Iterator[Asked]:
    right = f"{label_of(console)}_{act.name}"
    if name.endswith("_several"):
        yield "POST", reverse(f"admin:{name}"), right
        return
    rows = [row for row in console.model._default_manager.all() if may(console, act, row, request)]
    assert rows, f"no row of this world allows {right}: arrange one"
    yield ACTION, reverse(f"admin:{name}", args=[rows[0].pk]), right


def may(console: Any, act: Action, row: Any, request: Any) -> bool:
    """Returns whether an owner may; rows of operators serve only what is about operators."""
    person = console.owner(row)
    of_operators = isinstance(act, OperatorAction)
    return console.available(request, act, row) and (
        of_operators or not (person and person.is_staff)
    )


def allowed(principal: str, right: str | None) -> bool:
    if principal in {"anonymous", "bearer"} or right == CLOSED:
        return False
    if right is None or principal == Role.OWNER:
        return True
    return principal in EXPECTED[right]


def operator_with(role: str) -> User:
    user = User.objects.create_user(f"{role}@roles.test", is_staff=True)
    user.put_roles({role} - {"none"})
    if role == "none":
        # As operators from before roles may have; they count nowhere.
        user.user_permissions.set(Permission.objects.all())
    return user


def browser_of(principal: str, pair: TokenPair) -> Browser:
    browser = Browser()
    if principal == "bearer":
        browser.defaults["HTTP_AUTHORIZATION"] = f"Bearer {pair.access}"
    elif principal != "anonymous":
        browser.force_login(operator_with(principal))
    return browser


@pytest.fixture
def asked(
    world: World, operator: User, by: Actor, now: datetime, rf: Any, settings: Settings
) -> list[Asked]:
    settings.CDN_PURGE = "purge"
    arranged(world, by, now)
    request = rf.get("/")
    request.user = operator
    return list(routes(request))


def outcomes(principal: str, pair: TokenPair, asked: list[Asked]) -> Iterator[str]:
    """The addresses that answer otherwise than declared."""
    browser = browser_of(principal, pair)
    refused = "signed out" if principal in {"anonymous", "bearer"} else 403
    for method, address, right in asked:
        opens = allowed(principal, right)
        if right == CLOSED and principal not in {"anonymous", Role.OWNER}:
            # An act refused to owners is refused to everybody.
            continue
        if method == "GET" or (method == ACTION and opens):
            answer = browser.get(address)
        else:
            answer = browser.post(address, {"reason": "x"})
        asked_to_sign_in = answer.status_code == 302 and "/admin/login/" in answer["Location"]
        was = "signed out" if asked_to_sign_in else answer.status_code
        if was not in ({200, 302} if opens else {refused}):
            yield f"{principal} {method} {address} ({right}): {was}"


@pytest.fixture
def organisation(plan: Plan, by: Actor, now: datetime) -> Client:
    """The callers' client, beside those of the pages."""
    return create_client(name="Callers", plan=plan, by=by, now=now)


@pytest.mark.django_db
@pytest.mark.parametrize(
    "principal",
    [
        # Each asks for every address; the others are `make test-full`'s.
        pytest.param(name, marks=() if name in SHORT else pytest.mark.full)
        for name in PRINCIPALS
    ],
)
def test_every_address_opens_for_those_alone_whose_roles_allow_it(
    principal: str, asked: list[Asked], pair: TokenPair
) -> None:
    assert len(asked) > 200
    wrong = list(outcomes(principal, pair, asked))
    assert wrong == [], "\n".join(wrong)


@pytest.mark.django_db
@pytest.mark.parametrize("role", sorted(OTHERS - {Role.AUDITOR}))
def test_each_role_can_do_its_work(
    role: str, asked: list[Asked], now: datetime, rf: Any, settings: Settings, tmp_path: Path
) -> None:
    files = {"BACKEND": "releases.delivery.storage.Files", "OPTIONS": {"location": str(tmp_path)}}
    settings.STORAGES = {**settings.STORAGES, "default": files}
    browser = Browser()
    request = rf.get("/")
    request.user = operator_with(role)
    browser.force_login(request.user)
    failed = {}
    for console, act in acts():
        right = f"{label_of(console)}_{act.name}"
        if role not in EXPECTED[right]:
            continue
        undone = transaction.savepoint()
        try:
            written(browser, request, (console, act), now=now)
        except Exception as error:  # noqa: BLE001 - whatever it is, the others are tried too
            failed[right] = repr(error)
        transaction.savepoint_rollback(undone)
    assert failed == {}, "\n".join(f"{right}: {why}" for right, why in failed.items())
