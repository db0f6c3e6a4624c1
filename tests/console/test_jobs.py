"""Queued work as operators see it."""

from datetime import datetime, timedelta

import pytest
from asgiref.sync import async_to_sync
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from procrastinate.contrib.django import app
from procrastinate.contrib.django.models import ProcrastinateJob
from procrastinate.jobs import Job

from accounts.audit import Actor, record
from accounts.models import AuditEvent, Role, User
from config.composition.attention.listing import items
from config.composition.operation.nightly import JOBS
from config.management.commands.work import note_failure
from config.platform.jobs.queue import (
    forget_old,
    forget_resets,
    forgive_superseded,
    title_of,
)
from tests.conftest import Browser
from tests.console.conftest import JOB_SECRET, World

pytestmark = pytest.mark.django_db


def page(job_id: int, act: str = "change") -> str:
    return reverse(f"admin:procrastinate_procrastinatejob_{act}", args=[job_id])


def test_a_failed_job_is_queued_again_once(
    console: Browser, operator: User, world: World, now: datetime
) -> None:
    assert "may be done twice" in console.get(page(world.job_id, "retry")).content.decode()
    assert ProcrastinateJob.objects.get(pk=world.job_id).status == "failed"

    console.post(page(world.job_id, "retry"), {"reason": "Mail works again."})
    job = ProcrastinateJob.objects.get(pk=world.job_id)
    assert (job.status, job.scheduled_at and job.scheduled_at >= now) == ("todo", True)
    event = AuditEvent.objects.get(action="job:retried")
    assert (event.target, event.target_id) == ("mail.send", str(world.job_id))
    assert (event.actor, event.address, event.reason) == (
        operator.email,
        Browser.address,
        "Mail works again.",
    )

    again = console.post(page(world.job_id, "retry"), {"reason": "Twice."}, follow=True)
    assert "This action is not available" in again.content.decode()
    assert AuditEvent.objects.filter(action="job:retried").count() == 1


def test_a_job_that_is_queued_again_has_as_many_tries_as_a_new_one(
    console: Browser, world: World
) -> None:
    console.post(page(world.job_id, "retry"), {"reason": "Mail works again."})
    assert ProcrastinateJob.objects.get(pk=world.job_id).attempts == 0


@pytest.mark.parametrize("act", ["retry", "retry_alike"])
def test_a_failed_scheduled_job_that_is_already_queued_again_is_kept(
    console: Browser, world: World, act: str
) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO procrastinate_jobs (queue_name, task_name, args, status, queueing_lock)"
            " VALUES ('usage', 'usage.tell', '{}', 'failed', 'tell'), ('usage', 'usage.tell', '{}', 'todo', 'tell')"
            " RETURNING id"
        )
        failed = cursor.fetchone()[0]
    done = console.post(page(failed, act), {"reason": "Again."}, follow=True)
    assert "0 jobs queued again. 1 skipped: no longer failed, or the same" in (
        done.content.decode()
    )
    assert number("usage.tell", "todo") == 1
    assert not AuditEvent.objects.filter(action="job:retried").exists()


def test_several_failed_jobs_are_queued_again_and_others_left(
    console: Browser, world: World
) -> None:
    address = reverse("admin:procrastinate_procrastinatejob_changelist")
    asked = console.post(address, {"action": "retry", "_selected_action": [world.job_id]})
    assert f"Send an email {world.job_id}" in asked.content.decode()
    several = reverse("admin:procrastinate_procrastinatejob_retry_several")
    done = console.post(
        several, {"target": [world.job_id, 999_999], "reason": "Again."}, follow=True
    )
    assert "1 job queued again." in done.content.decode()


def test_nothing_that_has_not_failed_can_be_chosen(console: Browser, world: World) -> None:
    console.post(page(world.job_id, "retry"), {"reason": "Again."})
    address = reverse("admin:procrastinate_procrastinatejob_changelist")
    response = console.post(
        address, {"action": "retry", "_selected_action": [world.job_id]}, follow=True
    )
    assert "None of the selected rows allows this action." in response.content.decode()


