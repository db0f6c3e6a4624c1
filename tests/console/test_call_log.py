"""The list of calls: its filters, alone and together, in an address that can be kept; and its period."""

import csv
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from io import StringIO
from typing import Any
from urllib.parse import urlencode
from uuid import uuid4

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from accounts.audit import Actor
from accounts.models import AuditEvent, Client, User
from config.platform.periods import Period
from licensing.licences import create_client
from licensing.models import Plan
from llmproxy.models import LanguageModel, PersonalKey, Provider
from tests.conftest import Browser
from tests.console.test_roles import operator_with
from usage.models import UsageRecord

pytestmark = pytest.mark.django_db
PAGE = reverse("admin:usage_usagerecord_changelist")
KEY = "018f2d6e-0000-7000-8000-000000000001"
Make = Callable[..., UsageRecord]


@pytest.fixture
def other(plan: Plan, by: Actor) -> User:
    client = create_client(name="Borealis GmbH", plan=plan, by=by, now=timezone.now())
    return User.objects.create_user("bea@borealis.test", client=client)


@pytest.fixture
def make(user: User) -> Make:
    """Makes a settled call of Acme's person, an hour ago."""

    def make(**changed: Any) -> UsageRecord:
        at = changed.pop("at", timezone.now() - timedelta(hours=1))
        took = changed.pop("took", 5.0)
        person = changed.pop("user", user)
        period = Period.of(at)
        values = {
            "user": person,
            "client_id": person.client_id,
            "period": period.month,
            "day": period.day,
            "model": "small",
            "provider": "first",
            "streamed": True,
            "state": "settled",
            "end": "done",
            "source": "provider",
            "reserved_input": 1,
            "reserved_output": 1,
            "cost": 1_000,
            "opened_at": at,
            "expires_at": at + timedelta(minutes=11),
            "settled_at": at + timedelta(seconds=took),
        }
        if changed.get("state") == "open":
            values["source"] = ""
        return UsageRecord.objects.create(**{**values, **changed})

    return make


def listed(browser: Browser, **query: Any) -> Any:
    response = browser.get(PAGE, query)
    assert response.status_code == 200, query
    return response


def found(browser: Browser, **query: Any) -> set[Any]:
    return {row.pk for row in listed(browser, **query).context["cl"].result_list}


@pytest.fixture
def calls(make: Make, user: User, other: User) -> dict[str, UsageRecord]:
    PersonalKey.objects.create(
        id=KEY, user=user, name="Editor", hash=b"1" * 32, epoch=0, created_at=timezone.now(),
        expires_at=timezone.now() + timedelta(days=9),
    )  # fmt: skip
    told = {"attempts": [{"provider": "first"}], "left_out": 0, "told": None}
    return {
        "plain": make(),
        "theirs": make(user=other),
        "large": make(model="large", cost=2_500_000),
        "second": make(provider="second", failures=told),
        "failed": make(end="provider_failed", error_code="provider_unavailable"),
        "gone": make(end="client_gone"),
        # Of the release before, which kept no code.
        "old": make(end="stopped"),
        "batch": make(labels={"user": "batch", "metadata": {"team": "red=1", "run": "7"}}),
        "keyed": make(key_id=KEY),
        "slow": make(took=31.5),
        "open": make(state="open", end="", settled_at=None, cost=None),
    }


