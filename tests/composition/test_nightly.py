"""The jobs of a night."""

import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from io import StringIO
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from django.core.management import call_command, get_commands, load_command_class
from django.db import connection

from accounts.audit import Actor
from accounts.jobs import End, Job, run
from accounts.management.job_command import JobCommand
from accounts.models import AuditEvent, User
from accounts.sessions.sign_in import Device, sign_in
from config.composition.operation import nightly
from config.composition.operation.nightly import JOBS, last_runs
from config.platform.db.connections import release_connection
from config.platform.periods import Period
from licensing.licences import create_client, set_customer, set_operator_status
from licensing.models import Plan, Standing
from llmproxy.catalogue.factors import LEAST_CALLS
from llmproxy.models import LanguageModel, PersonalKey, Provider, Route
from telemetry.models import Event
from tests.composition.conftest import ROOT
from tests.conftest import PASSWORD
from tests.standins.stripe_server import KEY, stripe_server
from usage.models import MonthlyUsage, Refusal, UsageRecord

BY = Actor.command("nightly")
Rows = dict[str, list[tuple[object, ...]]]
pytestmark = pytest.mark.django_db(transaction=True)


def ours() -> list[Job]:
    """The jobs of all commands of this project."""
    commands = [
        load_command_class(app, name)
        for name, app in get_commands().items()
        if isinstance(app, str)
        and app.split(".")[0]
        in {"accounts", "licensing", "usage", "llmproxy", "releases", "telemetry"}
    ]
    return [each.job for each in commands if isinstance(each, JobCommand)]


def everything() -> Rows:
    """Every row of the database, with the transaction that wrote it."""
    found = {}
    with connection.cursor() as cursor:
        for table in connection.introspection.table_names(cursor):
            cursor.execute(f'SELECT xmin::text, "{table}"::text FROM "{table}" ORDER BY 2')
            found[table] = cursor.fetchall()
    return found


def events_beside_its_own(before: Rows, after: Rows) -> int:
    """Counts the events that came or went, but for the one that every run leaves."""
    table = "accounts_auditevent"
    return len(set(after[table]) ^ set(before[table])) - 1


@pytest.fixture
def stale(plan: Plan, signing_key: None, settings: Any, by: Actor, now: datetime) -> Iterator[None]:
    """Something to do for every job of the night."""
    long_ago = now - timedelta(days=200)
    late = create_client(name="Late", plan=plan, by=by, now=long_ago)
    user = User.objects.create_user("ada@late.test", PASSWORD, client=late)
    # An event and a session of long ago.
    sign_in(email=user.email, password=PASSWORD, device=Device(), now=long_ago)
    set_operator_status(
        licence_id=late.licence.pk,
        status=Standing.GRACE,
        grace_until=now - timedelta(days=1),
        reason="The invoice is late.",
        by=by,
        now=now - timedelta(days=2),
    )
    Event.objects.create(
        client_id=late.pk,
        user_id=user.pk,
        event_id=uuid4(),
        name="opened",
        occurred_at=long_ago,
        received_at=long_ago,
        properties={},
    )
    PersonalKey.objects.create(
        user=user,
        name="Editor",
        hash=b"late",
        epoch=user.epoch,
        created_at=long_ago,
        expires_at=long_ago + timedelta(days=90),
    )
    Refusal.objects.create(
        user=user, minute=long_ago, last_at=long_ago, code="rate_limited", status=429
    )
    period = Period.of(now)
    MonthlyUsage.objects.create(
        user=user, period=period.month, day=period.day, input_used=plan.monthly_input_tokens
    )
    model = LanguageModel.objects.create(name="grand", provider_name="grand-2026")
    provider, _ = Provider.objects.get_or_create(name=Provider.DEFAULT)
    Route.objects.create(model=model, provider=provider, provider_name="grand-2026")
    UsageRecord.objects.bulk_create(
        UsageRecord(
            user=user,
            client_id=late.pk,
            period=period.month,
            day=period.day,
            model="grand",
            provider="openai",
            streamed=False,
            state="settled",
            reserved_input=135,
            reserved_output=16,
            counted_input=100,
            input_tokens=110,
            source="provider",
            end="done",
            opened_at=now,
            expires_at=now,
            settled_at=now,
        )
        for _ in range(LEAST_CALLS)
    )
    paying = create_client(name="Paying", plan=plan, by=by, now=now)
    set_customer(
        licence_id=paying.licence.pk, customer_id="cus_late", reason="Pays by card.", by=by, now=now
    )
    with stripe_server() as server:
        server.subscriptions = [("cus_late", "past_due")]
        settings.STRIPE_API_KEY = lambda: KEY
        settings.STRIPE_API_BASE = server.url
        yield


def test_every_job_has_a_command_of_its_name_and_every_such_command_is_in_the_night() -> None:
    assert sorted(job.name for job in ours()) == sorted(job.name for job in JOBS)
    assert all(load_command_class(get_commands()[job.name], job.name).job is job for job in JOBS)


def test_a_night_runs_every_job_and_prints_a_line_for_each(now: datetime) -> None:
    out = StringIO()
    call_command("nightly", stdout=out)
    lines = out.getvalue().splitlines()
    assert [line.partition(":")[0] for line in lines] == [job.name for job in JOBS]
    done = AuditEvent.objects.filter(action="nightly:done").values_list("target", flat=True)
    assert sorted(done) == sorted(job.name for job in JOBS)