@pytest.mark.parametrize("key", ["zzz", "", "-1", "1" * 30, "\x00"])
def test_a_text_that_is_no_key_of_a_job_is_no_job(console: Browser, world: World, key: str) -> None:
    several = reverse("admin:procrastinate_procrastinatejob_retry_several")
    chosen = {"target": [world.job_id, key], "reason": "Again."}
    assert console.post(several, chosen).status_code == 302
    address = reverse("admin:procrastinate_procrastinatejob_changelist")
    response = console.post(address, {"action": "retry", "_selected_action": [key]}, follow=True)
    assert response.status_code == 200
    assert 'name="target"' not in response.content.decode()


def fail(task: str, *, times: int) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO procrastinate_jobs (queue_name, task_name, args, status, attempts)"
            " SELECT 'mail', %s, '{}', 'failed', 28 FROM generate_series(1, %s)",
            [task, times],
        )


def number(task: str, status: str) -> int:
    return ProcrastinateJob.objects.filter(task_name=task, status=status).count()


def test_all_that_failed_of_a_task_are_queued_again_and_none_of_another(
    console: Browser, world: World
) -> None:
    fail("mail.send", times=60)
    fail("releases.place", times=1)
    asked = console.get(page(world.job_id, "retry_alike")).content.decode()
    assert "61 failed jobs “Send an email”: queued again" in asked
    done = console.post(
        page(world.job_id, "retry_alike"), {"reason": "Mail works again."}, follow=True
    )
    assert "61 jobs queued again." in done.content.decode()
    assert (number("mail.send", "todo"), number("mail.send", "failed")) == (61, 0)
    assert number("releases.place", "failed") == 1
    assert AuditEvent.objects.filter(action="job:retried").count() == 61


def test_a_failed_job_is_discarded_with_a_reason_and_asked_about_no_more(
    console: Browser, operator: User, world: World, now: datetime
) -> None:
    assert console.post(page(world.job_id, "discard"), {"reason": ""}).status_code == 200
    assert number("mail.send", "failed") == 1
    console.post(page(world.job_id, "discard"), {"reason": "They have left."})
    assert number("mail.send", "cancelled") == 1
    assert "failed permanently" not in " ".join(
        str(each) for each in items(now=now, operator=operator)
    )
    event = AuditEvent.objects.get(action="job:discarded")
    assert (event.actor, event.target, event.target_id, event.reason) == (
        operator.email,
        "mail.send",
        str(world.job_id),
        "They have left.",
    )
    again = console.post(page(world.job_id, "discard"), {"reason": "Twice."}, follow=True)
    assert "This action is not available" in again.content.decode()
    assert "Discarded" in console.get(page(world.job_id)).content.decode()


def test_a_discarded_job_is_deleted_after_a_week_and_a_failed_one_is_not(
    console: Browser, world: World
) -> None:
    fail("mail.send", times=1)
    console.post(page(world.job_id, "discard"), {"reason": "They have left."})
    with connection.cursor() as cursor:
        cursor.execute("UPDATE procrastinate_events SET at = at - interval '8 days'")
    async_to_sync(forget_old)(app.job_manager)
    assert (number("mail.send", "cancelled"), number("mail.send", "failed")) == (0, 1)


def test_resets_that_were_done_are_deleted_at_once_and_others_are_not(world: World) -> None:
    for queue, task, status in (
        ("resets", "accounts.send_reset", "succeeded"),
        ("resets", "accounts.send_reset", "failed"),
        ("resets", "accounts.send_reset", "todo"),
        ("mail", "mail.send", "succeeded"),
    ):
        with connection.cursor() as cursor:
            cursor.execute(
                "INSERT INTO procrastinate_jobs (queue_name, task_name, status) VALUES (%s, %s, %s)",
                [queue, task, status],
            )
    forget_resets()
    kept = ProcrastinateJob.objects.filter(task_name="accounts.send_reset")
    assert sorted(kept.values_list("status", flat=True)) == ["failed", "todo"]
    assert number("mail.send", "succeeded") == 1