class TestFilters:
    @pytest.mark.parametrize(
        ("query", "names"),
        [
            ({"client": "Borealis GmbH"}, "theirs"),
            ({"client": "borealis"}, "theirs"),
            ({"client": "{theirs.client_id}"}, "theirs"),
            ({"client_id": "{theirs.client_id}"}, "theirs"),
            ({"client_id__exact": "{theirs.client_id}"}, "theirs"),
            ({"q": "Borealis GmbH"}, "theirs"),
            ({"person": "BEA@borealis.test"}, "theirs"),
            ({"person": "bea@"}, "theirs"),
            ({"user": "{theirs.user_id}"}, "theirs"),
            ({"user_id": "{theirs.user_id}"}, "theirs"),
            ({"user__id__exact": "{theirs.user_id}"}, "theirs"),
            ({"model": "large"}, "large"),
            ({"provider": "second"}, "second"),
            ({"failed": "first"}, "second"),
            ({"failed": "any"}, "second"),
            ({"failed": "second"}, ""),
            ({"is": "provider_failed"}, "failed"),
            ({"is": "error"}, "failed"),
            ({"end": "client_gone"}, "gone"),
            ({"end__exact": "client_gone"}, "gone"),
            ({"is": "open"}, "open"),
            ({"state__exact": "open"}, "open"),
            ({"error": "provider_unavailable"}, "failed"),
            ({"error_code": "provider_unavailable"}, "failed"),
            ({"error": "none"}, "old"),
            ({"label": "batch"}, "batch"),
            ({"label": "run=7"}, "batch"),
            ({"label": "team=red=1"}, "batch"),
            ({"label": "run=8"}, ""),
            ({"key": KEY}, "keyed"),
            ({"key": "editor"}, "keyed"),
            ({"key": "018f2d6e…"}, "keyed"),
            ({"key_id": KEY}, "keyed"),
            ({"slower": "30", "is": "done"}, "slow"),
            ({"slower": "31.4 s", "is": "done"}, "slow"),
            ({"slower": "31.5", "is": "done"}, ""),
            ({"dearer": "0.5"}, "large"),
            ({"dearer": "$2.499999"}, "large"),
            ({"dearer": "2.5"}, ""),
            ({"client": "Acme", "model": "large", "dearer": "1"}, "large"),
            ({"person": "ada@acme.test", "is": "error", "provider": "second"}, ""),
        ],
    )
    def test_a_filter_finds_its_calls(
        self, console: Browser, calls: dict[str, Any], query: dict[str, str], names: str
    ) -> None:
        asked = {name: value.format(**calls) for name, value in query.items()}
        assert found(console, **asked) == {calls[name].pk for name in names.split()}

    def test_calls_without_a_label_or_key_can_be_listed(
        self, console: Browser, calls: dict[str, Any]
    ) -> None:
        assert found(console, label="none") == {
            each.pk for name, each in calls.items() if name != "batch"
        }
        assert found(console, key="none") == {
            each.pk for name, each in calls.items() if name != "keyed"
        }

    @pytest.mark.parametrize(
        ("query", "sentence"),
        [
            ({"client": "Nimbus"}, "No client’s name contains “Nimbus”."),
            ({"person": "nobody@"}, "Nobody’s email contains “nobody@”."),
            ({"key": "Laptop"}, "No personal key is named “Laptop”."),
            ({"is": "odd"}, "“odd” is no state of a call."),
            ({"slower": "fast"}, "“fast” is not a number. Enter one such as 30."),
            ({"slower": "1e99"}, "“1e99” is not a number."),
            ({"slower": "-1"}, "“-1” is not a number."),
            ({"dearer": "NaN"}, "“NaN” is not a number. Enter one such as 0.50."),
            ({"days": "many"}, "“many” is no period."),
            ({"days": "0"}, "“0” is no period."),
            ({"days": "٣"}, "“٣” is no period."),
            ({"month": "2026-13"}, "“2026-13” is no period."),
            ({"opened_at__gte": "banana"}, "“banana” is not a time."),
            ({"opened_at__lt": "9999-12-31T23:59:59-23:59"}, "is not a time."),
        ],
    )
    def test_a_value_that_names_nothing_finds_nothing_and_says_so(
        self, console: Browser, calls: dict[str, Any], query: dict[str, str], sentence: str
    ) -> None:
        response = listed(console, **query)
        assert sentence in response.content.decode()
        assert response.context["cl"].result_count == 0

    @pytest.mark.parametrize(
        "name",
        ["client", "person", "model", "provider", "failed", "error", "label", "key", "slower", "q"],
    )
    @pytest.mark.parametrize("value", ["a" * 4_000, "%", "' OR 1=1", "{}", " "])
    def test_no_value_is_an_error(self, console: Browser, name: str, value: str) -> None:
        listed(console, **{name: value})

    def test_a_period_that_ends_before_it_begins_has_no_cost(
        self, console: Browser, user: User
    ) -> None:
        bounds = {"opened_at__gte": "2026-11-02", "opened_at__lt": "0001-01-01"}
        response = listed(console, person=user.pk, **bounds)
        assert response.context["spent"] is None

    def test_the_form_says_names_in_place_of_ids(
        self, console: Browser, calls: dict[str, Any], other: User
    ) -> None:
        text = listed(console, client=other.client_id, person=other.pk).content.decode()
        assert 'value="Borealis GmbH"' in text
        assert 'value="bea@borealis.test"' in text
        assert str(other.client_id) not in text.partition("<form class=")[2].partition("</form>")[0]

    def test_an_id_stays_where_two_clients_have_its_name(
        self, console: Browser, calls: dict[str, Any], other: User
    ) -> None:
        Client.objects.create(name="Borealis GmbH")
        text = listed(console, client=other.client_id).content.decode()
        assert f'value="{other.client_id}"' in text

    def test_the_form_proposes_clients_models_and_providers(
        self, console: Browser, calls: dict[str, Any]
    ) -> None:
        LanguageModel.objects.create(name="offered", provider_name="x")
        Provider.objects.create(name="spare", base_url="http://127.0.0.1:9/v1")
        text = listed(console, model="retired").content.decode()
        for proposed in ("Borealis GmbH", "model=offered", "provider=spare", "model=retired"):
            assert f'value="{proposed}"' in text, proposed

    def test_the_selected_filters_stay_in_the_address(self, console: Browser) -> None:
        sent = [
            ("q", ""), ("filter", "days=30"), ("filter", "is=done"), ("client", " Acme "),
            ("person", ""), ("slower", "3"), ("opened_at__gte", ""),
        ]  # fmt: skip
        response = console.get(f"{PAGE}?{urlencode(sent)}")
        assert response.status_code == 302
        assert response["Location"] == f"{PAGE}?client=+Acme+&slower=3&days=30&is=done"


