"""Usage and money: what operators read there is the ledger, whoever may read it, whatever they choose."""

import csv
import json
from datetime import UTC, datetime, timedelta
from io import StringIO
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from accounts.audit import Actor
from accounts.models import AuditEvent, Client, User
from config.platform.periods import Period
from licensing.licences import create_client
from licensing.models import Plan
from tests.conftest import Browser
from tests.console.test_roles import operator_with
from tests.usage.test_budgets import allow, end
from tests.usage.test_budgets import ask as ask_priced
from usage.costs import UNKNOWN
from usage.models import DailyUsage, UsageRecord
from usage.spending.daily import count_days
from usage.spending.statements import Statement

pytestmark = pytest.mark.django_db
PAGE = "/admin/usage-and-money/"
KEY = "018f2d6e-0000-7000-8000-000000000001"


def use(person: User, *, output: int, now: datetime | None = None, **changed: Any) -> UsageRecord:
    at = now or timezone.now()
    prices = {"prices": UNKNOWN} if changed.pop("unpriced", False) else {}
    call = end(person, ask_priced(person, now=at, **prices), at, input=1_000, output=output)
    UsageRecord.objects.filter(pk=call.pk).update(**changed)
    return call


def number_of_queries(browser: Browser, address: str) -> int:
    with CaptureQueriesContext(connection) as queries:
        assert browser.get(address).status_code == 200, address
    return len(queries)


@pytest.fixture
def used(user: User, organisation: Client, plan: Plan, by: Actor) -> dict[str, Any]:
    """Two clients' calls of this month and the last one, one of them above its budget."""
    now = timezone.now()
    other = create_client(name="=Borealis()", plan=plan, by=by, now=now)
    stranger = User.objects.create(email="=bea@borealis.test", client=other)
    use(user, output=3_000, model="large", provider="first")
    use(user, output=1_000, model="small", end="client_gone", key_id=KEY, labels={"user": "batch"})
    use(stranger, output=900, model="small", end="provider_failed")
    use(stranger, output=5, unpriced=True)
    before = Period.of(now).month_start - timedelta(days=3)
    use(user, output=8_000, now=before)
    allow(organisation, 2, by)
    count_days(now=now)
    return {"client": organisation, "other": other, "person": user, "stranger": stranger}


def ranked(response: Any) -> list[list[str]]:
    return [[str(cell) for cell in row.cells] for row in response.context["ranking"].rows]


