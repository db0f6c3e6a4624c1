"""Events in the console: filters that use indexes, and files of what was chosen."""

import csv
import json
from datetime import datetime, timedelta
from io import StringIO
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from accounts.models import AuditEvent, User
from telemetry.export import lines
from telemetry.models import Event
from telemetry.statements import known
from telemetry.volumes import volumes
from tests.conftest import Browser
from tests.telemetry.reports import event, report

pytestmark = pytest.mark.django_db
LIST = "/admin/telemetry/event/"


@pytest.fixture
def kept(now) -> list[Event]:
    """Six events of two days."""
    yesterday = now - timedelta(days=1)
    fresh = {"occurred_at": yesterday.isoformat()}
    report(*[event(app="mail", shell_version="1.0.0", **fresh) for _ in range(2)], now=yesterday)
    report(
        event(**fresh, name="crash", app="mail", shell_version="2.0.0", properties={"a": 'q", ä'}),
        event(**fresh, name="crash", app=..., shell_version="2.0.0"),
        event(**fresh, name="document.opened"),
        event(**fresh, name="document.opened", shell_version=...),
        now=now,
    )
    return list(Event.objects.all())


def listed(console: Browser, **query: str) -> list[Any]:
    response = console.get(LIST, query)
    assert response.status_code == 200
    return list(response.context["cl"].result_list)


def exported(console: Browser, ending: str, **query: str) -> str:
    response = console.get(f"{LIST}export.{ending}", query)
    assert response.status_code == 200
    return b"".join(response.streaming_content).decode("utf-8-sig")


def test_events_are_listed_the_newest_first(console: Browser, kept: list[Event]) -> None:
    assert listed(console) == kept
    assert len(kept) == 6


def test_filters_choose(console: Browser, kept: list[Event]) -> None:
    today = f"{kept[0].received_at:%Y-%m-%d}"
    assert len(listed(console, name="crash")) == 2
    assert len(listed(console, app="mail")) == 3
    assert len(listed(console, app="-")) == 1
    assert len(listed(console, app="mail", version="1.0.0")) == 2
    assert len(listed(console, day=today)) == 4
    assert len(listed(console, day=today, app="mail", version="2.0.0", name="crash")) == 1
    assert listed(console, q=str(kept[2].event_id).upper()) == [kept[2]]
    assert listed(console, q="crash") == []


def test_filters_offer_what_there_is(kept: list[Event]) -> None:
    assert known("name") == ["crash", "document.opened"]
    assert known("app") == ["", "mail", "sheets"]
    assert known("shell_version", app="mail") == ["1.0.0", "2.0.0"]
    assert known("shell_version", app="nothing") == []


def test_no_query_of_the_list_reads_the_whole_table(console: Browser, kept: list[Event]) -> None:
    today = f"{kept[0].received_at:%Y-%m-%d}"
    # A table of this size would be read whole if it were allowed.
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL enable_seqscan = off")
    chosen = (
        {},
        {"name": "crash"},
        {"app": "mail"},
        {"app": "mail", "version": "2.0.0"},
        {"day": today},
    )
    for query in chosen:
        with CaptureQueriesContext(connection) as queries:
            listed(console, **query)
        # One for each filter, however many values: BLSQ/iaso#3221, lincolnloop/django-absurd#241.
        assert len(queries) <= 12
        asked = [each["sql"] for each in queries if "telemetry_event" in each["sql"]]
        assert len(asked) <= 5
        for sql in asked:
            with connection.cursor() as cursor:
                cursor.execute(f"EXPLAIN {sql}")
                plan = "\n".join(line for (line,) in cursor.fetchall())
            assert "telemetry_" in plan, plan
            assert "Seq Scan" not in plan, plan


def test_a_list_is_read_only(console: Browser, kept: list[Event]) -> None:
    address = f"{LIST}{kept[0].pk}/change/"
    assert console.get(address).status_code == 200
    assert console.post(address, {"name": "other"}).status_code == 403
    assert console.post(f"{LIST}{kept[0].pk}/delete/").status_code == 403


def test_filtered_events_can_be_exported_as_csv(console: Browser, kept: list[Event]) -> None:
    rows = list(csv.DictReader(StringIO(exported(console, "csv", app="mail"))))
    assert [row["id"] for row in rows] == [
        str(each.event_id) for each in kept if each.app == "mail"
    ]
    assert json.loads(rows[0]["properties"]) == {"a": 'q", ä'}
    assert rows[0]["received_at"].endswith("Z")


def test_filtered_events_can_be_exported_as_ndjson(console: Browser, kept: list[Event]) -> None:
    rows = [json.loads(line) for line in exported(console, "ndjson").splitlines()]
    assert [row["id"] for row in rows] == [str(each.event_id) for each in kept]
    assert rows[0].keys() == {
        "id", "client_id", "user_id", "name", "app", "shell_version", "occurred_at", "received_at", "properties",
    }  # fmt: skip