class TestPeriod:
    def test_a_list_shows_the_last_seven_days_by_default(
        self, console: Browser, make: Make
    ) -> None:
        now = timezone.now()
        ages = {age: make(at=now - timedelta(days=age, minutes=5)).pk for age in (0, 3, 8, 40, 100)}

        def seen(**query: Any) -> set[int]:
            pks = found(console, **query)
            return {age for age, pk in ages.items() if pk in pks}

        assert seen() == {0, 3}
        assert seen(model="small") == {0, 3}
        assert seen(days=1) == {0}
        assert seen(days=30) == {0, 3, 8}
        assert seen(days=90) == {0, 3, 8, 40}
        assert seen(days=5) == {0, 3}
        then = now - timedelta(days=40, hours=1)
        assert seen(opened_at__gte=then, opened_at__lt=now - timedelta(days=2)) == {3, 8, 40}
        assert seen(opened_at__gte=f"{then:%Y-%m-%dT%H:%M}", days=1) == {0, 3, 8, 40}
        assert seen(opened_at__lt=f"{now - timedelta(days=50):%Y-%m-%d}") == {100}

    def test_an_id_and_a_lookup_of_before_find_calls_of_any_time(
        self, console: Browser, make: Make, user: User
    ) -> None:
        old = make(at=timezone.now() - timedelta(days=200), request_id=str(uuid4()))
        for query in (
            {"q": old.pk},
            {"q": old.request_id, "days": 1},
            {"user__id__exact": user.pk},
            {"client_id__exact": user.client_id},
            {"state__exact": "settled"},
        ):
            assert found(console, **query) == {old.pk}, query
        assert found(console, person=user.pk) == set()

    def test_a_month_is_the_calendars(self, console: Browser, make: Make) -> None:
        first = datetime(2026, 3, 1, tzinfo=UTC)
        inside = [make(at=at).pk for at in (first, first + timedelta(days=31, microseconds=-1))]
        make(at=first - timedelta(microseconds=1))
        make(at=first + timedelta(days=31))
        assert found(console, month="2026-03") == found(console, days="2026-03") == {*inside}

    def test_the_page_says_its_period_and_what_runs(self, console: Browser, make: Make) -> None:
        make(state="open", end="", settled_at=None, at=timezone.now())
        text = " ".join(listed(console).content.decode().split())
        assert "1 in 7 days, 1 running" in text
        assert "in 24 hours, 1 running" in " ".join(
            listed(console, days=1).content.decode().split()
        )