def test_a_failed_job_does_not_stop_the_others(monkeypatch) -> None:
    def broken(*, by: Actor, now: datetime, dry_run: bool) -> str:
        raise RuntimeError

    monkeypatch.setattr(nightly, "JOBS", (Job("broken", broken), *JOBS))
    out = StringIO()
    with pytest.raises(SystemExit) as ended:
        call_command("nightly", stdout=out)
    assert ended.value.code == 1
    assert out.getvalue().startswith("broken: failed: RuntimeError\n")
    assert AuditEvent.objects.filter(action="nightly:done").count() == len(JOBS)
    assert AuditEvent.objects.filter(action="nightly:failed").count() == 1


def lines_of_a_night() -> tuple[list[str], int]:
    """Returns the output of ``manage.py nightly``, and its exit code."""
    out, code = StringIO(), 0
    try:
        call_command("nightly", stdout=out)
    except SystemExit as ended:
        code = int(str(ended.code))
    return out.getvalue().splitlines(), code


def test_a_database_that_is_away_for_a_moment_costs_no_more_than_the_job_of_that_moment(
    monkeypatch,
) -> None:
    connect, refused = psycopg.connect, [psycopg.OperationalError("connection refused")]

    def at_first_refused(*given: Any, **options: Any) -> Any:
        if refused:
            raise refused.pop()
        return connect(*given, **options)

    monkeypatch.setattr("config.platform.db.advisory_locks.psycopg.connect", at_first_refused)
    lines, code = lines_of_a_night()
    assert (lines[0], code) == (f"{JOBS[0].name}: failed: OperationalError", 1)
    assert not any("failed" in line for line in lines[1:])
    done = AuditEvent.objects.filter(action="nightly:done").values_list("target", flat=True)
    assert sorted(done) == sorted(job.name for job in JOBS[1:])


def test_a_database_that_restarts_while_a_job_waits_for_others_costs_nothing(monkeypatch) -> None:
    def restarts(*, by: Actor, now: datetime, dry_run: bool) -> str:
        release_connection()
        with psycopg.connect(**connection.get_connection_params(), autocommit=True) as other:
            other.execute(
                "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
        return "well"

    monkeypatch.setattr(nightly, "JOBS", (Job("waits", restarts), *JOBS))
    lines, code = lines_of_a_night()
    assert (lines[0], code) == ("waits: well", 0)
    assert len(lines) == len(JOBS) + 1
    assert AuditEvent.objects.filter(action="nightly:done").count() == len(JOBS) + 1


def test_a_night_goes_on_when_nobody_reads_its_lines_any_more() -> None:
    class Closed(StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    call_command("nightly", stdout=Closed())
    assert AuditEvent.objects.filter(action="nightly:done").count() == len(JOBS)


def test_a_night_records_its_jobs_at_its_beginning() -> None:
    lines_of_a_night()
    event = AuditEvent.objects.get(action="nightly:begun")
    assert event.after["jobs"] == [job.name for job in JOBS]
    assert event.at <= AuditEvent.objects.filter(action="nightly:done").earliest("at").at


@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.name)
def test_a_dry_run_changes_no_row_where_a_run_does(job: Job, stale: None, now: datetime) -> None:
    before = everything()
    foretold = run(job, by=BY, now=now, dry_run=True)
    assert everything() == before
    done = run(job, by=BY, now=now)
    assert (foretold.end, done.end) == (End.DONE, End.DONE), (foretold, done)
    after = everything()
    changed = {name for name in before if before[name] != after[name]}
    assert changed - {"accounts_auditevent"} or events_beside_its_own(before, after) != 0


def test_a_dry_night_changes_no_row(stale: None) -> None:
    before = everything()
    call_command("nightly", "--dry-run", stdout=StringIO())
    assert everything() == before


def test_a_night_after_a_night_finds_nothing_to_do(stale: None) -> None:
    call_command("nightly", stdout=StringIO())
    before = {name: rows for name, rows in everything().items() if name != "accounts_auditevent"}
    call_command("nightly", stdout=StringIO())
    after = {name: rows for name, rows in everything().items() if name != "accounts_auditevent"}
    assert after == before


def test_the_last_runs_are_known(now: datetime) -> None:
    assert all(each.last is None and each.overdue(at=now) for each in last_runs())
    call_command("nightly", stdout=StringIO())
    newest = AuditEvent.objects.latest("at").at
    for each in last_runs():
        assert each.last is not None
        assert not each.overdue(at=newest)
        assert each.overdue(at=newest + timedelta(hours=27))


def test_the_schedules_in_the_docs_run_the_night() -> None:
    page = (ROOT / "docs" / "operating.md").read_text()
    night = page.partition("\n## Every night\n")[2].partition("\n## ")[0]
    named = [name for name in re.findall(r"`(\w+)`", night) if name in {job.name for job in JOBS}]
    assert named[: len(JOBS)] == [job.name for job in JOBS]
    for name in ("hosting/nightly.crontab", "systemd/shell-nightly.service"):
        text = (ROOT / "docs" / "examples" / name).read_text()
        assert re.search(r"python manage\.py nightly$", text, re.MULTILINE), name
