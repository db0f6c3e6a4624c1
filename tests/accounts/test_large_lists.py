"""Searches of lists of rows by the million use an index and find the right rows."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from accounts.models import Client, RefreshToken, Session, User
from accounts.sessions.refresh_tokens import RefreshSecret
from config.platform.periods import Period
from tests.conftest import Browser
from usage.models import UsageRecord

pytestmark = pytest.mark.django_db

LISTS = (
    "usage_usagerecord",
    "usage_monthlyusage",
    "accounts_session",
    "accounts_refreshtoken",
    "accounts_auditevent",
    "telemetry_event",
)
# So much of a table is this that ten thousand of it are counted wherever one begins to read.
COMMON = {
    "?state__exact=settled",
    "?is=done",
    "?source__exact=provider",
    "?state=live",
    "?state=expired",
    "?state=ended",
    "?state=replaced",
}
WORDS = (
    "ada@",
    "ada@acme.test",
    "large",
    "nothing-like-this",
    "9c5b94b1-35ad-49bb-b118-8e8fc24abf80",
)


def address(name: str) -> str:
    return reverse(f"admin:{name}_changelist")


@pytest.fixture
def people(organisation: Client, now: datetime) -> list[User]:
    """Three with similar emails, each with a session, its token, and a call."""
    period = Period.of(now)
    made = [
        User.objects.create_user(f"{name}@acme.test", client=organisation)
        for name in ("ada", "ada.b", "bert")
    ]
    for number, user in enumerate(made):
        session = Session.objects.create(
            user=user, device_fp=f"mac-{number}", started_at=now, last_used_at=now
        )
        RefreshToken.objects.create(
            id=RefreshSecret.new().id,
            user=user,
            session=session,
            issued_at=now,
            expires_at=now + timedelta(days=30),
        )
        UsageRecord.objects.create(
            user=user,
            client_id=organisation.pk,
            session_id=session.pk,
            period=period.month,
            day=period.day,
            model="large" if number else "small",
            provider="openai",
            request_id=f"request-{number}",
            streamed=False,
            reserved_input=1,
            reserved_output=1,
            opened_at=now,
            expires_at=now + timedelta(minutes=11),
        )
    return made


def found(console: Browser, name: str, word: object) -> set[str]:
    rows = console.get(address(name), {"q": str(word)}).context["cl"].result_list
    return {row.user.email.partition("@")[0] for row in rows}


@pytest.mark.parametrize("name", ["usage_usagerecord", "accounts_session", "accounts_refreshtoken"])
def test_a_part_of_an_email_finds_all_it_fits_and_a_whole_one_that_person(
    console: Browser, people: list[User], name: str
) -> None:
    assert found(console, name, "ADA") == {"ada", "ada.b"}
    assert found(console, name, " Ada@acme.test ") == {"ada"}
    assert found(console, name, people[2].pk) == {"bert"}
    assert found(console, name, "") == {"ada", "ada.b", "bert"}
    assert found(console, name, "carl") == set()


def test_a_call_is_found_by_what_it_says_of_itself(console: Browser, people: list[User]) -> None:
    name = "usage_usagerecord"
    record = UsageRecord.objects.get(user=people[1])
    assert found(console, name, "small") == {"ada"}
    assert found(console, name, "request-2") == {"bert"}
    assert found(console, name, record.pk) == found(console, name, record.session_id) == {"ada.b"}
    assert found(console, name, record.client_id) == {"ada", "ada.b", "bert"}


@pytest.mark.parametrize("name", ["usage_usagerecord", "usage_runningcall"])
@pytest.mark.parametrize(
    "request_id",
    [
        "0197d2b4-6c1e-7a33-9a55-2f0c8f2b1d11",
        "0197D2B4-6C1E-7A33-9A55-2F0C8F2B1D11",
        "build_7.retry-2",
    ],
)
def test_a_call_is_found_by_its_request_id_also_where_that_is_a_uuid(
    console: Browser, people: list[User], name: str, request_id: str
) -> None:
    UsageRecord.objects.filter(user=people[2]).update(request_id=request_id)
    assert found(console, name, f" {request_id} ") == {"bert"}


def test_a_session_is_found_by_how_its_device_begins(console: Browser, people: list[User]) -> None:
    assert found(console, "accounts_session", "mac-1") == {"ada.b"}
    assert found(console, "accounts_session", "ac-1") == set()
    session = Session.objects.get(user=people[0])
    assert found(console, "accounts_refreshtoken", session.pk) == {"ada"}


def test_one_search_matches_a_limited_number_of_people(
    console: Browser, people: list[User], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("accounts.admin.large_lists.PEOPLE_LOOKED_FOR", 2)
    assert found(console, "accounts_session", "acme") == {"ada", "ada.b"}


def test_no_list_can_be_sorted_by_what_has_no_index(console: Browser, people: list[User]) -> None:
    for name in LISTS:
        assert console.get(address(name)).context["cl"].sortable_by == (), name


@pytest.mark.parametrize("name", LISTS)
def test_every_list_filter_and_search_has_an_index_to_go_by(
    console: Browser, people: list[User], name: str
) -> None:
    """With whole-table reads disabled, the planner reads a table only where no index leads to the rows."""
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL enable_seqscan = off")
    listed = console.get(address(name)).context["cl"]
    chosen = [
        choice["query_string"]
        for spec in listed.filter_specs
        for choice in spec.choices(listed)
        if choice["query_string"]
    ]
    searched = [f"?q={word}" for word in WORDS]
    for query in ["?p=2", *chosen, *searched]:
        for plan in plans(console, f"{address(name)}{query}", name):
            counts_what_is_common = "Aggregate" in plan and query in COMMON
            assert counts_what_is_common or f"Seq Scan on {name}" not in plan, (query, plan)


def plans(console: Browser, page: str, table: str) -> list[str]:
    with CaptureQueriesContext(connection) as asked:
        assert console.get(page).status_code in {200, 302}, page
    told: list[Any] = []
    for query in asked.captured_queries:
        if query["sql"].startswith("SELECT") and f'FROM "{table}"' in query["sql"]:
            with connection.cursor() as cursor:
                cursor.execute(f"EXPLAIN {query['sql'].replace('%', '%%')}", ())
                told.append("\n".join(line for (line,) in cursor.fetchall()))
    return told