def test_the_list_leads_to_the_files_of_what_is_chosen(console: Browser, kept: list[Event]) -> None:
    page = console.get(LIST, {"app": "mail"}).content.decode()
    assert 'href="/admin/telemetry/event/export.csv?app=mail"' in page
    assert 'href="/admin/telemetry/event/export.ndjson?app=mail"' in page


def test_no_cell_of_a_csv_file_is_a_formula(console: Browser, now: datetime) -> None:
    at = (now - timedelta(minutes=1)).isoformat()
    report(
        event(occurred_at=at, name="$screen", properties={"=1+1": "=cmd|' /c calc'!A0"}),
        event(occurred_at=at, name="=1+1"),
        event(occurred_at=at, app="@SUM(1)"),
        event(occurred_at=at, shell_version="-1+1"),
        event(occurred_at=at, app=..., shell_version=..., properties=...),
        now=now,
    )
    rows = list(csv.reader(StringIO(exported(console, "csv"))))
    assert len(rows) == 3
    # These characters make a spreadsheet calculate, also behind a space or a tab.
    assert not [cell for row in rows for cell in row if cell.strip()[:1] in {*"=+-@|"}]


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_no_cell_is_a_formula_wherever_a_spreadsheet_parts_cells(
    console: Browser, now: datetime, separator: str
) -> None:
    at = (now - timedelta(minutes=1)).isoformat()
    wicked = {
        f"{around}=1+1{around}": [f"a{around}=1+1{around}", f'"{around}=1+1{around}"']
        for around in (";", "\t", "\r", "\n", "\r\n", ",", '"', "\\;", "\x0b", "\x0c")
    }
    report(
        event(occurred_at=at, properties=wicked),
        *(event(occurred_at=at, name=f"a{each}=1+1") for each in ";\t\r\n"),
        *(event(occurred_at=at, app=f"a{each}=1+1") for each in ";\t\r\n"),
        *(event(occurred_at=at, shell_version=f"1{each}=1+1") for each in ";\t\r\n"),
        now=now,
    )
    text = exported(console, "csv")
    header, kept = csv.DictReader(StringIO(text)).fieldnames, list(csv.DictReader(StringIO(text)))
    assert len(kept) == 1
    assert header is not None
    assert json.loads(kept[0]["properties"]) == wicked
    cells = [cell for row in csv.reader(StringIO(text), delimiter=separator) for cell in row]
    assert not [cell for cell in cells if cell.strip(" \"'")[:1] in {*"=+-@|"}]


@pytest.mark.parametrize("page", [1, 2, 3, 6, 7])
def test_pages_of_a_file_leave_nothing_out_and_repeat_nothing(kept: list[Event], page: int) -> None:
    text = b"".join(lines(Event.objects.all(), ending="ndjson", page=page)).decode()
    ids = [json.loads(line)["id"] for line in text.splitlines()]
    assert ids == [str(each.event_id) for each in kept]


def test_a_file_is_in_the_audit_log(console: Browser, kept: list[Event], operator: User) -> None:
    exported(console, "csv", app="mail")
    act = AuditEvent.objects.get(action="telemetry:exported")
    assert (act.actor_id, act.target, act.after) == (operator.pk, "csv", {"app": "mail"})


@pytest.mark.parametrize("query", ["day=yesterday", "e=1", "name__foo=1", "p=x", "app=%00"])
def test_a_file_of_nonsense_is_no_error_of_ours(
    console: Browser, kept: list[Event], query: str
) -> None:
    assert console.get(f"{LIST}export.csv?{query}").status_code in {200, 302, 400}


def test_volumes_of_a_day_are_counted_by_app_and_version(
    console: Browser, kept: list[Event]
) -> None:
    today, yesterday = (f"{kept[place].received_at:%Y-%m-%d}" for place in (0, -1))
    assert volumes(day=kept[0].received_at.date()) == [
        ("", "2.0.0", 1),
        ("mail", "2.0.0", 1),
        ("sheets", "", 1),
        ("sheets", "1.2.3", 1),
    ]
    shown = console.get(f"{LIST}volumes/")
    assert (shown.context["day"], shown.context["total"]) == (today, 4)
    assert b"the shell itself" in shown.content
    before = console.get(f"{LIST}volumes/", {"day": yesterday})
    assert before.context["volumes"] == [("mail", "1.0.0", 2)]
    for nonsense in ("nonsense", "0001-01-01", "9999-12-31", "2026-02-30"):
        assert console.get(f"{LIST}volumes/", {"day": nonsense}).context["day"] == today


def test_an_export_needs_the_permission_to_view_events(
    stranger: Browser, kept: list[Event]
) -> None:
    assert stranger.get(f"{LIST}export.csv").status_code == 302
    stranger.force_login(User.objects.create_user("new@shell.test", is_staff=True))
    assert stranger.get(f"{LIST}export.csv").status_code == 403
    assert stranger.get(f"{LIST}volumes/").status_code == 403
    assert not AuditEvent.objects.filter(action="telemetry:exported").exists()