# Public reports on filters of logs, by their numbers: what was asked, and what of it is listed.
def late(make: Make) -> tuple[dict[str, str], set[Any]]:
    """A call is listed by when it began, however late it ended, and a boundary is in one period alone."""
    begin = datetime(2026, 8, 6, 14, 30, tzinfo=UTC)
    first = make(at=begin, took=90)
    make(at=begin + timedelta(minutes=1))
    window = {"opened_at__gte": "2026-08-06T14:30", "opened_at__lt": "2026-08-06T14:31"}
    return window, {first.pk}


def zoned(make: Make) -> tuple[dict[str, str], set[Any]]:
    """An instant of another zone is the same instant; one without a zone is UTC."""
    inside = make(at=datetime(2026, 2, 1, 23, 30, tzinfo=UTC))
    make(at=datetime(2026, 2, 1, 22, 30, tzinfo=UTC))
    window = {"opened_at__gte": "2026-02-02T00:00:00+01:00", "opened_at__lt": "2026-02-02"}
    return window, {inside.pk}


def spaced(make: Make) -> tuple[dict[str, str], set[Any]]:
    """The plus of a zone that an address has lost."""
    window, expected = zoned(make)
    return {**window, "opened_at__gte": "2026-02-02T00:00:00 01:00"}, expected


def empty(make: Make) -> tuple[dict[str, str], set[Any]]:
    """Calls without a value can be asked for."""
    make(labels={"user": "batch"})
    return {"label": "none"}, {make().pk}


REPORTS = {
    "BerriAI/litellm#36666": late,
    "BerriAI/litellm#8190": zoned,
    "BerriAI/litellm#7955": spaced,
    "grafana/logs-drilldown#590": empty,
}


@pytest.mark.parametrize("number", REPORTS)
def test_a_public_report_is_no_fault_here(console: Browser, make: Make, number: str) -> None:
    query, expected = REPORTS[number](make)
    assert found(console, **query) == expected


