"""The front page: what an operator should see first."""

from datetime import datetime, timedelta
from socket import gethostname

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from accounts.audit import Actor, record
from accounts.jobs import Job, run
from accounts.models import SigningKey, User
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


def troubles(now: datetime) -> str:
    return " ".join(trouble.says for trouble in at_a_glance(operator=ALL_RIGHTS, now=now)["alerts"])


def test_nothing_needs_attention_where_all_is_well(signing_key: None, now: datetime) -> None:
    beat(now)
    assert at_a_glance(operator=ALL_RIGHTS, now=now)["alerts"] == []


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
    assert "failed for good: 2" in troubles(now)
    assert "should have begun by now: 1" in troubles(now)
    # One that was queued to be done at once; the table notes by itself when that was.
    job("todo")
    with connection.cursor() as cursor:
        cursor.execute("UPDATE procrastinate_events SET at = %s", [now - timedelta(hours=1)])
    assert "should have begun by now: 2" in troubles(now)


def test_operators_who_belong_to_a_client_are_told(
    console: Browser, user: User, now: datetime
) -> None:
    assert "belong to a client" not in troubles(now)
    make_operator_of_a_client(user)
    assert "Operators who belong to a client, as nobody new can: 1." in troubles(now)
    listed = console.get(reverse("admin:accounts_operator_changelist"), {"client": "some"})
    assert listed.context["cl"].result_count == 1
    assert user.email in listed.content.decode()


def test_a_missing_signing_key_is_told(db: None, now: datetime) -> None:
    assert "nobody can sign in" in troubles(now)


def test_a_key_that_signs_only_later_is_none_yet(signing_key: None, now: datetime) -> None:
    SigningKey.objects.update(signs_from=now + timedelta(days=1))
    assert "nobody can sign in" in troubles(now)


def test_calls_in_flight_and_those_nobody_settled(world: World, now: datetime) -> None:
    assert at_a_glance(operator=ALL_RIGHTS, now=now)["in_flight"] == 8
    UsageRecord.objects.open().filter(user=world.person).update(
        expires_at=now - timedelta(minutes=10)
    )
    assert at_a_glance(operator=ALL_RIGHTS, now=now)["in_flight"] == 7
    assert "expired and is still held: 1" in troubles(now)


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
    world: World, now: datetime
) -> None:
    glance = at_a_glance(operator=ALL_RIGHTS, now=now)
    assert [(status, number) for status, number, _ in glance["licences"]] == [
        ("active", 1),
        ("grace", 1),
        ("suspended", 0),
    ]
    assert [licence.client.name for licence in glance["graces"]] == ["Acme"]


def test_the_last_run_of_every_nightly_job_is_shown(
    console: Browser, world: World, now: datetime
) -> None:
    text = console.get("/admin/").content.decode()
    assert all(job.name in text for job in JOBS)
    assert "never" in text
    broken = Job("prune_telemetry", lambda **_: str(1 / 0))
    run(broken, by=Actor.command("nightly"), now=now)
    run(EXPIRE_GRACE, by=Actor.command("expire_grace"), now=now)
    text = console.get("/admin/").content.decode()
    assert "failed: ZeroDivisionError" in text
    assert "manage.py expire_grace" in text
    assert gethostname() in text


def test_a_night_that_was_missed_is_told(signing_key: None, now: datetime) -> None:
    beat(now)
    for job, hours in (("expire_grace", 27), ("prune_telemetry", 3)):
        at = now - timedelta(hours=hours)
        record("nightly:done", by=Actor.command("nightly"), now=at, target=job, target_id=job)
    assert "more than a night: expire_grace." in troubles(now)


def test_the_page_shows_it_and_every_link_of_it_leads_somewhere(
    console: Browser, world: World
) -> None:
    response = console.get("/admin/")
    text = response.content.decode()
    glance = response.context["glance"]
    assert "Jobs that failed for good: 1." in text
    assert "licence:operator_set" in text
    links = [url for _, _, url in glance["licences"]] + [glance["in_flight_url"]]
    links += [trouble.path for trouble in glance["alerts"] if trouble.path]
    for link in links:
        assert console.get(link).status_code == 200, link


def test_it_costs_a_handful_of_queries(world: World, now: datetime) -> None:
    with CaptureQueriesContext(connection) as queries:
        at_a_glance(operator=ALL_RIGHTS, now=now)
    assert len(queries) <= 23
