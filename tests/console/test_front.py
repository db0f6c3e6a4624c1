"""The front page: what an operator should see first."""

import re
from datetime import datetime, timedelta
from html import unescape
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from accounts.audit import Actor, record
from accounts.jobs import Job, run
from accounts.models import Role, SigningKey, User
from config.composition.attention.listing import items
from config.composition.operation.nightly import JOBS
from licensing.night import EXPIRE_GRACE
from releases.models import Publication
from tests.conftest import Browser
from tests.console.conftest import World, make_operator_of_a_client
from tests.console.test_every_act import arranged
from tests.console.test_roles import operator_with
from usage.models import Refusal, UsageRecord
from usage.spending.daily import count_days

pytestmark = pytest.mark.django_db
ALL_RIGHTS = User(is_superuser=True)


def beat(at: datetime) -> None:
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO procrastinate_workers (last_heartbeat) VALUES (%s)", [at])


def job(status: str, scheduled_at: datetime | None = None) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO procrastinate_jobs (queue_name, task_name, status, scheduled_at)"
            " VALUES ('mail', 'mail.send', %s, %s)",
            [status, scheduled_at],
        )


@pytest.fixture
def request_of(rf: Any) -> Any:
    request = rf.get("/admin/")
    request.user = ALL_RIGHTS
    return request


FRONTS = {
    Role.OWNER: {"money", "calls", "sign_ins", "licences"},
    Role.AUDITOR: {"money", "calls", "sign_ins", "licences", "activity"},
    Role.SUPPORT: {"calls", "sign_ins", "refusals", "running"},
    Role.LICENSING: {"money", "licences", "budgets"},
    Role.RELEASE: {"channels", "shells", "publications", "apps"},
}


def troubles(now: datetime) -> str:
    return " ".join(str(trouble) for trouble in items(operator=ALL_RIGHTS, now=now))


def test_nothing_needs_attention_where_all_is_well(signing_key: None, now: datetime) -> None:
    beat(now)
    assert items(operator=ALL_RIGHTS, now=now) == []


def test_a_missing_or_silent_worker_is_listed(signing_key: None, now: datetime) -> None:
    assert "No worker is running" in troubles(now)
    beat(now - timedelta(minutes=5))
    assert "No worker is running" in troubles(now)
    beat(now - timedelta(seconds=20))
    assert "No worker is running" not in troubles(now)


def test_jobs_that_failed_or_wait_too_long_are_counted(signing_key: None, now: datetime) -> None:
    beat(now)
    job("succeeded")
    job("todo", now + timedelta(hours=1))
    job("todo", now - timedelta(minutes=1))
    assert troubles(now) == ""
    job("failed")
    job("failed")
    job("todo", now - timedelta(hours=1))
    assert "2 jobs failed permanently: send an email." in troubles(now)
    assert "1 job should have started by now." in troubles(now)
    # One that was queued to be done at once; the table notes by itself when that was.
    job("todo")
    with connection.cursor() as cursor:
        cursor.execute("UPDATE procrastinate_events SET at = %s", [now - timedelta(hours=1)])
    assert "2 jobs should have started by now." in troubles(now)


def test_operators_who_belong_to_a_client_are_listed(
    console: Browser, user: User, now: datetime
) -> None:
    assert "to a client" not in troubles(now)
    make_operator_of_a_client(user)
    assert "1 operator belongs to a client, which new operators cannot." in troubles(now)
    listed = console.get(reverse("admin:accounts_operator_changelist"), {"client": "some"})
    assert listed.context["cl"].result_count == 1
    assert user.email in listed.content.decode()


def test_a_missing_signing_key_is_listed(db: None, now: datetime) -> None:
    assert "nobody can sign in" in troubles(now)


def test_a_key_that_signs_only_later_is_none_yet(signing_key: None, now: datetime) -> None:
    SigningKey.objects.update(signs_from=now + timedelta(days=1))
    assert "nobody can sign in" in troubles(now)


def test_running_calls_and_those_nobody_settled(
    console: Browser, world: World, now: datetime
) -> None:
    assert "16 calls, 8 running" in console.get("/admin/").content.decode()
    UsageRecord.objects.open().filter(user=world.person).update(
        expires_at=now - timedelta(minutes=10)
    )
    assert "16 calls, 7 running" in console.get("/admin/").content.decode()
    assert "1 call whose process has died" in troubles(now)


def test_an_unfinished_publish_is_listed(world: World, now: datetime) -> None:
    publication = Publication.objects.get()
    assert "not in storage" not in troubles(now)
    publication.stored_at, publication.published_at = None, now - timedelta(hours=1)
    publication.save()
    assert "stable 1.2.3 was published but is not in storage." in troubles(now)
    publication.pk = None
    publication.stored_at = now
    publication.save()
    assert "not in storage" not in troubles(now)


