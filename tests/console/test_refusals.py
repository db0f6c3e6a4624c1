"""The list of refusals: who, of which client, and in a sentence why."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from accounts.models import Role, User
from config.platform.edge.request_log import Refused
from config.platform.problems.problem import known_problems
from tests.conftest import Browser
from tests.console.conftest import World
from tests.console.test_roles import operator_with
from usage import refusal_log
from usage.models import Refusal
from usage.refusals import MonthlyCapExceeded

pytestmark = pytest.mark.django_db
LIST = reverse("admin:usage_refusal_changelist")
CAP = {
    "cap": 6000, "used": 4852, "reserved": 0, "dimension": "input", "requested": 1641,
    "remaining": 1148, "remaining_month": "1148", "remaining_day": "2548",
}  # fmt: skip


def refuse(user: User, code: str, now: datetime, **fields: Any) -> Refusal:
    return Refusal.objects.create(
        user=user, client_id=user.client_id, code=code, status=known_problems()[code].status,
        minute=now, last_at=now, **fields,
    )  # fmt: skip


def reasons(page: Any) -> list[str]:
    [found] = [spec for spec in page.context["cl"].filter_specs if spec.title == "reason"]
    return [code for code, _ in found.lookup_choices]


def test_a_refusal_is_shown_in_a_sentence_with_person_and_client(
    console: Browser, world: World, now: datetime
) -> None:
    refuse(world.person, "monthly_cap_exceeded", now, numbers=CAP)
    refuse(world.people[1], "budget_exceeded", now, numbers={"remaining_day": "98688"})
    text = console.get(LIST).content.decode()
    assert "Needed 1,641 input tokens; 1,148 of 6,000 were left." in text
    assert known_problems()["budget_exceeded"].default_detail.split("’")[0][:4] in text
    assert "98,688" not in text
    assert f'href="{reverse("admin:accounts_client_change", args=[world.client.pk])}"' in text
    assert f">{world.person.email}</a>" in text
    for raw in ("dimension", "remaining day", str(world.client.pk) + "<"):
        assert raw not in text


def test_only_reasons_that_occur_are_offered(console: Browser, world: World, now: datetime) -> None:
    refuse(world.person, "monthly_cap_exceeded", now)
    refuse(world.people[1], "budget_exceeded", now)
    refuse(world.people[1], "budget_exceeded", now - timedelta(hours=1))
    assert reasons(console.get(LIST)) == ["budget_exceeded", "monthly_cap_exceeded"]
    one = {"user__id__exact": str(world.person.pk)}
    assert reasons(console.get(LIST, one)) == ["monthly_cap_exceeded"]
    page = console.get(LIST, {"code": "budget_exceeded"})
    assert (reasons(page)[0], page.context["cl"].result_count) == ("budget_exceeded", 2)
    assert console.get(LIST, {"code": "no_such"}).context["cl"].result_count == 0


def test_refusals_are_filtered_by_reason_and_time(
    console: Browser, world: World, now: datetime
) -> None:
    refuse(world.person, "monthly_cap_exceeded", now)
    refuse(world.people[1], "budget_exceeded", now - timedelta(days=3))
    lately = {
        "minute__gte": f"{now - timedelta(days=1)}",
        "minute__lt": f"{now + timedelta(days=1)}",
    }
    found = console.get(LIST, lately).context["cl"]
    assert [spec.title for spec in found.filter_specs] == ["reason", "time"]
    assert found.result_count == 1


def test_a_refusal_says_what_the_person_read_and_leads_to_their_calls(
    console: Browser, world: World, now: datetime
) -> None:
    problem = MonthlyCapExceeded("This call may need 1,641 tokens.", now=now, until=now, **CAP)
    problem.about["person"] = world.person.pk
    refused = Refused(problem, "/v1/llm/complete", "llm", None, "192.0.2.1", "request-1", now)
    refusal_log.note(refused)
    refusal_log.flush()
    page = reverse("admin:usage_refusal_change", args=[Refusal.objects.get().pk])
    text = console.get(page).content.decode()
    assert "What the person saw" in text
    assert "This call may need 1,641 tokens." in text
    [calls] = {line for line in text.split('"') if "usagerecord/?user__id__exact" in line}
    assert console.get(calls).context["cl"].result_count == 2


def test_a_role_that_may_not_open_clients_reads_their_names(world: World, now: datetime) -> None:
    refuse(world.person, "monthly_cap_exceeded", now, numbers=CAP)
    browser = Browser()
    browser.force_login(operator_with(Role.SUPPORT))
    assert browser.get(LIST).status_code == 200


# N+1 queries of lists of rows with people: jazzband/django-user-sessions#94, jazzband/django-auditlog#381.
def test_more_rows_cost_no_more_queries(console: Browser, world: World, now: datetime) -> None:
    def queries() -> int:
        with CaptureQueriesContext(connection) as asked:
            assert console.get(LIST).status_code == 200
        return len(asked)

    refuse(world.person, "monthly_cap_exceeded", now, numbers=CAP)
    few = queries()
    for person in world.people:
        for minute in range(1, 5):
            refuse(person, "monthly_cap_exceeded", now - timedelta(minutes=minute), numbers=CAP)
    assert queries() == few
