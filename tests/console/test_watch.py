"""Operators hear of what stands still, once, also when it is what sends their mail."""

from datetime import datetime, timedelta
from smtplib import SMTPRecipientsRefused
from typing import Any

import pytest
from django.core import mail
from django.core.mail.backends import locmem
from django.db import connection
from procrastinate.contrib.django.models import ProcrastinateJob

from accounts.audit import Actor, record
from accounts.models import AuditEvent, AuditPosition, Client
from config.composition.attention.notifying import notify
from config.composition.operation import nightly
from config.platform.observability.syslog import Receiver
from telemetry.models import DailyShare

pytestmark = pytest.mark.django_db(transaction=True)
MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)


@pytest.fixture(autouse=True)
def _queue(transactional_db: None) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "TRUNCATE procrastinate_jobs, procrastinate_workers, procrastinate_periodic_defers CASCADE"
        )


def beat(at: datetime) -> None:
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM procrastinate_workers")
        cursor.execute("INSERT INTO procrastinate_workers (last_heartbeat) VALUES (%s)", [at])


def queued(status: str, at: datetime) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO procrastinate_jobs (queue_name, task_name, args, status, scheduled_at)"
            " VALUES ('mail', 'a.task', '{}', %s, %s)",
            [status, at],
        )


def night(job: str, end: str, at: datetime) -> None:
    record(f"nightly:{end}", by=Actor.command("nightly"), now=at, target=job, target_id=job)


def subjects() -> list[str]:
    jobs = ProcrastinateJob.objects.filter(task_name="mail.send").order_by("id")
    return [job.args["subject"] for job in jobs]


def actions() -> list[str]:
    events = AuditEvent.objects.filter(action__startswith="alarm:").order_by("id")
    return [f"{event.action} {event.target}" for event in events]


def test_a_healthy_service_sends_no_notification(now: datetime) -> None:
    beat(now)
    assert notify(now=now) == []
    assert subjects() == actions() == []


def test_a_worker_that_stands_still_is_mailed_without_a_worker(
    now: datetime, settings: Any
) -> None:
    beat(now - 6 * MINUTE)
    assert notify(now=now) == ["worker"]
    assert [each.subject for each in mail.outbox] == ["No worker is running"]
    assert mail.outbox[0].to == settings.OPERATOR_EMAILS
    assert subjects() == []
    assert notify(now=now + MINUTE) == ["worker"]
    assert len(mail.outbox) == 1


def test_a_worker_that_has_never_run_is_noticed_too(now: datetime) -> None:
    assert notify(now=now) == ["worker"]
    assert len(mail.outbox) == 1


def test_a_stopped_worker_has_time_to_be_started_again(now: datetime) -> None:
    tick(now)
    assert notify(now=now + 4 * MINUTE) == []
    assert notify(now=now + 6 * MINUTE) == ["worker"]


def tick(at: datetime) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO procrastinate_periodic_defers (task_name, periodic_id, defer_timestamp)"
            " VALUES ('queue.rescue', '', %s)",
            [int(at.timestamp())],
        )


def test_a_clock_that_is_ahead_proves_no_life_and_is_an_alert(now: datetime) -> None:
    tick(now + HOUR)
    assert notify(now=now) == ["clock", "worker"]
    beat(now)
    assert notify(now=now) == ["clock"]
    ProcrastinateJob.objects.all().delete()
    beat(now + 2 * HOUR)
    assert notify(now=now + 2 * HOUR) == []
    assert subjects() == ["Over: A worker's clock is ahead"]


def test_a_worker_whose_clock_is_a_little_ahead_raises_no_alert(now: datetime) -> None:
    tick(now + MINUTE)
    assert notify(now=now) == []


def test_a_mail_that_is_refused_for_good_is_not_tried_again(
    now: datetime, monkeypatch: Any
) -> None:
    tries = []

    def refuse(self: Any, messages: Any) -> int:
        tries.append(messages)
        raise SMTPRecipientsRefused({"ops@shell.test": (550, b"no such person")})

    night("expire_grace", "done", now - 27 * HOUR)
    monkeypatch.setattr(locmem.EmailBackend, "send_messages", refuse)
    for minutes in range(2):
        notify(now=now + minutes * MINUTE)
    assert len(tries) == 2
    assert actions() == ["alarm:raised worker", "alarm:raised night: expire_grace"]


def test_a_mail_that_cannot_be_handed_over_is_tried_again(now: datetime, monkeypatch: Any) -> None:
    def refuse(self: Any, messages: Any) -> int:
        raise ConnectionRefusedError

    with monkeypatch.context() as broken:
        broken.setattr(locmem.EmailBackend, "send_messages", refuse)
        with pytest.raises(ConnectionRefusedError):
            notify(now=now)
    assert actions() == []
    notify(now=now + MINUTE)
    assert len(mail.outbox) == 1


def test_an_alert_is_cleared_at_its_end_and_raised_again_if_it_returns(now: datetime) -> None:
    notify(now=now)
    beat(now + MINUTE)
    assert notify(now=now + MINUTE) == []
    assert subjects() == ["Over: No worker is running"]
    ProcrastinateJob.objects.all().delete()
    notify(now=now + 20 * MINUTE)
    assert actions() == ["alarm:raised worker", "alarm:cleared worker", "alarm:raised worker"]
    assert len(mail.outbox) == 2