class TestThePage:
    def test_the_page_shows_the_cost_of_each_client(
        self, console: Browser, used: dict[str, Any]
    ) -> None:
        response = console.get(PAGE)
        facts = {label: value for label, value, _ in response.context["facts"]}
        assert facts["Calls"] == "4"
        assert "$4.91" in facts.values()
        assert "$8.00" in facts.values()
        rows = ranked(response)
        assert [row[0] for row in rows] == ["Acme", "=Borealis()", "All"]
        assert rows[0][1:3] == ["2", '<span title="0 errors, 1 disconnected">1</span>']
        assert rows[1][1:3] == ["2", '<span title="1 error, 0 disconnected">1</span>']
        assert rows[0][5] == "$4.00"
        assert "1 calls have no price" in response.content.decode()

    def test_does_not_cut_a_share_of_a_budget_at_a_hundred(
        self, console: Browser, used: dict[str, Any]
    ) -> None:
        page = console.get(PAGE).content.decode()
        assert "200 %" in page
        assert "share-over" in page

    @pytest.mark.parametrize(
        ("chosen", "calls"),
        [
            ("client={client}", "2"),
            ("person={stranger}", "2"),
            ("model=small", "2"),
            ("provider=first", "1"),
            (f"key={KEY}", "1"),
            ("client={other}&model=small", "1"),
            ("client=not-an-id&period=nonsense&by=nothing", "4"),
            ("period=9999-13", "4"),
        ],
    )
    def test_shows_the_calls_that_are_chosen(
        self, console: Browser, used: dict[str, Any], chosen: str, calls: str
    ) -> None:
        named = chosen.format(**{name: row.pk for name, row in used.items()})
        response = console.get(f"{PAGE}?{named}")
        assert {label: value for label, value, _ in response.context["facts"]}["Calls"] == calls

    @pytest.mark.parametrize("group", ["client", "person", "model", "provider", "key", "label"])
    def test_ranks_by_each_group(self, console: Browser, used: dict[str, Any], group: str) -> None:
        client = used["client"].pk if group == "label" else ""
        rows = ranked(console.get(f"{PAGE}?by={group}&client={client}"))
        first = {
            "client": "Acme",
            "person": "ada@acme.test",
            "model": "large",
            "provider": "first",
            "key": KEY[:8],
            "label": "batch",
        }
        assert rows[0][0] == first[group]

    def test_shows_a_year_by_month(self, console: Browser, used: dict[str, Any]) -> None:
        year = (timezone.now() - timedelta(days=1)).year
        response = console.get(f"{PAGE}?period={year}")
        assert len(response.context["chart"].axis) == 12
        sums = sum(row.cost for row in DailyUsage.objects.filter(day__year=year))
        spent = response.context["facts"][0][1]
        assert spent == f"${sums / 1_000_000:,.2f}"

    @pytest.mark.parametrize("period", ["9999", "9999-12", "0001", "0001-01", "٢٠٢٦", "2026-13"])
    def test_an_impossible_period_shows_this_month(
        self, console: Browser, used: dict[str, Any], period: str
    ) -> None:
        chosen = console.get(PAGE, {"period": period})
        assert chosen.status_code == 200
        assert ranked(chosen) == ranked(console.get(PAGE))
        assert console.get(f"{PAGE}export.csv", {"period": period}).status_code == 200

    def test_links_each_day_to_its_calls(self, console: Browser, used: dict[str, Any]) -> None:
        response = console.get(f"{PAGE}?client={used['client'].pk}")
        bar = next(bar for bar in response.context["chart"].strips[0].bars if bar.href)
        assert console.get(bar.href).context["cl"].result_count == 2

    def test_leads_to_the_routes_without_a_price(
        self, console: Browser, used: dict[str, Any]
    ) -> None:
        assert console.get(console.get(PAGE).context["routes"]).status_code == 200

    def test_takes_as_many_queries_for_many_rows_as_for_few(
        self, console: Browser, used: dict[str, Any], organisation: Client, plan: Plan, by: Actor
    ) -> None:
        addresses = [f"{PAGE}?by={each}" for each in ("client", "person", "model", "key")]
        addresses.append(f"{PAGE}?client={organisation.pk}&by=person")
        few = [number_of_queries(console, each) for each in addresses]
        for number in range(9):
            more = create_client(name=f"More {number}", plan=plan, by=by, now=timezone.now())
            person = User.objects.create(email=f"p{number}@more.test", client=more)
            use(person, output=10, model=f"m{number}", key_id=f"{number:08}{KEY[8:]}")
            use(User.objects.create(email=f"q{number}@acme.test", client=organisation), output=2)
        count_days(now=timezone.now())
        assert [number_of_queries(console, each) for each in addresses] == few
        assert max(few) <= 18

    @pytest.mark.parametrize("role", ["support", "licensing", "auditor", "owner"])
    def test_is_for_roles_that_see_usage(self, role: str, used: dict[str, Any]) -> None:
        browser = Browser()
        browser.force_login(operator_with(role))
        response = browser.get(f"{PAGE}?client={used['client'].pk}")
        assert response.status_code == 200
        for href in [row.href for row in response.context["ranking"].rows if row.href]:
            assert browser.get(href).status_code == 200
        may_export = role != "support"
        assert ("statement.csv" in response.content.decode()) is may_export
        assert (browser.get(f"{PAGE}export.csv").status_code == 200) is may_export

    def test_is_not_for_others(self, used: dict[str, Any]) -> None:
        browser = Browser()
        browser.force_login(operator_with("release"))
        for page in ("", "export.csv", f"statement.csv?client={used['client'].pk}&month=2026-11"):
            assert browser.get(f"{PAGE}{page}").status_code == 403


def content(response: Any) -> str:
    assert response.status_code == 200
    return b"".join(response.streaming_content).decode("utf-8-sig")


