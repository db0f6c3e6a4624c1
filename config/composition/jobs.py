"""The page of jobs. It shows no arguments: a mail may contain a sign-in link."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from django.conf import settings
from django.contrib import admin
from django.db import transaction
from django.db.models import Max, Q, QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils import timezone
from procrastinate.contrib.django import app
from procrastinate.contrib.django.models import ProcrastinateEvent, ProcrastinateJob
from procrastinate.exceptions import UniqueViolation

from accounts.audit import record
from accounts.models import AuditEvent, User
from config.composition.operation.nightly import last_runs, next_at
from config.console.actions import Action, BulkAction, Result, apply_to_each
from config.console.base import ConsoleAdmin, uuid_in
from config.console.finders import Finder, Term, finders
from config.console.lists.columns import ChoiceFilter, right
from config.console.navigation import page_of
from config.console.tables import Chip, Column, Link, Row, Table
from config.console.template_tags import cell, counted, instant
from config.platform.jobs.queue import named, title_of
from config.platform.text.forms import email_form

EVENTS_SHOWN = 20
FAILED_SHOWN = 20
MOST_AT_ONCE = 1000
# The chips of the package's statuses.
STATES = {
    "todo": Chip("over", "Waiting"),
    "doing": Chip("running", "Running"),
    "succeeded": Chip("well", "Done"),
    "failed": Chip("stopped", "Failed"),
    "cancelled": Chip("over", "Discarded"),
    "aborting": Chip("over", "Ending"),
    "aborted": Chip("over", "Ended"),
}


class Retry(BulkAction):
    """Queues failed jobs again; every task is safe to run twice."""

    name = "retry"
    label = "Retry failed jobs"
    question = "Retry the failed job “{name}”?"

    def available(self, target: ProcrastinateJob, *, by: HttpRequest) -> bool:
        return target.status == "failed"

    def effects(self, target: ProcrastinateJob | None) -> Iterable[str]:
        yield "A worker picks up the job at once. Work that it did before it failed may be done twice."

    def do_all(self, targets: Sequence[ProcrastinateJob], **inputs: Any) -> str:
        queued = apply_to_each(targets, lambda each: self.do_one(each, **inputs))
        others = len(targets) - queued
        rest = f" {others:,} skipped: no longer failed, or the same job is already queued."
        return f"{counted(queued, 'job')} queued again.{rest if others else ''}"

    def do_one(self, target: ProcrastinateJob, *, now: datetime, **inputs: Any) -> int:
        """Retries the job from its first attempt; returns 0 if it has not failed or is queued already."""
        with transaction.atomic():
            if not _failed(target).select_for_update().first():
                return 0
            try:
                with transaction.atomic():
                    app.job_manager.retry_job_by_id(target.pk, retry_at=now)
            except UniqueViolation:
                # The scheduler has queued it again; its success clears this failure.
                return 0
            ProcrastinateJob.objects.filter(pk=target.pk).update(attempts=0)
            _record("job:retried", target, now=now, **inputs)
        return 1


class RetryAlike(Action):
    """Queues all failed jobs of one task again, as after an outage."""

    name = "retry_alike"
    label = "Retry all failed jobs of this task"
    question = "Retry all failed jobs “{name}”?"
    atomic = False

    def title(self, target: ProcrastinateJob, name: str) -> str:
        return self.question.format(name=title_of(target.task_name))

    def available(self, target: ProcrastinateJob, *, by: HttpRequest) -> bool:
        # Also for a job that is queued already: an earlier run of the action may have stopped here.
        return target.status == "failed" or _alike(target).exists()

    def effects(self, target: ProcrastinateJob) -> Iterable[str]:
        number = _alike(target).count()
        jobs = f"{counted(number, 'failed job')} “{title_of(target.task_name)}”"
        yield f"{jobs}: queued again, at most {MOST_AT_ONCE:,} at once."
        yield "Work that they did before they failed may be done twice."

    def do(self, target: ProcrastinateJob, **inputs: Any) -> Result:
        alike = list(_alike(target).order_by("pk").only("task_name")[:MOST_AT_ONCE])
        return Result(Retry().do_all(alike, **inputs))


class Discard(BulkAction):
    name = "discard"
    label = "Discard failed jobs"
    question = "Discard the failed job “{name}”?"
    destructive = True

    def available(self, target: ProcrastinateJob, *, by: HttpRequest) -> bool:
        return target.status == "failed"

    def effects(self, target: ProcrastinateJob | None) -> Iterable[str]:
        yield "The job is not tried again, and is no longer listed as failed. It is deleted after a week."

    def message(self, subject: str, number: int) -> str:
        return f"{counted(number, 'job')} discarded."

    def do_one(self, target: ProcrastinateJob, *, now: datetime, **inputs: Any) -> int:
        """Discards the job; returns 0 if it has not failed, or another operator was faster."""
        with transaction.atomic():
            # The package's own functions cancel only a job that has not begun.
            if not _failed(target).update(status="cancelled"):
                return 0
            # The days until its deletion count from this event on.
            ProcrastinateEvent.objects.create(job_id=target.pk, type="cancelled", at=now)
            _record("job:discarded", target, now=now, **inputs)
        return 1


def _failed(job: ProcrastinateJob) -> QuerySet[ProcrastinateJob]:
    return ProcrastinateJob.objects.filter(pk=job.pk, status="failed")


def _record(action: str, job: ProcrastinateJob, **inputs: Any) -> None:
    record(action, job.task_name, target_id=job.pk, **inputs)


def _alike(job: ProcrastinateJob) -> QuerySet[ProcrastinateJob]:
    return ProcrastinateJob.objects.filter(status="failed", task_name=job.task_name)


class StatusFilter(ChoiceFilter):
    title, parameter_name = "status", "status"
    choices_of = tuple((status, chip.word) for status, chip in STATES.items())


def causes(jobs: Iterable[ProcrastinateJob]) -> dict[str, AuditEvent]:
    """Returns the latest failure of each job by id; earlier releases recorded none."""
    ids = [str(job.pk) for job in jobs]
    events = AuditEvent.objects.filter(action="job:failed", target_id__in=ids).order_by("at", "id")
    return {event.target_id: event for event in events}


def recipients(jobs: Iterable[ProcrastinateJob], *, by: HttpRequest) -> dict[int, Link]:
    """Returns the recipient of each job: a known person, or the domain of another address, and no other argument.

    Roles that may not view people do not see who it is.
    """
    may_see = by.user.has_perm("accounts.view_user")
    named = {}
    for job in jobs:
        to = job.args.get("user_id") or job.args.get("email") or job.args.get("to") or ""
        named[job.pk] = str(to[0] if isinstance(to, list) and to else to)
    if not any(named.values()):
        return dict.fromkeys(named, Link("", ""))
    ids = Q(pk__in=[each for each in map(uuid_in, named.values()) if each])
    forms = {to: email_form(to) for to in named.values()}
    mailboxes = Q(email__in=forms) | Q(email_form__in=forms.values())
    # Of two people with one mailbox the younger has no normal form and comes last: only the exact text is theirs.
    people = User.objects.filter(ids | mailboxes).order_by("email_form")
    known = {key: each for each in people for key in (str(each.pk), each.email_form, each.email)}
    return {
        key: _recipient(known.get(to) or known.get(forms[to]), to, may_see=may_see)
        for key, to in named.items()
    }


def _recipient(person: User | None, to: str, *, may_see: bool) -> Link:
    if person:
        return Link(str(person), page_of(person)) if may_see else Link("a person", "")
    domain = to.rpartition("@")[2] if "@" in to else ""
    return Link(f"somebody at {domain}" if domain else "", "")


class JobAdmin(ConsoleAdmin):
    row_actions = (Retry(), RetryAlike(), Discard())
    change_form_template = "admin/console/job.html"
    change_list_template = "admin/console/jobs.html"
    list_display = ("does", "status_chip", "recipient", "tries", "due", "last")
    list_filter = (StatusFilter,)
    sortable_by = ()
    search_fields = ("task_name",)
    search_help_text = "What a job does, or the name of its task."
    ordering = ("-id",)
    fields = ("id",)

    def row_name(self, row: ProcrastinateJob) -> str:
        # The package's own name for a job contains its arguments.
        return f"{title_of(row.task_name)} {row.pk}"

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        found, has_duplicates = super().get_search_results(request, queryset, search_term)
        titled = named(search_term.strip()) if search_term.strip() else []
        return found | queryset.filter(task_name__in=titled), has_duplicates

    def get_changelist_instance(self, request: HttpRequest) -> Any:
        """Adds the recipient of each job of the page, and the time of its last change, in two queries."""
        found = super().get_changelist_instance(request)
        jobs = found.result_list
        to = recipients(jobs, by=request)
        # The event of a job for later has the time of its first try.
        past = ProcrastinateEvent.objects.filter(job__in=list(jobs), at__lte=timezone.now())
        events = past.order_by().values_list("job")
        last = dict(events.annotate(last=Max("at")))
        for job in jobs:
            job.recipient, job.changed_at = to[job.pk], last.get(job.pk)
        return found

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> Any:
        nights = request.user.has_perm("accounts.view_auditevent")
        at, now = settings.NIGHTLY_AT, timezone.now()
        shown = {
            "failed": self._failed(request),
            "nights": _nights_table() if nights else None,
            "next_night": next_at(at=at, now=now) if at else None,
        }
        return super().changelist_view(request, {**shown, **(extra_context or {})})

    def page_context(self, request: HttpRequest, row: ProcrastinateJob) -> dict[str, Any]:
        events = ProcrastinateEvent.objects.filter(job=row).order_by("-id")[:EVENTS_SHOWN]
        to = recipients([row], by=request)[row.pk]
        event = causes([row]).get(str(row.pk))
        cause = (event.after or {}).get("cause") if event else None
        return {
            "does": title_of(row.task_name),
            "status": STATES.get(row.status, row.status),
            "job_events": events,
            "cause": cause,
            "recipient": to,
        }

    @admin.display(description="job")
    def does(self, job: ProcrastinateJob) -> str:
        return title_of(job.task_name)

    @admin.display(description="status")
    def status_chip(self, job: ProcrastinateJob) -> str:
        return cell(STATES.get(job.status, job.status))

    @admin.display(description="for")
    def recipient(self, job: Any) -> str | None:
        return cell(job.recipient) or None

    @admin.display(description="attempts")
    def tries(self, job: ProcrastinateJob) -> str:
        return right(f"{job.attempts:,}")

    @admin.display(description="next try")
    def due(self, job: ProcrastinateJob) -> str | None:
        if job.status != "todo":
            return None
        waits = job.scheduled_at and job.scheduled_at > timezone.now()
        return instant(job.scheduled_at) if waits else "at once"

    @admin.display(description="last change")
    def last(self, job: Any) -> str | None:
        return instant(job.changed_at) if job.changed_at else None

    def _failed(self, request: HttpRequest) -> Table:
        """Returns the latest failed jobs with their causes."""
        rows = ProcrastinateJob.objects.filter(status="failed").order_by("-id")
        jobs = list(rows[:FAILED_SHOWN])
        why, to = causes(jobs), recipients(jobs, by=request)
        found = []
        for job in jobs:
            event = why.get(str(job.pk))
            cause = event.after["cause"] if event and event.after else "Not noted"
            at = event.at if event else ""
            retry = self.link(request, "retry", job)
            acts = [Link("Retry…", retry)] if retry else []
            found.append(Row([title_of(job.task_name), cause, to[job.pk], at, acts], page_of(job)))
        columns = [Column("Job"), Column("Cause"), Column("For"), Column("Failed", kind="time")]
        more = f"{reverse('admin:procrastinate_procrastinatejob_changelist')}?status=failed"
        link = Link("All failed jobs", more) if found else None
        return Table([*columns, Column("", "acts")], found, "No job has failed.", link)


def _nights_table() -> Table:
    """The nightly jobs, those that failed last first."""
    rows = []
    for run in sorted(last_runs(), key=lambda each: not each.has_failed):
        said = (run.last.after or {}).get("says", "") if run.last else ""
        result = Chip("stopped", "Failed") if run.has_failed else Chip("well", "Done")
        at = (run.last.at if run.last else "", run.done_at or "")
        state = result if run.last else Chip("over", "Not yet")
        rows.append(Row([run.title, state, said, *at, run.job]))
    columns = [Column("Nightly job"), Column("Status", "chip"), Column("Result")]
    times = [Column("Last run", kind="time"), Column("Last success", kind="time")]
    return Table([*columns, *times, Column("Command")], rows)


# The package's own page shows arguments and offers to abort.
admin.site.unregister(ProcrastinateJob)
admin.site.register(ProcrastinateJob, JobAdmin)


finders.add(
    Finder(
        "Jobs", 130, ProcrastinateJob, Term.number, "Job, Number, Status",
        lambda row: (str(row.pk), STATES.get(row.status, row.status)), name=lambda row: title_of(row.task_name),
    )
)  # fmt: skip
