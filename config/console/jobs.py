"""Queued work, to look at. What a job was given is not shown: a mail may hold a link that lets people in."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from django.contrib import admin
from django.db import transaction
from django.http import HttpRequest
from procrastinate.contrib.django import app
from procrastinate.contrib.django.models import ProcrastinateEvent, ProcrastinateJob

from accounts.acts import ActOnSeveral
from accounts.audit import Actor, record
from accounts.columns import OneOf, moment
from accounts.console import ConsoleAdmin

EVENTS_SHOWN = 20


class Retry(ActOnSeveral):
    """Queued again; what a task does is safe to do twice."""

    name = "retry"
    label = "Retry failed jobs"

    def offered(self, target: ProcrastinateJob, *, by: HttpRequest) -> bool:
        return target.status == "failed"

    def effects(self, target: ProcrastinateJob | None) -> Iterable[str]:
        yield "A worker takes the work up again at once. What it had done before it failed may be done twice."

    def do_all(
        self,
        targets: Sequence[ProcrastinateJob],
        given: dict[str, Any],
        *,
        by: Actor,
        now: datetime,
    ) -> str:
        queued = sum(_retry(each.pk, reason=given["reason"], by=by, now=now) for each in targets)
        return f"Jobs queued again: {queued}."


def _retry(job_id: int, *, reason: str, by: Actor, now: datetime) -> bool:
    """False where it has not failed, or somebody else was quicker."""
    with transaction.atomic():
        failed = ProcrastinateJob.objects.filter(pk=job_id, status="failed")
        job = failed.select_for_update().first()
        if job is None:
            return False
        app.job_manager.retry_job_by_id(job_id, retry_at=now)
        record("job:retried", by=by, now=now, target=job.task_name, target_id=job_id, reason=reason)
    return True


class StatusFilter(OneOf):
    title, parameter_name = "status", "status"
    choices_of = tuple((each, each) for each in ProcrastinateJob.STATUSES)

    def narrowed(self, rows: Any, value: str) -> Any:
        return rows.filter(status=value)


class JobAdmin(ConsoleAdmin):
    acts = (Retry(),)
    change_form_template = "admin/console/job.html"
    list_display = (
        "id",
        "task_name",
        "queue_name",
        "status",
        "attempts",
        moment("scheduled_at", "not before"),
    )
    list_filter = (StatusFilter,)
    search_fields = ("task_name",)
    ordering = ("-id",)
    fields = list_display

    def called(self, row: ProcrastinateJob) -> str:
        # The package's own name for a job spells out its arguments.
        return f"{row.task_name} {row.pk}"

    def beside(self, request: HttpRequest, row: ProcrastinateJob) -> dict[str, Any]:
        events = ProcrastinateEvent.objects.filter(job=row).order_by("-id")
        return {"job_events": events[:EVENTS_SHOWN]}


# The package's own page shows arguments and offers to abort.
admin.site.unregister(ProcrastinateJob)
admin.site.register(ProcrastinateJob, JobAdmin)
