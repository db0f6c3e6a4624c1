"""The list of clients for daily work: what they may, spend and need, sorted and exported."""

import csv
from datetime import datetime, timedelta
from io import StringIO
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from accounts.audit import Actor
from accounts.models import AuditEvent, Client, User
from config.platform.periods import Period
from licensing.licences import create_client, set_operator_status
from licensing.models import Licence, Plan, Standing
from tests.conftest import Browser
from tests.console.test_roles import operator_with
from tests.console.test_usage_and_money import use
from tests.usage.test_budgets import allow
from usage.models import DailyUsage, MonthTotal
from usage.spending import budgets
from usage.spending.daily import count_days
from usage.stops import stop_model_calls

pytestmark = pytest.mark.django_db
LIST = reverse("admin:accounts_client_changelist")
COLUMNS = (
    "name", "status", "plan", "people", "callers", "spent", "budget_share", "last_call", "problems",
)  # fmt: skip


@pytest.fixture
def clients(plan: Plan, by: Actor) -> dict[str, Client]:
    """Four clients: one that spends, one beyond its budget, a suspended one, and one that never called."""
    now = timezone.now()
    found = {
        name: create_client(name=name, plan=plan, by=by, now=now)
        for name in ("Acme", "=Borealis()", "Cirrus", "Dune")
    }
    acme, borealis, cirrus, _ = found.values()
    ada, bea, col = (
        User.objects.create(email=f"{name}@lists.test", client=client)
        for name, client in (("ada", acme), ("bea", borealis), ("col", cirrus))
    )
    User.objects.create(email="idle@lists.test", client=acme)
    use(ada, output=9_000)
    use(bea, output=3_000)
    allow(borealis, 2, by)
    allow(acme, 100, by)
    use(col, output=1_000, now=Period.of(now).month_start - timedelta(days=2))
    count_days(now=now)
    budgets.watch(now=now)
    why = {"reason": "Asked for.", "by": by, "now": now}
    set_operator_status(licence_id=cirrus.licence.pk, status=Standing.SUSPENDED, **why)
    stop_model_calls(user_id=bea.pk, ends_at=None, **why)
    return found


def listed(browser: Browser, **query: Any) -> list[str]:
    return [each.name for each in browser.get(LIST, query).context["cl"].result_list]


def sorted_by(browser: Browser, column: str, *, down: bool = False) -> list[str]:
    return listed(browser, o=f"{'-' if down else ''}{COLUMNS.index(column)}")


def cells(browser: Browser) -> dict[str, Any]:
    return {each.name: each for each in browser.get(LIST).context["cl"].result_list}


def test_each_client_has_its_numbers(console: Browser, clients: dict[str, Client]) -> None:
    shown = cells(console)
    assert (shown["Acme"].people_count, shown["Acme"].caller_count) == (2, 1)
    assert shown["Acme"].cost > shown["=Borealis()"].cost > shown["Cirrus"].cost == 0
    assert shown["Acme"].last_day == timezone.now().date()
    assert shown["Cirrus"].last_day < Period.of(timezone.now()).month
    assert shown["Dune"].last_day is None
    # The spent budget, and the stopped person.
    assert {name: each.problem_count for name, each in shown.items()} == {
        "Acme": 0, "=Borealis()": 2, "Cirrus": 0, "Dune": 0,
    }  # fmt: skip
    text = console.get(LIST).content.decode()
    assert '<span class="chip chip-stopped">Suspended</span>' in text
    assert "share-over" in text


def test_seats_are_shown_where_a_licence_has_some(
    console: Browser, clients: dict[str, Client]
) -> None:
    Licence.objects.filter(client=clients["Acme"]).update(seats=5)
    User.objects.filter(email="idle@lists.test").update(is_active=False)
    text = console.get(LIST).content.decode()
    assert '<span class="number">1 of 5</span>' in text


def test_clients_are_sorted_by_what_is_looked_for(
    console: Browser, clients: dict[str, Client]
) -> None:
    assert sorted_by(console, "spent", down=True)[:2] == ["Acme", "=Borealis()"]
    assert sorted_by(console, "problems", down=True)[0] == "=Borealis()"
    assert sorted_by(console, "people", down=True)[0] == "Acme"
    assert sorted_by(console, "spent")[-1] == "Acme"


