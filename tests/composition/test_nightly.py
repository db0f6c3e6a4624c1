"""The jobs of a night."""

from datetime import datetime, timedelta
from io import StringIO

import pytest
from django.core.management import call_command, get_commands, load_command_class
from django.db import connection

from accounts.audit import Actor
from accounts.jobs import Job
from accounts.management.job_command import JobCommand
from accounts.models import AuditEvent
from config import nightly
from config.nightly import JOBS, last_runs
from tests.console.conftest import World

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


def everything() -> dict[str, list[tuple[object, ...]]]:
    """Every row of the database, with the transaction that wrote it."""
    found = {}
    with connection.cursor() as cursor:
        for table in connection.introspection.table_names(cursor):
            cursor.execute(f'SELECT xmin::text, "{table}"::text FROM "{table}" ORDER BY 2')
            found[table] = cursor.fetchall()
    return found


def test_every_job_has_a_command_of_its_name_and_every_such_command_is_in_the_night() -> None:
    assert sorted(job.name for job in ours()) == sorted(job.name for job in JOBS)
    assert all(load_command_class(get_commands()[job.name], job.name).job is job for job in JOBS)


def test_a_night_runs_every_job_and_says_a_line_of_each(now: datetime) -> None:
    out = StringIO()
    call_command("nightly", stdout=out)
    lines = out.getvalue().splitlines()
    assert [line.partition(":")[0] for line in lines] == [job.name for job in JOBS]
    done = AuditEvent.objects.filter(action="nightly:done").values_list("target", flat=True)
    assert sorted(done) == sorted(job.name for job in JOBS)


def test_one_that_fails_stops_none_of_the_others(monkeypatch) -> None:
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


def test_a_dry_night_changes_no_row(world: World) -> None:
    before = everything()
    call_command("nightly", "--dry-run", stdout=StringIO())
    assert everything() == before


def test_a_night_after_a_night_finds_nothing_to_do(world: World) -> None:
    call_command("nightly", stdout=StringIO())
    before = {name: rows for name, rows in everything().items() if name != "accounts_auditevent"}
    call_command("nightly", stdout=StringIO())
    after = {name: rows for name, rows in everything().items() if name != "accounts_auditevent"}
    assert after == before


def test_what_is_known_of_the_last_runs(now: datetime) -> None:
    assert all(each.last is None and each.overdue(at=now) for each in last_runs())
    call_command("nightly", stdout=StringIO())
    newest = AuditEvent.objects.latest("at").at
    for each in last_runs():
        assert each.last is not None
        assert not each.overdue(at=newest)
        assert each.overdue(at=newest + timedelta(hours=27))
