"""Queued work as operators see it."""

from datetime import datetime

import pytest
from django.urls import reverse
from procrastinate.contrib.django.models import ProcrastinateJob

from accounts.models import AuditEvent, User
from tests.conftest import Browser
from tests.console.conftest import World

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
    assert "not any more" in again.content.decode()
    assert AuditEvent.objects.filter(action="job:retried").count() == 1


def test_several_failed_jobs_are_queued_again_and_others_left(
    console: Browser, world: World
) -> None:
    address = reverse("admin:procrastinate_procrastinatejob_changelist")
    asked = console.post(address, {"action": "retry", "_selected_action": [world.job_id]})
    assert f"mail.send {world.job_id}" in asked.content.decode()
    several = reverse("admin:procrastinate_procrastinatejob_retry_several")
    done = console.post(
        several, {"target": [world.job_id, 999_999], "reason": "Again."}, follow=True
    )
    assert "Jobs queued again: 1." in done.content.decode()


def test_nothing_that_has_not_failed_can_be_chosen(console: Browser, world: World) -> None:
    console.post(page(world.job_id, "retry"), {"reason": "Again."})
    address = reverse("admin:procrastinate_procrastinatejob_changelist")
    response = console.post(
        address, {"action": "retry", "_selected_action": [world.job_id]}, follow=True
    )
    assert "Nothing you chose allows that." in response.content.decode()


def test_a_job_tells_its_course_and_nothing_of_what_it_was_given(
    console: Browser, world: World
) -> None:
    text = console.get(page(world.job_id)).content.decode()
    assert "mail.send" in text
    assert "args" not in text.partition('id="content-main"')[2]