class TestFiles:
    def test_files_of_daily_usage_agree_with_the_page(
        self, console: Browser, used: dict[str, Any], settings: Any
    ) -> None:
        rows = list(csv.DictReader(StringIO(content(console.get(f"{PAGE}export.csv")))))
        lines = content(console.get(f"{PAGE}export.ndjson")).splitlines()
        assert [json.loads(line)["calls"] for line in lines] == [int(row["calls"]) for row in rows]
        assert sum(int(row["calls"]) for row in rows) == 4
        assert f"{sum(float(row['cost']) for row in rows):.2f}" == "4.91"
        assert {row["client"] for row in rows} == {"Acme", "'=Borealis()"}
        assert {row["person"] for row in rows} == {"ada@acme.test", "'=bea@borealis.test"}

    def test_files_hold_the_chosen_calls(self, console: Browser, used: dict[str, Any]) -> None:
        found = content(console.get(f"{PAGE}export.ndjson?client={used['other'].pk}&model=small"))
        assert [json.loads(line)["client"] for line in found.splitlines()] == ["=Borealis()"]

    def test_a_key_has_no_file_because_daily_usage_knows_no_keys(
        self, console: Browser, used: dict[str, Any]
    ) -> None:
        assert console.get(f"{PAGE}export.csv", {"key": KEY}).status_code == 404

    def test_are_in_the_audit_log(self, console: Browser, used: dict[str, Any]) -> None:
        content(console.get(f"{PAGE}export.csv?model=small"))
        event = AuditEvent.objects.filter(action="usage:exported").latest("pk")
        assert (event.target, event.after) == ("csv", {"model": "small"})

    def test_are_csv_or_ndjson(self, console: Browser, used: dict[str, Any]) -> None:
        assert console.get(f"{PAGE}export.xlsx").status_code == 404
        assert console.get(f"{PAGE}statement.csv?client=1&month=2026-11").status_code == 404
        client = used["client"].pk
        assert console.get(f"{PAGE}statement.csv?client={client}&month=never").status_code == 404

    def test_the_file_of_a_statement_is_the_clients_month(self, used: dict[str, Any]) -> None:
        browser, client = Browser(), used["client"]
        browser.force_login(operator_with("licensing"))
        table = browser.get(f"{PAGE}?client={client.pk}").context["statements"]
        this, last = table.rows
        assert (this.cells[1].word, last.cells[1].word) == ("Running", "Final")
        links = {link.text: link.href for link in this.cells[4]}
        total = Statement(client_id=client.pk, month=Period.of(timezone.now()).month).total()
        rows = list(csv.DictReader(StringIO(content(browser.get(PAGE + links["CSV"])))))
        assert [row["of"] for row in rows] == ["person", "model", "model", "total"]
        assert int(rows[-1]["calls"]) == total.calls == 2
        assert float(rows[-1]["cost_usd"]) == total.cost / 1_000_000
        lines = content(browser.get(PAGE + links["NDJSON"])).splitlines()
        assert [json.loads(line)["name"] for line in lines] == [row["name"] for row in rows]

    def test_the_file_of_all_statements_has_a_line_for_each_client(
        self, console: Browser, used: dict[str, Any]
    ) -> None:
        this = console.get(PAGE).context["statements"].rows[0]
        rows = csv.DictReader(StringIO(content(console.get(PAGE + this.cells[4][0].href))))
        found = {row["name"]: int(row["calls"]) for row in rows}
        assert found == {"Acme": 2, "'=Borealis()": 2}
        assert sum(found.values()) == this.cells[2]

    def test_the_file_of_all_statements_includes_clients_not_summed_yet(
        self, console: Browser, used: dict[str, Any], plan: Plan, by: Actor
    ) -> None:
        late = create_client(name="Cumulus", plan=plan, by=by, now=timezone.now())
        use(User.objects.create(email="cy@cumulus.test", client=late), output=1_000)
        asked = f"{PAGE}statement.csv?client=all&month={timezone.now():%Y-%m}"
        rows = csv.DictReader(StringIO(content(console.get(asked))))
        assert [row["calls"] for row in rows if row["name"] == "Cumulus"] == ["1"]

    def test_a_month_with_a_running_call_is_not_final(
        self, console: Browser, used: dict[str, Any]
    ) -> None:
        late = Period.of(timezone.now()).month_start - timedelta(minutes=1)
        ask_priced(used["person"], now=late)
        table = console.get(f"{PAGE}?client={used['client'].pk}").context["statements"]
        assert [row.cells[1].word for row in table.rows] == ["Running", "Running"]
        assert late.tzinfo is UTC
