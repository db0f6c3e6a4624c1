"""Processes keep the catalogue as long as its version, which each change of it changes, whoever makes it."""

from collections.abc import Callable

import pytest
from django.db import connection
from pytest_django import DjangoAssertNumQueries

from accounts.models import Session, User
from accounts.sessions.sign_in import TokenPair
from licensing.callers import Caller, load_caller
from licensing.models import Plan
from licensing.permissions import NotEntitled
from llmproxy.catalogue.choosing import Choice, UnknownModel, choose
from llmproxy.models import LanguageModel, Provider, Route
from llmproxy.requests.call_request import Surface

pytestmark = pytest.mark.django_db
Load = Callable[[], Caller]


@pytest.fixture
def caller(pair: TokenPair, user: User) -> Load:
    session = Session.objects.get()

    def load() -> Caller:
        caller = load_caller(user_id=user.pk, session_id=session.pk)
        assert caller is not None
        return caller

    return load


@pytest.fixture
def route() -> Route:
    provider = Provider.objects.create(name="elsewhere", base_url="https://one.test")
    model = LanguageModel.objects.create(name="kept", provider_name="kept-1")
    model.routes.all().delete()
    return Route.objects.create(model=model, provider=provider, provider_name="kept-1")


def chosen(caller: Caller) -> Choice:
    return choose("kept", surface=Surface.CHAT, caller=caller)


def told(choice: Choice) -> tuple[object, ...]:
    target = choice.targets[0]
    switches = target.passes_all, target.fetches
    return choice.output_limit, target.base_url, target.model, target.prices, switches


def test_a_model_is_read_once_for_a_version(
    route: Route, caller: Load, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    known = told(chosen(caller()))
    same = caller()
    with django_assert_num_queries(0):
        assert told(chosen(same)) == known


@pytest.mark.parametrize(
    "edit",
    [
        "UPDATE llmproxy_languagemodel SET output_limit = 77",
        "UPDATE llmproxy_provider SET base_url = 'https://other.test'",
        "UPDATE llmproxy_provider SET member_names = 'all'",
        "UPDATE llmproxy_provider SET fetches = 'yes'",
        "UPDATE llmproxy_route SET provider_name = 'kept-2'",
        "UPDATE llmproxy_route SET input_price = 1, output_price = 1",
    ],
)
def test_a_change_by_sql_counts_at_once(route: Route, caller: Load, edit: str) -> None:
    before = told(chosen(caller()))
    with connection.cursor() as cursor:
        cursor.execute(edit)
    assert told(chosen(caller())) != before


def test_a_model_that_is_removed_or_for_other_plans_is_so_at_once(
    route: Route, caller: Load
) -> None:
    model, plan = route.model, caller().plan_id
    assert plan is not None
    chosen(caller())
    model.plans.set([Plan.objects.create(name="other")])
    with pytest.raises(NotEntitled):
        chosen(caller())
    model.plans.set([plan])
    chosen(caller())
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM llmproxy_route")
        cursor.execute("DELETE FROM llmproxy_languagemodel_plans")
        cursor.execute("DELETE FROM llmproxy_languagemodel")
    with pytest.raises(UnknownModel):
        chosen(caller())