def test_a_page_keeps_its_filters(
    console: Browser, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MISP/MISP#10687: the second page of a filtered list was that of the whole."""
    monkeypatch.setattr("config.console.base.ConsoleAdmin.list_per_page", 2)
    wanted = {make(provider="second").pk for _ in range(3)}
    make()
    first = listed(console, provider="second", person="ada@acme.test")
    text = first.content.decode()
    assert "p=2&amp;person=ada%40acme.test&amp;provider=second" in text
    second = found(console, provider="second", person="ada@acme.test", p=2)
    assert {row.pk for row in first.context["cl"].result_list} | second == wanted


class TestManyCalls:
    """langfuse/langfuse#7898: what nothing has an index for timed out where there were many."""

    @pytest.fixture(autouse=True)
    def _few(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("usage.admin.call_log.listing.LOOKED_AT", 3)

    def test_a_list_looks_at_so_many_and_leads_to_those_before(
        self, console: Browser, make: Make
    ) -> None:
        now = timezone.now()
        made = [make(at=now - timedelta(hours=age), took=40 - age) for age in range(1, 9)]
        query: dict[str, Any] = {"slower": "30"}
        pages = []
        while True:
            response = listed(console, **query)
            cl = response.context["cl"]
            pages.append([row.pk for row in cl.result_list])
            if not cl.looked_back_to:
                break
            assert "These are among the latest 3 calls" in response.content.decode()
            response = console.get(f"{PAGE}{cl.before}")
            query = response.wsgi_request.GET.dict()
        assert [pk for page in pages for pk in page] == [each.pk for each in made]
        assert len(pages) > 1

    def test_a_list_that_an_index_leads_to_is_whole(
        self, console: Browser, make: Make, user: User
    ) -> None:
        pks = {make(end="provider_failed").pk for _ in range(6)}
        for query in (
            {},
            {"client": user.client_id},
            {"model": "small"},
            {"person": user.pk, "slower": "1"},
            {"is": "error"},
        ):
            response = listed(console, **query)
            assert response.context["cl"].looked_back_to is None
            assert {row.pk for row in response.context["cl"].result_list} == pks, query

    def test_several_clients_lead_to_no_more_than_the_latest(
        self, console: Browser, make: Make, user: User
    ) -> None:
        # No index has the calls of several clients by time: each further filter would read their whole period.
        Client.objects.create(name=f"{user.client} Holding")
        for age in range(6):
            make(took=40, at=timezone.now() - timedelta(hours=age))
        named = str(user.client)[:3]
        assert listed(console, client=named).context["cl"].looked_back_to is None
        narrowed = listed(console, client=named, slower="30").context["cl"]
        assert narrowed.looked_back_to is not None
        assert len(narrowed.result_list) == 4

    def test_nobody_is_joined_who_is_not_shown(self, console: Browser, make: Make) -> None:
        # Joins of every list and filter: sonata-project/SonataDoctrineORMAdminBundle#248.
        make()
        with CaptureQueriesContext(connection) as queries:
            listed(console, slower="30")
        calls = [each["sql"] for each in queries if '"usage_usagerecord"' in each["sql"]]
        assert calls
        assert not [sql for sql in calls if "accounts_user" in sql]

    def test_a_file_has_all_that_is_filtered(self, console: Browser, make: Make) -> None:
        pks = {str(make(took=40, at=timezone.now() - timedelta(hours=age)).pk) for age in range(6)}
        make(took=1)
        page = listed(console, slower="30")
        assert page.context["cl"].result_count < 6
        link = page.content.decode().partition("export.csv")[2].partition('"')[0]
        assert link == "?days=7&amp;slower=30"
        response = console.get(f"{PAGE}export.csv", {"slower": "30", "days": "7"})
        text = b"".join(response.streaming_content).decode("utf-8-sig")
        assert {row["id"] for row in csv.DictReader(StringIO(text))} == pks
        event = AuditEvent.objects.get(action="usage:exported")
        assert event.after == {"slower": "30", "days": "7"}


def test_the_number_of_queries_does_not_grow_with_the_filters(
    console: Browser, calls: dict[str, Any], user: User
) -> None:
    def number(**query: Any) -> int:
        with CaptureQueriesContext(connection) as queries:
            listed(console, **query)
        return len(queries)

    number()
    plain = number()
    assert number(client="Acme", model="small", provider="first", slower="1") <= plain + 5


@pytest.mark.parametrize("role", ["support", "licensing", "auditor", "owner"])
def test_every_role_that_sees_calls_filters_them(role: str, calls: dict[str, Any]) -> None:
    browser = Browser()
    browser.force_login(operator_with(role))
    assert len(found(browser, client="Acme")) == len(calls) - 1


def test_pages_lead_to_their_calls(
    console: Browser, calls: dict[str, Any], organisation: Client, user: User
) -> None:
    model = LanguageModel.objects.create(name="large", provider_name="x")
    provider = Provider.objects.create(name="second", base_url="http://127.0.0.1:9/v1")
    for row, query in (
        (organisation, f"client={organisation.pk}"),
        (model, "model=large"),
        (provider, "provider=second"),
        (provider, "failed=second"),
    ):
        meta = row._meta
        page = reverse(f"admin:{meta.app_label}_{meta.model_name}_change", args=[row.pk])
        assert f"{PAGE}?{query}" in console.get(page).content.decode(), query