def test_a_trouble_that_lasts_is_mailed_once(now: datetime) -> None:
    for hours in (0, 12, 23, 25, 100 * 24):
        notify(now=now + hours * HOUR)
    # Nights are missed too by then.
    assert [each.subject for each in mail.outbox].count("No worker is running") == 1


def test_a_queue_that_lags_and_jobs_that_failed_for_good(now: datetime) -> None:
    beat(now)
    queued("todo", now - 11 * MINUTE)
    queued("todo", now - 9 * MINUTE)
    queued("failed", now - HOUR)
    assert notify(now=now) == ["failed jobs", "queue"]
    assert subjects() == ["Queued jobs are waiting", "1 background job failed"]


def test_audit_events_that_wait_for_the_syslog_server_are_an_alert_where_there_is_one(
    now: datetime, settings: Any
) -> None:
    beat(now)
    record("client:created", by=Actor(name="x"), now=now - 11 * MINUTE)
    assert notify(now=now) == []
    settings.AUDIT_SYSLOG_URL = Receiver("tcp", "127.0.0.1", 9)
    assert notify(now=now) == ["syslog"]
    assert subjects() == ["Audit events are waiting for the syslog server"]
    AuditPosition.objects.create(event_id=AuditEvent.objects.latest("pk").pk, at=now)
    assert notify(now=now) == []


class TestNights:
    def test_a_fresh_service_has_missed_none(self, now: datetime) -> None:
        beat(now)
        record("client:created", by=Actor(name="x"), now=now - 25 * HOUR)
        assert notify(now=now) == []

    def test_a_job_without_a_run_after_its_first_day_raises_an_alert(self, now: datetime) -> None:
        beat(now)
        record("client:created", by=Actor(name="x"), now=now - 27 * HOUR)
        assert notify(now=now) == sorted(f"night: {job.name}" for job in nightly.JOBS)

    def test_a_night_that_did_not_come_is_mailed_for_each_job(self, now: datetime) -> None:
        beat(now)
        night("prune_audit_log", "done", now - 27 * HOUR)
        night("expire_grace", "done", now - 3 * HOUR)
        assert notify(now=now) == ["night: prune_audit_log"]
        assert subjects() == ["Nightly job missed: prune_audit_log"]

    def test_a_job_that_fails_every_night_is_missed_too(self, now: datetime) -> None:
        beat(now)
        night("sync_subscriptions", "failed", now - HOUR)
        night("expire_grace", "done", now - HOUR)
        assert notify(now=now) == ["night: sync_subscriptions"]

    def begun(self, at: datetime, *, jobs: list[str] | None = None) -> None:
        names = jobs or [job.name for job in nightly.JOBS]
        record(nightly.BEGUN, by=Actor.command("nightly"), now=at, after={"jobs": names})

    def test_a_job_that_no_night_has_come_to_yet_is_named_too(self, now: datetime) -> None:
        """Each night is killed half way, so only its beginning names the other jobs."""
        beat(now)
        first, *rest = [job.name for job in nightly.JOBS]
        for hours in (27, 3):
            self.begun(now - hours * HOUR)
            night(first, "done", now - hours * HOUR)
        assert nightly.missed(now=now - HOUR - HOUR) == []
        assert notify(now=now) == sorted(f"night: {name}" for name in rest)

    def test_a_job_that_has_come_with_a_new_version_has_until_its_night(
        self, now: datetime
    ) -> None:
        beat(now)
        *known, new = [job.name for job in nightly.JOBS]
        for name in known:
            night(name, "done", now - HOUR)
        self.begun(now - 50 * HOUR, jobs=known)
        self.begun(now - HOUR)
        assert notify(now=now) == []
        for name in known:
            night(name, "done", now + 26 * HOUR)
        beat(now + 26 * HOUR)
        assert notify(now=now + 26 * HOUR) == [f"night: {new}"]

    def test_the_alert_is_cleared_by_the_next_successful_run(self, now: datetime) -> None:
        beat(now)
        night("expire_grace", "done", now - 27 * HOUR)
        notify(now=now)
        night("expire_grace", "done", now)
        assert notify(now=now + MINUTE) == []
        assert actions()[-1] == "alarm:cleared night: expire_grace"


def test_a_client_whose_telemetry_is_refused_is_mailed_once_a_day(
    now: datetime, organisation: Client
) -> None:
    beat(now)
    DailyShare.objects.create(day=now.date(), client_id=organisation.pk, holder_id=organisation.pk)
    name = f"telemetry: {organisation.pk} {now.date()}"
    for _ in range(2):
        assert notify(now=now) == [name]
    assert subjects() == [f"Telemetry from {organisation} has reached today's limit"]
    assert notify(now=now + 24 * HOUR) == ["queue", "worker"]
    assert actions()[:2] == [f"alarm:raised {name}", f"alarm:cleared {name}"]
