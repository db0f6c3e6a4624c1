"""Jobs by the clock: alone, audited, and none takes another with it."""

import threading
from datetime import datetime

import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from accounts.audit import Actor
from accounts.jobs import End, Job, run
from accounts.management.commands.prune_audit_log import Command
from accounts.models import AuditEvent
from config.platform.problems.problem import NotConfigured

BY = Actor.command("nightly")
pytestmark = pytest.mark.django_db(transaction=True)


def fine(*, by: Actor, now: datetime, dry_run: bool) -> str:
    return "3 things would be done" if dry_run else "3 things done"


def broken(*, by: Actor, now: datetime, dry_run: bool) -> str:
    raise ValueError("a person's name")


def events() -> list[tuple[str, str]]:
    return list(
        AuditEvent.objects.filter(action__startswith="nightly:").values_list("action", "target")
    )


def test_a_successful_job_is_audited_with_its_result(now: datetime) -> None:
    assert run(Job("tidy", fine), by=BY, now=now) == (End.DONE, "3 things done")
    event = AuditEvent.objects.get(action="nightly:done")
    assert (event.target, event.actor, event.at) == ("tidy", "manage.py nightly", now)
    assert event.after["says"] == "3 things done"


def test_a_dry_run_leaves_no_event(now: datetime) -> None:
    outcome = run(Job("tidy", fine), by=BY, now=now, dry_run=True)
    assert outcome == (End.DONE, "3 things would be done")
    assert events() == []


def test_a_job_that_fails_is_an_event_without_the_words_of_its_error(now: datetime) -> None:
    assert run(Job("tidy", broken), by=BY, now=now) == (End.FAILED, "failed: ValueError")
    assert events() == [("nightly:failed", "tidy")]
    assert "person" not in str(AuditEvent.objects.values())


def test_a_jobs_own_refusal_is_reported(now: datetime) -> None:
    def refuses(*, by: Actor, now: datetime, dry_run: bool) -> str:
        raise NotConfigured("It needs a key.")

    assert run(Job("tidy", refuses), by=BY, now=now).says == "failed: It needs a key."


def test_a_job_that_loses_its_database_connection_is_still_noted(now: datetime) -> None:
    def cut(*, by: Actor, now: datetime, dry_run: bool) -> str:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_terminate_backend(pg_backend_pid())")
        return "never"

    assert run(Job("tidy", cut), by=BY, now=now).end is End.FAILED
    assert events() == [("nightly:failed", "tidy")]


def test_a_second_concurrent_run_of_a_job_does_not_start(now: datetime) -> None:
    working, enough = threading.Event(), threading.Event()

    def slow(*, by: Actor, now: datetime, dry_run: bool) -> str:
        working.set()
        assert enough.wait(30)
        return "done at last"

    def hold() -> None:
        try:
            run(Job("tidy", slow), by=BY, now=now)
        finally:
            connection.close()

    first = threading.Thread(target=hold)
    first.start()
    assert working.wait(30)
    try:
        assert run(Job("tidy", fine), by=BY, now=now).end is End.BUSY
        assert run(Job("another", fine), by=BY, now=now).end is End.DONE
    finally:
        enough.set()
        first.join(30)
    assert run(Job("tidy", fine), by=BY, now=now).end is End.DONE


def test_a_command_fails_with_its_job(monkeypatch, signing_key) -> None:
    monkeypatch.setattr(Command, "job", Job("prune_audit_log", broken))
    with pytest.raises(CommandError, match="prune_audit_log: failed: ValueError"):
        call_command("prune_audit_log")