def test_resets_that_failed_are_deleted_after_a_day_and_others_are_not(world: World) -> None:
    def fail_in(queue: str, task: str, hours: int) -> None:
        with connection.cursor() as cursor:
            cursor.execute(
                "INSERT INTO procrastinate_jobs (queue_name, task_name, status)"
                " VALUES (%s, %s, 'doing') RETURNING id",
                [queue, task],
            )
            (job,) = cursor.fetchone() or (0,)
            cursor.execute("UPDATE procrastinate_jobs SET status = 'failed' WHERE id = %s", [job])
            cursor.execute(
                "UPDATE procrastinate_events SET at = at - make_interval(hours => %s) WHERE job_id = %s",
                [hours, job],
            )

    fail_in("resets", "accounts.send_reset", 25)
    fail_in("resets", "accounts.send_reset", 23)
    fail_in("mail", "accounts.send_password_link", 25)
    async_to_sync(forget_old)(app.job_manager)
    assert number("accounts.send_reset", "failed") == 1
    assert number("accounts.send_password_link", "failed") == 1


def test_a_failure_of_the_clock_is_forgiven_once_the_same_was_done_later(world: World) -> None:
    def periodic(task: str, status: str) -> None:
        with connection.cursor() as cursor:
            cursor.execute(
                "INSERT INTO procrastinate_jobs (queue_name, task_name, args, status, queueing_lock)"
                " VALUES ('usage', %s, '{}', %s, %s)",
                [task, status, task],
            )

    for task, *course in (
        ("usage.tell", "failed", "succeeded"),
        ("usage.settle_abandoned", "succeeded", "failed"),
    ):
        for status in course:
            periodic(task, status)
    fail("mail.send", times=1)
    forgive_superseded()
    assert number("usage.tell", "failed") == 0
    assert number("usage.settle_abandoned", "failed") == 1
    assert number("mail.send", "failed") == 2


def test_a_job_tells_its_course_and_nothing_of_what_it_was_given(
    console: Browser, world: World
) -> None:
    text = console.get(page(world.job_id)).content.decode()
    assert "mail.send" in text
    assert "args" not in text.partition('id="content-main"')[2]


def test_a_failed_job_says_why_and_for_whom_and_nothing_else_of_its_arguments(
    console: Browser, operator: User, world: World, now: datetime
) -> None:
    args = {
        "to": [world.person.email],
        "text": f"Hello, {JOB_SECRET} is the way in",
        "nested": {"list": ["a word-of-secrets"]},
    }
    ProcrastinateJob.objects.filter(pk=world.job_id).update(args=args)
    job = Job(
        id=world.job_id, queue="mail", lock=None, queueing_lock=None, task_name="mail.send", task_kwargs=args
    )  # fmt: skip
    said = f"550 no {world.person.email} at {JOB_SECRET}, word-of-secrets, password=hunter22hunter, gone"
    note_failure(job, ConnectionRefusedError(said), now=now)
    event = AuditEvent.objects.get(action="job:failed")
    assert (event.target, event.target_id) == ("mail.send", str(world.job_id))
    assert event.after == {
        "cause": "ConnectionRefusedError: 550 no […] at […], […], password=[secret], gone"
    }
    for address in (page(world.job_id), reverse("admin:procrastinate_procrastinatejob_changelist")):
        shown = console.get(address).content.decode()
        assert "ConnectionRefusedError: 550 no […]" in shown
        person = reverse("admin:accounts_user_change", args=[world.person.pk])
        assert f'href="{person}"' in shown
        for secret in (JOB_SECRET, "word-of-secrets", "hunter22hunter"):
            assert secret not in shown
    # A stranger is shown by the domain alone, and a role that may see no people is told of none.
    ProcrastinateJob.objects.filter(pk=world.job_id).update(args={"to": ["x@stranger.test"]})
    shown = console.get(page(world.job_id)).content.decode()
    assert "somebody at stranger.test" in shown
    assert "x@stranger.test" not in shown
    ProcrastinateJob.objects.filter(pk=world.job_id).update(args=args)
    operator.put_roles({Role.RELEASE})
    for address in (page(world.job_id), reverse("admin:procrastinate_procrastinatejob_changelist")):
        shown = console.get(address).content.decode()
        assert (world.person.email in shown, person in shown) == (False, False)
        assert "a person" in shown