@pytest.mark.parametrize(
    ("column", "down", "first", "last"),
    [
        # Rows without a value lead a descending list: vstorm-co/agenticos#411, fecgov/openFEC#3470.
        ("budget_share", True, "=Borealis()", {"Cirrus", "Dune"}),
        ("last_call", True, "Acme", {"Dune"}),
        # And stay last in the other direction: jakob/Postico#371, weaveworks/scope#1744.
        ("budget_share", False, "Acme", {"Cirrus", "Dune"}),
        ("last_call", False, "Cirrus", {"Dune"}),
    ],
)
def test_clients_without_a_value_are_last_both_ways(
    console: Browser, clients: dict[str, Client], column: str, down: bool, first: str, last: set[str]
) -> None:  # fmt: skip
    names = sorted_by(console, column, down=down)
    if (column, down) == ("last_call", True):
        assert set(names[:2]) == {"Acme", "=Borealis()"}
    else:
        assert names[0] == first
    assert set(names[-len(last) :]) == last


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ({"status": "suspended"}, {"Cirrus"}),
        ({"budget": "over"}, {"=Borealis()"}),
        ({"budget": "near"}, {"=Borealis()"}),
        ({"budget": "none"}, {"Cirrus", "Dune"}),
        ({"problems": "open"}, {"=Borealis()"}),
        ({"problems": "none", "budget": "none"}, {"Cirrus", "Dune"}),
    ],
)
def test_clients_are_narrowed(
    console: Browser, clients: dict[str, Client], query: dict[str, str], names: set[str]
) -> None:
    assert set(listed(console, **query)) == names


def test_an_operator_counts_the_problems_that_the_role_may_see(clients: dict[str, Client]) -> None:
    browser = Browser()
    browser.force_login(operator_with("support"))
    assert cells(browser)["=Borealis()"].problem_count == 2


def test_the_list_takes_as_many_queries_for_fifty_clients_as_for_four(
    console: Browser, clients: dict[str, Client], plan: Plan, by: Actor, now: datetime
) -> None:
    # Queries for each row: dandi/dandi-archive#658, maykinmedia/django-admin-index#90.
    def asked() -> int:
        with CaptureQueriesContext(connection) as queries:
            assert console.get(LIST).status_code == 200
        return len(queries)

    few = asked()
    for number in range(40):
        create_client(name=f"More {number}", plan=plan, by=by, now=now)
    assert asked() == few


def test_the_list_reads_totals_and_no_calls(console: Browser, clients: dict[str, Client]) -> None:
    with CaptureQueriesContext(connection) as queries:
        console.get(LIST, {"o": f"-{COLUMNS.index('spent')}"})
    reading = [each["sql"] for each in queries if "accounts_client" in each["sql"]]
    assert not [sql for sql in reading if "usage_usagerecord" in sql]
    assert [sql for sql in reading if MonthTotal._meta.db_table in sql]
    assert [sql for sql in reading if DailyUsage._meta.db_table in sql]


def test_the_filtered_list_is_exported_and_no_name_is_a_formula(
    console: Browser, clients: dict[str, Client]
) -> None:
    # A name that a spreadsheet would run: jowilf/starlette-admin#838, tendenci/tendenci#919, farmOS/farmOS#871.
    response = console.get(reverse("admin:accounts_client_export_csv"), {"problems": "open"})
    text = b"".join(response.streaming_content).decode("utf-8-sig")
    rows = list(csv.DictReader(StringIO(text)))
    assert [row["client"] for row in rows] == ["'=Borealis()"]
    assert (rows[0]["licence"], rows[0]["people"], rows[0]["open_problems"]) == ("active", "1", "2")
    assert rows[0]["budget_usd"] == "2.000000"
    assert int(rows[0]["budget_percent"]) >= 100
    event = AuditEvent.objects.get(action="client:exported")
    assert (event.target, event.after) == ("csv", {"problems": "open"})


@pytest.mark.parametrize(
    ("role", "status"), [("licensing", 200), ("auditor", 200), ("support", 403)]
)
def test_an_export_is_for_those_who_may(clients: dict[str, Client], role: str, status: int) -> None:
    browser = Browser()
    browser.force_login(operator_with(role))
    assert browser.get(reverse("admin:accounts_client_export_ndjson")).status_code == status