def test_licences_are_counted_by_status_and_graces_that_end_are_named(
    console: Browser, world: World, now: datetime
) -> None:
    panels = dict(console.get("/admin/").context["glance"]["panels"])
    found = panels["admin/front/licences.html"]
    assert found["states"] == [("active", 1), ("grace", 1), ("suspended", 0)]
    assert [licence.client.name for licence in found["others"]] == ["Acme"]
    assert "Acme is in its grace period until" in troubles(now)


def test_nights_are_one_line_until_a_job_fails(
    console: Browser, world: World, now: datetime
) -> None:
    assert f"0 of {len(JOBS)} succeeded" in console.get("/admin/").content.decode()
    broken = Job("prune_telemetry", lambda **_: str(1 / 0))
    run(EXPIRE_GRACE, by=Actor.command("expire_grace"), now=now)
    assert "failed" not in troubles(now).replace("failed permanently", "")
    run(broken, by=Actor.command("nightly"), now=now - timedelta(days=1))
    done = Job("prune_telemetry", lambda **_: "none")
    run(done, by=Actor.command("nightly"), now=now - timedelta(hours=2))
    run(broken, by=Actor.command("nightly"), now=now)
    assert "The nightly job “Remove old telemetry” failed: ZeroDivisionError." in troubles(now)
    text = console.get("/admin/").content.decode()
    assert "succeeded" not in text
    assert "failed: ZeroDivisionError" in text


def test_a_missed_night_is_listed(signing_key: None, now: datetime) -> None:
    beat(now)
    for job, hours in (("expire_grace", 27), ("prune_telemetry", 3)):
        at = now - timedelta(hours=hours)
        record("nightly:done", by=Actor.command("nightly"), now=at, target=job, target_id=job)
    said = "1 nightly job has not succeeded for more than a day: Suspend clients whose grace"
    assert said in troubles(now)


def test_missed_nights_are_one_line(console: Browser, now: datetime) -> None:
    beat(now)
    for each in JOBS[:6]:
        at = now - timedelta(hours=27)
        record(
            "nightly:done",
            by=Actor.command("nightly"),
            now=at,
            target=each.name,
            target_id=each.name,
        )
    text = console.get("/admin/").content.decode()
    assert "6 nightly jobs</a> have not succeeded</b> for more than a day: Read licences" in text


def test_the_page_names_what_needs_attention(console: Browser, world: World) -> None:
    assert (
        "1 job</a> failed permanently:</b> send an email."
        in console.get("/admin/").content.decode()
    )


def test_pictures_show_the_month_the_day_and_two_weeks(
    console: Browser, world: World, now: datetime
) -> None:
    call = UsageRecord.objects.filter(state="settled").first()
    assert call is not None
    UsageRecord.objects.filter(pk=call.pk).update(cost=2_500_000, end="provider_failed")
    count_days(now=now)
    Refusal.objects.create(minute=now, last_at=now, code="rate_limited", status=429, number=7)
    panels = dict(console.get("/admin/").context["glance"]["panels"])
    money, calls, sign_ins = (
        panels[f"admin/front/{name}.html"] for name in ("money", "calls", "sign_ins")
    )
    assert money.legend[0][1].startswith("$2.50, forecast $2.50")
    assert money.strips[0].bars[now.day - 1].value == 2_500_000
    assert [bar.value for bar in calls.strips[0].bars][-2:] in ([0, 16], [16, 0])
    assert calls.legend[1][1] == "1 error, 6.2 %"
    assert sign_ins.strips[0].bars[-1].value == 3
    assert sign_ins.legend[1][1] == "7 refused, 7 today"
    for chart in (money, calls):
        [href] = {bar.href for bar in chart.strips[0].bars if bar.href}
        assert console.get(href).context["cl"].result_count == 16


@pytest.mark.parametrize(
    "role",
    [
        pytest.param(each, marks=() if each == Role.SUPPORT else pytest.mark.full)
        for each in sorted(Role.values)
    ],
)
def test_each_role_has_a_front_of_its_own_and_may_open_every_link_of_it(
    role: str, world: World, by: Actor, now: datetime
) -> None:
    arranged(world, by, now)
    browser = Browser()
    browser.force_login(operator_with(role))
    answer = browser.get("/admin/")
    names = {
        template.split("/")[-1].removesuffix(".html")
        for template, _ in answer.context["glance"]["panels"]
    }
    assert names == FRONTS[role]
    text = answer.content.decode()
    links = {unescape(each) for each in re.findall(r'href="(/admin/[^"#]*)"', text)}
    assert len(links) > 10
    for link in links:
        assert browser.get(link).status_code in {200, 302}, (role, link)


def test_the_front_page_takes_a_bounded_number_of_queries(console: Browser, world: World) -> None:
    """The session, its end and the operator included, and with something of many kinds to be told."""
    with CaptureQueriesContext(connection) as queries:
        assert console.get("/admin/").status_code == 200
    assert len(queries) <= 35, [each["sql"][:200] for each in queries]