def test_nights_are_listed_with_their_result_and_last_success_failed_ones_first(
    console: Browser, operator: User, world: World, by: Actor, now: datetime
) -> None:
    names = [each.name for each in JOBS[:2]]
    for name, verb, says in zip(
        names, ("done", "failed"), ("3 clients", "failed: Timeout"), strict=True
    ):
        after = {"says": says, "seconds": 1.2, "host": "x"}
        record(f"nightly:{verb}", name, by=by, now=now, target_id=name, after=after)
    address = reverse("admin:procrastinate_procrastinatejob_changelist")
    shown = console.get(address).content.decode().partition("Nightly jobs")[2]
    assert shown.index(names[1]) < shown.index(names[0])
    for text in ("Result", "Last success", "3 clients", "failed: Timeout", "Not yet"):
        assert text in shown
    operator.put_roles({Role.RELEASE})
    assert "Nightly jobs" not in console.get(address).content.decode()


def test_jobs_are_listed_by_title_with_status_and_next_try(
    console: Browser, world: World, now: datetime
) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO procrastinate_jobs (queue_name, task_name, args, status, scheduled_at, attempts) VALUES"
            " ('mail', 'accounts.send_password_link', jsonb_build_object('user_id', %s::text), 'todo', %s, 2),"
            " ('usage', 'usage.tell', '{}', 'todo', NULL, 0), ('x', 'of.before', '{}', 'succeeded', NULL, 1)",
            [str(world.person.pk), now + timedelta(days=400)],
        )
    listed = reverse("admin:procrastinate_procrastinatejob_changelist")
    text = console.get(listed).content.decode().partition("All jobs")[2]
    for said in ("Send an email", "Email a password link", "Email usage alerts", "of.before"):
        assert said in text
    for word in ("Waiting", "Failed", "Done"):
        assert f'">{word}</span>' in text
    assert f"{(now + timedelta(days=400)).year}</time>" in text
    assert "at once" in text
    assert world.person.email in text
    for raw in ("accounts.send_password_link", "mail.send", "todo<"):
        assert raw not in text
    assert console.get(listed, {"q": "password link"}).context["cl"].result_count == 1
    assert console.get(listed, {"q": "mail.send"}).context["cl"].result_count == 1


def test_failed_jobs_come_first_with_their_retry(console: Browser, world: World) -> None:
    listed = reverse("admin:procrastinate_procrastinatejob_changelist")
    failed = console.get(listed).content.decode().partition("Nightly jobs")[0]
    assert "Send an email" in failed
    assert f'href="{page(world.job_id, "retry")}"' in failed


def test_more_jobs_cost_no_more_queries(console: Browser, world: World) -> None:
    def queries() -> int:
        with CaptureQueriesContext(connection) as asked:
            console.get(reverse("admin:procrastinate_procrastinatejob_changelist"))
        return len(asked)

    few = queries()
    fail("mail.send", times=40)
    assert queries() == few


def test_every_task_and_nightly_job_says_what_it_does() -> None:
    own = [name for name in app.tasks if not name.startswith(("builtin:", "procrastinate."))]
    assert [name for name in own if title_of(name) == name] == []
    assert [job.name for job in JOBS if not job.title] == []
