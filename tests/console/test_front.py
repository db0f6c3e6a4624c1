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
from accounts.models import SigningKey, User
from config.console.attention.listing import items
from config.console.front import at_a_glance
from config.management.nightly import JOBS
from licensing.night import EXPIRE_GRACE
from releases.models import Publication
from tests.conftest import Browser
from tests.console.conftest import World, make_operator_of_a_client
from usage.models import UsageRecord

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


def troubles(now: datetime) -> str:
    return " ".join(str(trouble) for trouble in items(operator=ALL_RIGHTS, now=now))


def test_nothing_needs_attention_where_all_is_well(signing_key: None, now: datetime) -> None:
    beat(now)
    assert items(operator=ALL_RIGHTS, now=now) == []


def test_a_missing_or_silent_worker_is_told(signing_key: None, now: datetime) -> None:
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
    assert "2 jobs failed permanently: mail.send." in troubles(now)
    assert "1 job should have begun by now." in troubles(now)
    # One that was queued to be done at once; the table notes by itself when that was.
    job("todo")
    with connection.cursor() as cursor:
        cursor.execute("UPDATE procrastinate_events SET at = %s", [now - timedelta(hours=1)])
    assert "2 jobs should have begun by now." in troubles(now)


def test_operators_who_belong_to_a_client_are_told(
    console: Browser, user: User, now: datetime
) -> None:
    assert "belong to a client" not in troubles(now)
    make_operator_of_a_client(user)
    assert "1 operator who belong to a client, as nobody new can." in troubles(now)
    listed = console.get(reverse("admin:accounts_operator_changelist"), {"client": "some"})
    assert listed.context["cl"].result_count == 1
    assert user.email in listed.content.decode()


def test_a_missing_signing_key_is_told(db: None, now: datetime) -> None:
    assert "nobody can sign in" in troubles(now)


def test_a_key_that_signs_only_later_is_none_yet(signing_key: None, now: datetime) -> None:
    SigningKey.objects.update(signs_from=now + timedelta(days=1))
    assert "nobody can sign in" in troubles(now)


def test_calls_in_flight_and_those_nobody_settled(
    world: World, request_of: Any, now: datetime
) -> None:
    assert at_a_glance(request_of, now=now)["in_flight"] == 8
    UsageRecord.objects.open().filter(user=world.person).update(
        expires_at=now - timedelta(minutes=10)
    )
    assert at_a_glance(request_of, now=now)["in_flight"] == 7
    assert "1 call whose process has died" in troubles(now)


def test_a_publish_that_was_not_finished_is_told(world: World, now: datetime) -> None:
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
    world: World, request_of: Any, now: datetime
) -> None:
    glance = at_a_glance(request_of, now=now)
    assert [(status, number) for status, number, _ in glance["licences"]] == [
        ("active", 1),
        ("grace", 1),
        ("suspended", 0),
    ]
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
    assert "The nightly job prune_telemetry failed: ZeroDivisionError." in troubles(now)
    text = console.get("/admin/").content.decode()
    assert f"2 of {len(JOBS)} succeeded" in text
    assert "failed: ZeroDivisionError" in text


def test_a_night_that_was_missed_is_told(signing_key: None, now: datetime) -> None:
    beat(now)
    for job, hours in (("expire_grace", 27), ("prune_telemetry", 3)):
        at = now - timedelta(hours=hours)
        record("nightly:done", by=Actor.command("nightly"), now=at, target=job, target_id=job)
    assert "The nightly job expire_grace has not succeeded for more than a night." in troubles(now)


def test_the_page_shows_it_and_every_link_of_it_leads_somewhere(
    console: Browser, world: World
) -> None:
    response = console.get("/admin/")
    text = response.content.decode()
    glance = response.context["glance"]
    assert "1 job</a> failed permanently: mail.send." in text
    assert "licence:operator_set" in text
    links = [url for _, _, url in glance["licences"]] + [glance["in_flight_url"]]
    for line in glance["attention"]:
        links += [*re.findall(r'href="([^"]+)"', line.says), *([line.act[1]] if line.act else [])]
    assert len(links) > 8
    for link in links:
        assert console.get(unescape(link)).status_code == 200, link


def test_it_costs_a_handful_of_queries(world: World, request_of: Any, now: datetime) -> None:
    with CaptureQueriesContext(connection) as queries:
        at_a_glance(request_of, now=now)
    assert len(queries) <= 35
