"""Every page of the console: who may see it, what it costs, and what it never shows."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib import admin
from django.db import connection
from django.db.models import Model
from django.test import Client as DjangoClient
from django.test.utils import CaptureQueriesContext
from django.urls import NoReverseMatch, reverse

from accounts.models import (
    AuditEvent,
    Client,
    Operator,
    RefreshToken,
    Session,
    SigningKey,
    User,
)
from config.console.actions import BulkAction
from config.console.base import ConsoleAdmin
from licensing.models import Licence, Plan
from llmproxy.models import LanguageModel
from releases.models import ShellRelease
from tests.conftest import Browser
from tests.console.conftest import World
from usage.models import Alert, MonthlyUsage, Override, RunningCall, UsageRecord

pytestmark = pytest.mark.django_db

LISTED = {
    Alert, AuditEvent, Client, LanguageModel, Licence, MonthlyUsage, Operator, Override, Plan,
    RefreshToken, RunningCall, Session, ShellRelease, SigningKey, UsageRecord, User,
}  # fmt: skip
# Lists without pages of rows.
LISTED_ALONE = {Operator, RefreshToken}
# Session, its end, person, count, rows, and a few for what stands beside them; a list of eight rows with a query for
# each would pass either.
MOST_QUERIES_OF_A_LIST = 9
# The page that erases counts each kind of rows.
MOST_QUERIES_OF_A_ROW = 21
# Of a person, the rules that admit calls are run dry, each with what it reads.
MOST_QUERIES_OF_A_PERSON = 35
# The attention list of clients: one query finds the kinds that have rows, and each of those takes one or a few.
MOST_QUERIES_OF_PROBLEMS = 8
CLIENTS = "/admin/accounts/client/"
OWN = ("/admin/", "/admin/password_change/", "/admin/password_change/done/")


def registered() -> list[tuple[type[Model], Any]]:
    return list(admin.site._registry.items())


def lists() -> Iterator[tuple[Any, str]]:
    for model, console in registered():
        label = f"{model._meta.app_label}_{model._meta.model_name}"
        yield console, reverse(f"admin:{label}_changelist")


def pages_of_rows() -> Iterator[str]:
    """The pages of the first two rows of every model, with those of all their acts."""
    for model, console in registered():
        label = f"{model._meta.app_label}_{model._meta.model_name}"
        names = ["change", *(act.name for act in console.row_actions)]
        for row in model._default_manager.all()[:2]:
            for name in names:
                try:
                    yield reverse(f"admin:{label}_{name}", args=[row.pk])
                except NoReverseMatch:
                    assert model in LISTED_ALONE
        if console.add_action is not None:
            yield reverse(f"admin:{label}_add")


def every_page() -> list[str]:
    return [*OWN, *(address for _, address in lists()), *pages_of_rows()]


def asked(browser: DjangoClient, address: str) -> tuple[Any, int]:
    """The answer, and the number of queries it took."""
    with CaptureQueriesContext(connection) as queries:
        response = browser.get(address)
    return response, len(queries)


def test_every_model_an_operator_needs_is_there() -> None:
    models = {model for model, _ in registered()}
    assert models >= LISTED
    assert all(isinstance(console, ConsoleAdmin) for _, console in registered())


def test_every_list_takes_a_bounded_number_of_queries(console: Browser, world: World) -> None:
    for _, address in lists():
        response, queries = asked(console, address)
        assert response.status_code == 200, address
        problems = MOST_QUERIES_OF_PROBLEMS if address == CLIENTS else 0
        assert queries <= MOST_QUERIES_OF_A_LIST + problems, (address, queries)


def test_every_row_takes_a_bounded_number_of_queries(console: Browser, world: World) -> None:
    for address in pages_of_rows():
        response, queries = asked(console, address)
        assert response.status_code in {200, 302}, address
        is_person = address.startswith("/admin/accounts/user/")
        most = MOST_QUERIES_OF_A_PERSON if is_person else MOST_QUERIES_OF_A_ROW
        problems = MOST_QUERIES_OF_PROBLEMS if address.startswith(CLIENTS) else 0
        assert queries <= most + problems, (address, queries)


@pytest.mark.full
def test_every_list_can_be_searched_for_words_addresses_and_ids(
    console: Browser, world: World
) -> None:
    for word in ("acme", "192.0.2.1", "%_'\"\\", str(world.person.pk), "1" * 400):
        for model_console, address in lists():
            if model_console.search_fields:
                assert console.get(address, {"q": word}).status_code == 200, (address, word)


@pytest.mark.full
def test_every_filter_of_every_list_can_be_chosen(console: Browser, world: World) -> None:
    tried = 0
    for _, address in lists():
        for spec in console.get(address).context["cl"].filter_specs:
            for choice in spec.choices(console.get(address).context["cl"]):
                tried += 1
                assert console.get(f"{address}{choice['query_string']}").status_code == 200
    assert tried > 30


@pytest.mark.parametrize(
    "query", ["subject=nonsense", "month=0000-13", "state=nonsense", "p=99", "e=1"]
)
def test_a_list_asked_for_nonsense_is_no_error_of_ours(
    console: Browser, world: World, query: str
) -> None:
    for _, address in lists():
        assert console.get(f"{address}?{query}").status_code in {200, 302, 400}, address


def test_strangers_see_nothing_but_the_login_form(stranger: Browser, world: World) -> None:
    for address in every_page():
        response = stranger.get(address)
        assert response.status_code == 302, address
        assert response["Location"].startswith("/admin/login/"), address


def test_people_of_the_shell_see_nothing_either(stranger: Browser, world: World) -> None:
    stranger.force_login(world.person)
    for address in every_page():
        response = stranger.get(address)
        assert response.status_code == 302, address
        assert response["Location"].startswith("/admin/login/"), address


def test_an_operator_without_rights_sees_no_rows(stranger: Browser, world: World) -> None:
    stranger.force_login(User.objects.create_user("new@shell.test", is_staff=True))
    for _, address in lists():
        assert stranger.get(address).status_code == 403, address
    for address in pages_of_rows():
        assert stranger.get(address).status_code == 403, address


@pytest.mark.full
def test_asking_changes_nothing(console: Browser, world: World) -> None:
    def counts() -> dict[str, Any]:
        found: dict[str, Any] = {
            model.__name__: list(model._default_manager.order_by("pk").values())
            for model, _ in registered()
        }
        return found

    before = counts()
    for address in every_page():
        console.get(address)
    assert counts() == before


def test_nothing_is_edited_in_place(console: Browser, world: World) -> None:
    for model, model_console in registered():
        label = f"{model._meta.app_label}_{model._meta.model_name}"
        row = model._default_manager.first()
        if model in LISTED_ALONE or row is None:
            continue
        assert console.post(reverse(f"admin:{label}_change", args=[row.pk])).status_code == 403
        assert console.post(reverse(f"admin:{label}_delete", args=[row.pk])).status_code == 403
        if model_console.add_action is None:
            assert console.post(reverse(f"admin:{label}_add")).status_code == 403


def test_no_page_shows_a_secret(console: Browser, world: World) -> None:
    assert len(world.secrets) > 20
    for address in every_page():
        text = console.get(address).content.decode()
        for secret in world.secrets:
            assert secret not in text, address


def test_a_refresh_token_has_no_page_of_its_own(console: Browser, world: World) -> None:
    token = RefreshToken.objects.all()[:1].get()
    listed = console.get(reverse("admin:accounts_refreshtoken_changelist")).content.decode()
    assert f"{str(token.pk)[:8]}…" in listed
    assert console.get(f"/admin/accounts/refreshtoken/{token.pk}/change/").status_code == 404


@pytest.mark.full
def test_names_of_people_are_text_and_never_markup(console: Browser, world: World) -> None:
    for address in every_page():
        assert b"Borealis <script>" not in console.get(address).content, address


@pytest.mark.full
def test_pages_ask_nobody_else_and_run_no_script_of_their_own(
    console: Browser, world: World
) -> None:
    for address in every_page():
        response = console.get(address)
        if response.status_code != 200:
            continue
        assert "script-src 'self'" in response["Content-Security-Policy"], address
        text = response.content.decode()
        sources = re.findall(r"<(?:script|link|img)\b[^>]*?\b(?:src|href)=\"([^\"]*)\"", text)
        assert sources, address
        assert all(source.startswith(("/", "data:,")) for source in sources), (address, sources)
        assert not re.search(r"<script(?![^>]*\bsrc=)[^>]*>\s*\S", text), address


def test_forms_are_refused_without_their_token(operator: User, world: World) -> None:
    strict = Browser(enforce_csrf_checks=True)
    strict.force_login(operator)
    for address in pages_of_rows():
        assert strict.post(address, {"reason": "x"}).status_code == 403, address


def test_every_field_has_a_label_and_every_page_a_heading(console: Browser, world: World) -> None:
    for address in every_page():
        response = console.get(address)
        if response.status_code != 200:
            continue
        text = response.content.decode()
        assert text.count("<h1") == 1, address
        labelled = set(re.findall(r"<label[^>]*\bfor=\"([^\"]+)\"", text))
        form = text[text.index('id="content-start"') :]
        for tag in re.findall(r"<(?:input|select|textarea)\b[^>]*>", form):
            kind = re.search(r'type="(\w+)"', tag)
            identity = re.search(r'\bid="([^"]+)"', tag)
            if (kind and kind[1] in {"hidden", "submit", "checkbox"}) or 'name="action"' in tag:
                continue
            named = "aria-label" in tag or (identity is not None and identity[1] in labelled)
            # A group of radio buttons is named by its legend, each by the label around it.
            assert named or (kind and kind[1] == "radio"), (address, tag)


def test_acts_on_several_are_offered_where_rows_are_chosen(console: Browser, world: World) -> None:
    for model_console, address in lists():
        names = {act.name for act in model_console.row_actions if isinstance(act, BulkAction)}
        text = console.get(address).content.decode()
        for name in names:
            assert f'name="action" value="{name}">' in text, (address, name)
        assert ("action-checkbox" in text) == bool(names), address
