"""The ledger's files: every call once, with what it cost, as the list is filtered."""

import csv
import json
from datetime import timedelta
from io import StringIO

import pytest

from accounts.models import AuditEvent, User
from config.platform.problems.problem import instant
from tests.conftest import Browser
from tests.usage.of_before import leave_attempt
from tests.usage.test_budgets import NOON, PRICES, ask, end
from usage.admin.export import COLUMNS, lines
from usage.caps import SoFar, checkpoint
from usage.costs import UNKNOWN, Abandoned, AskedRoute, Prices, Spent
from usage.models import UsageRecord

LIST = "/admin/usage/usagerecord/"

pytestmark = pytest.mark.django_db


@pytest.fixture
def calls(user: User) -> list[UsageRecord]:
    """Seven calls, the newest first: one that runs, one without prices, and five that cost something."""
    for number in range(5):
        now = NOON + timedelta(minutes=number // 2)
        end(user, ask(user, now=now), now, input=1_000, cached_input=400, output=number)
    end(user, ask(user, prices=UNKNOWN, now=NOON + timedelta(hours=1)), input=1_000)
    ask(user, now=NOON + timedelta(hours=2))
    return list(UsageRecord.objects.order_by("-opened_at", "-id"))


def exported(console: Browser, ending: str, **query: str) -> str:
    response = console.get(f"{LIST}export.{ending}", query)
    assert response.status_code == 200
    return b"".join(response.streaming_content).decode("utf-8-sig")


@pytest.mark.parametrize(("ending", "is_marked"), [("csv", True), ("ndjson", False)])
def test_a_csv_says_that_it_is_utf_8(console: Browser, ending: str, is_marked: bool) -> None:
    # Excel reads others in its own encoding (mtotschnig/MyExpenses#1432, enlyze/S7-Project-Explorer#4).
    content = b"".join(console.get(f"{LIST}export.{ending}").streaming_content)
    assert content.startswith(b"\xef\xbb\xbf") is is_marked
    assert content.count(b"\xef\xbb\xbf") == is_marked


def test_csv_says_dollars_with_six_decimals(console: Browser, calls: list[UsageRecord]) -> None:
    rows = list(csv.DictReader(StringIO(exported(console, "csv"))))
    assert [row["id"] for row in rows] == [str(each.pk) for each in calls]
    assert tuple(rows[0]) == COLUMNS
    assert [row["cost_usd"] for row in rows[:2]] == ["", ""]
    # 600 fresh and 400 cached tokens of input are two thousandths.
    assert sorted(row["cost_usd"] for row in rows[2:]) == [
        f"0.00{number + 2}000" for number in range(5)
    ]


def test_ndjson_has_nothing_where_nothing_is_known(
    console: Browser, calls: list[UsageRecord]
) -> None:
    rows = [json.loads(line) for line in exported(console, "ndjson").splitlines()]
    assert [row["id"] for row in rows] == [str(each.pk) for each in calls]
    running, unpriced, latest = rows[:3]
    assert (running["cost_usd"], running["settled_at"], running["state"]) == (None, None, "open")
    assert (unpriced["cost_usd"], unpriced["input_tokens"]) == (None, 1_000)
    assert latest["cost_usd"] == "0.006000"


def test_the_labels_of_a_caller_are_in_both(console: Browser, user: User) -> None:
    ask(user, labels={"user": "=seat-7", "metadata": {"project": "=Ünder"}})
    (row,) = csv.DictReader(StringIO(exported(console, "csv")))
    assert (row["caller_user"], json.loads(row["metadata"])) == ("'=seat-7", {"project": "=Ünder"})
    (line,) = map(json.loads, exported(console, "ndjson").splitlines())
    assert (line["caller_user"], line["metadata"]) == ("=seat-7", {"project": "=Ünder"})


def test_failures_are_in_both(console: Browser, user: User) -> None:
    call = ask(user)
    at = "2026-11-03T12:00:00Z"
    attempt = {
        "provider": "p", "model": "m", "what": "refused", "status": 429, "words": "=slow; -1",
        "asked_at": at, "ended_at": at,
    }  # fmt: skip
    told = {"code": "provider_unavailable", "status": 503, "detail": "Again."}
    failures = {"attempts": [attempt], "left_out": 0, "problem": told}
    UsageRecord.objects.filter(pk=call.record_id).update(
        failures=failures, error_code="provider_unavailable", first_output_at=NOON
    )
    (row,) = csv.DictReader(StringIO(exported(console, "csv")))
    (line,) = map(json.loads, exported(console, "ndjson").splitlines())
    for each in (row, line):
        assert each["error_code"] == "provider_unavailable"
        assert each["first_output_at"] == instant(NOON)
    assert json.loads(row["failures"]) == line["failures"] == failures


def test_a_call_of_which_nothing_was_said_has_nothing(console: Browser, user: User) -> None:
    ask(user)
    (row,) = csv.DictReader(StringIO(exported(console, "csv")))
    assert (row["caller_user"], row["metadata"]) == ("", "")


def test_the_filters_of_the_list_count(console: Browser, calls: list[UsageRecord]) -> None:
    rows = exported(console, "ndjson", state__exact="open").splitlines()
    assert [json.loads(row)["id"] for row in rows] == [str(calls[0].pk)]
    page = console.get(LIST, {"state__exact": "open"}).content.decode()
    assert f'href="{LIST}export.csv?state__exact=open"' in page


@pytest.mark.parametrize("page", [1, 2, 7, 8])
def test_pages_join_without_a_gap(calls: list[UsageRecord], page: int) -> None:
    text = b"".join(lines(UsageRecord.objects.all(), ending="ndjson", page=page)).decode()
    assert [json.loads(line)["id"] for line in text.splitlines()] == [
        str(each.pk) for each in calls
    ]


@pytest.mark.parametrize(
    "text",
    [
        "=cmd()",
        "+1",
        "-1234567",
        "@sum",
        "\t=cmd()",
        "\r=cmd()",
        "\n+1",
        "\r\n@x",
        "＝cmd()",
        "a;=1",
    ],
)
def test_no_cell_starts_a_formula(console: Browser, user: User, text: str) -> None:
    end(user, ask(user, labels={"user": text, "metadata": {"project": text}}))
    UsageRecord.objects.update(model=text)
    (row,) = csv.DictReader(StringIO(exported(console, "csv")))
    assert row["model"] == row["caller_user"]
    for cell in row.values():
        for part in cell.split(";"):
            assert not part.startswith(("=", "+", "-", "@", "\t", "\r", "\n", "＝")), cell


def test_an_export_is_audited_and_needs_the_right(console: Browser, stranger: Browser) -> None:
    exported(console, "csv", state__exact="open")
    event = AuditEvent.objects.get(action="usage:exported")
    assert (event.target, event.after) == ("csv", {"state__exact": "open"})
    assert stranger.get(f"{LIST}export.csv").status_code == 302
    stranger.force_login(User.objects.create_user("staff@acme.test", is_staff=True))
    assert stranger.get(f"{LIST}export.csv").status_code in {302, 403}
    assert AuditEvent.objects.filter(action="usage:exported").count() == 1


def test_the_pages_of_a_call_show_its_cost(console: Browser, user: User) -> None:
    record = end(user, ask(user), output=2)
    assert "$0.0020<" in console.get(LIST, {"days": "90"}).content.decode()
    page = console.get(f"{LIST}{record.pk}/change/").content.decode()
    assert "$0.002000" in page
    assert f"${PRICES.output // 10**6:,}.00<" in page  # type: ignore[operator]


@pytest.mark.parametrize("is_of_before", [False, True])
def test_an_abandoned_attempt_is_a_line_of_its_own(
    console: Browser, calls: list[UsageRecord], is_of_before: bool
) -> None:
    running = calls[0]
    at = running.opened_at
    if is_of_before:
        leave_attempt(running.pk, "first", cost=50, asked_at=at, left_at=at + timedelta(hours=1))
    else:
        prices = Prices(1_000_000, None, 2_000_000)
        spent = Spent(input=10, output=20)
        left = Abandoned("first", prices, spent, False, at, at + timedelta(hours=1))
        route = AskedRoute("second", prices, counted_input=7)
        assert checkpoint([SoFar(running.pk, 1, 1, None, route, (left,))])
    call, line, *others = map(json.loads, exported(console, "ndjson").splitlines())
    assert len(others) == len(calls) - 1
    assert (call["id"], call["state"]) == (str(running.pk), "open")
    assert is_of_before or call["provider"] == "second"
    assert (line["provider"], line["state"], line["cost_usd"]) == ("first", "left", "0.000050")
    assert line["id"] == f"{running.pk}/1"
    assert (line["request_id"], line["user_id"]) == (call["request_id"], call["user_id"])
    assert (line["input_tokens"], line["output_tokens"]) == (10, 20)
    page = " ".join(console.get(f"{LIST}{running.pk}/change/").content.decode().split())
    for said in (
        "first <b>broke off</b> after 60 min 0 s",
        "3600.00",
        "Up to 10 in and 20 out ($0.000050) are billed",
    ):
        assert said in page, said


@pytest.mark.parametrize(
    ("is_reported", "of_written", "cost"),
    [
        (False, 3_750_000, 6_750),
        (False, 2_000_000, 6_000),
        (False, None, 6_000),
        (True, 3_750_000, 6_000),
    ],
)
def test_an_attempt_without_a_report_costs_at_most_its_prompt_written_to_a_cache(
    is_reported: bool, of_written: int | None, cost: int
) -> None:
    prices = Prices(3_000_000, 300_000, 15_000_000, of_written)
    spent = Spent(input=1_000, output=200)
    assert Abandoned("first", prices, spent, is_reported, NOON, NOON).cost == cost
    assert Abandoned("first", Prices(), spent, is_reported, NOON, NOON).cost is None
