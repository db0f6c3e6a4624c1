"""Real workers and a mail server: whatever happens to either, a mail is sent, and refusals are told apart."""

import signal
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import pytest
from django.conf import settings
from django.core.management import CommandError, call_command
from django.db import connection
from procrastinate.contrib.django import app
from procrastinate.contrib.django.models import ProcrastinateJob, ProcrastinateWorker

from accounts.audit import Actor, record
from accounts.models import AuditEvent
from config.management.commands.work import _RunningJobs
from config.platform.jobs.letters import letter
from config.platform.jobs.mail import queue_for_operators, queue_for_person
from config.platform.observability.syslog import Receiver
from tests.composition.conftest import StartWorker
from tests.served.cable import new_cable
from tests.standins.mail_server import ENDLESS, MailServer
from tests.standins.syslog_server import listening
from tests.waiting import eventually

pytestmark = pytest.mark.django_db(transaction=True)
# Nothing beyond packages is needed: these only wait for long.
LONG = pytest.mark.wire
# Seconds until a worker has ended: twice its grace, and a minute for a machine that stands still.
LONGEST = 120


@pytest.fixture
def start(worker: StartWorker, mail_server: MailServer) -> StartWorker:
    """Starts workers that send by the mail server."""
    return lambda *given, **variables: worker(*given, EMAIL_URL=mail_server.url, **variables)


def queue_mail(number: int = 1) -> None:
    for each in range(number):
        queue_for_person(to=f"person-{each}@acme.test", mail=letter("Hello\n\nHello"))


def statuses() -> set[str]:
    return set(ProcrastinateJob.objects.filter(queue_name="mail").values_list("status", flat=True))


def job_of(recipient: str) -> ProcrastinateJob:
    return ProcrastinateJob.objects.get(args__to=[recipient])


def stop_hearts() -> None:
    """As if a minute had gone by since the last sign of life of every worker."""
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE procrastinate_workers SET last_heartbeat = last_heartbeat - interval '1 minute'"
        )


def test_a_mail_whose_worker_was_killed_in_the_middle_is_sent_by_the_next_and_known_again(
    start: StartWorker, mail_server: MailServer
) -> None:
    queue_mail()
    mail_server.open.clear()
    first = start()
    eventually(lambda: mail_server.waiting == 1)
    first.kill()
    first.wait()
    assert statuses() == {"doing"}
    stop_hearts()
    mail_server.open.set()
    start()
    eventually(lambda: statuses() == {"succeeded"})
    once, again = mail_server.mails
    assert once.message["Message-ID"] == again.message["Message-ID"]
    assert once.message["Auto-Submitted"] == "auto-generated"


def test_audit_events_reach_the_syslog_server_while_the_worker_runs_and_after_it_was_killed(
    worker: StartWorker, by: Actor, now: datetime
) -> None:
    record("client:created", by=by, now=now, target="before it started")
    with listening(Receiver("tcp", "127.0.0.1", 0)) as server:
        first = worker(AUDIT_SYSLOG_URL=server.url)
        eventually(lambda: len(server.messages) == 1)
        record("client:created", by=by, now=now, target="while it runs")
        eventually(lambda: len(server.messages) == 2)
        first.kill()
        first.wait()
        record("client:created", by=by, now=now, target="while it is dead")
        worker(AUDIT_SYSLOG_URL=server.url)
        # Killed before it had noted what the server has, the last one is sent again with this one.
        eventually(lambda: b"while it is dead" in server.messages[-1])


def test_the_job_of_a_living_worker_is_not_taken_from_it(
    start: StartWorker, mail_server: MailServer
) -> None:
    queue_mail()
    mail_server.open.clear()
    start()
    eventually(lambda: mail_server.waiting == 1)
    start()
    eventually(lambda: ProcrastinateWorker.objects.count() == 2)
    queue_mail()
    eventually(lambda: mail_server.waiting == 2)
    mail_server.open.set()
    eventually(lambda: statuses() == {"succeeded"})
    assert len(mail_server.mails) == 2


def test_two_workers_share_the_work_and_send_each_mail_once(
    start: StartWorker, mail_server: MailServer
) -> None:
    queue_mail(30)
    mail_server.open.clear()
    for _ in range(2):
        start("--concurrency", "3")
    eventually(lambda: mail_server.waiting == 6)
    mail_server.open.set()
    eventually(lambda: statuses() == {"succeeded"})
    assert len(mail_server.mails) == 30
    assert len({mail.message["Message-ID"] for mail in mail_server.mails}) == 30
    sent = {mail.message["Message-ID"].partition("@")[2] for mail in mail_server.mails}
    assert sent == {f"{urlsplit(settings.BASE_URL).hostname}>"}


def test_a_stopping_worker_finishes_its_job_and_starts_no_other(
    start: StartWorker, mail_server: MailServer
) -> None:
    queue_mail(2)
    mail_server.open.clear()
    process = start("--concurrency", "1")
    eventually(lambda: mail_server.waiting == 1)
    process.send_signal(signal.SIGTERM)
    # The signal's arrival can be observed only by the end, so it may arrive during the wait or after it.
    process.send_signal(signal.SIGTERM)
    mail_server.open.set()
    assert process.wait(LONGEST) == 0
    assert job_of("person-0@acme.test").status == "succeeded"
    assert ProcrastinateWorker.objects.count() == 0


@LONG
def test_a_job_that_does_not_end_in_time_is_left_to_the_next_worker_at_once(
    start: StartWorker, mail_server: MailServer
) -> None:
    mail_server.answers["person-0@acme.test"] = ENDLESS
    queue_mail()
    process = start()
    eventually(lambda: statuses() == {"doing"})
    process.send_signal(signal.SIGTERM)
    assert process.wait(LONGEST) == 0
    assert statuses() == {"doing"}
    assert ProcrastinateWorker.objects.count() == 0
    mail_server.answers.clear()
    start()
    eventually(lambda: statuses() == {"succeeded"})


@LONG
def test_a_job_that_never_ends_keeps_nothing_else_waiting_for_long(
    start: StartWorker, mail_server: MailServer
) -> None:
    mail_server.answers["person-0@acme.test"] = ENDLESS
    queue_mail(2)
    # The next takes it up at once, and only what two have ended for has to wait.
    for _ in range(2):
        process = start("--concurrency", "1", "--longest", "2")
        # By itself, and not as if all were well: whoever keeps it running is to start another.
        assert process.wait(LONGEST) == 1
        assert ProcrastinateWorker.objects.count() == 0
    start("--concurrency", "1")
    eventually(lambda: job_of("person-1@acme.test").status == "succeeded")
    assert [mail.to for mail in mail_server.mails] == [["person-1@acme.test"]]


def test_a_job_that_came_back_while_it_was_done_is_done_twice_and_no_failure() -> None:
    running_jobs = _RunningJobs()
    job: Any = SimpleNamespace(job=SimpleNamespace(task_name="mail.send"))
    assert running_jobs(lambda: running_jobs(lambda: "sent", job, None), job, None) == "sent"


_BREAKS_ONCE = """
CREATE SEQUENCE ends;
CREATE FUNCTION break_once() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF nextval('ends') = 1 THEN
        PERFORM pg_terminate_backend(pg_backend_pid());
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER break_once BEFORE UPDATE ON procrastinate_jobs FOR EACH ROW
    WHEN (OLD.status = 'doing' AND NEW.status = 'succeeded' AND NEW.queue_name = 'mail')
    EXECUTE FUNCTION break_once();
"""


@pytest.fixture
def breaking(queue: None) -> Iterator[None]:
    """The connection breaks on which the first end of a mail is written down."""
    with connection.cursor() as cursor:
        cursor.execute(_BREAKS_ONCE)
    yield
    with connection.cursor() as cursor:
        cursor.execute(
            "DROP TRIGGER break_once ON procrastinate_jobs; DROP FUNCTION break_once; DROP SEQUENCE ends"
        )


def test_the_end_of_a_job_that_could_not_be_written_down_is_written_again(
    breaking: None, start: StartWorker, mail_server: MailServer
) -> None:
    queue_mail()
    process = start()
    eventually(lambda: statuses() == {"succeeded"})
    assert len(mail_server.mails) == 1
    assert process.poll() is None


@dataclass(frozen=True)
class Near:
    """The near end of a cable."""

    url: str


@LONG
def test_a_mail_during_which_the_database_was_away_is_sent_and_its_worker_lives_on(
    start: StartWorker, mail_server: MailServer, database_url: str
) -> None:
    with new_cable(Near(database_url)) as cable:  # type: ignore[arg-type]
        queue_mail()
        mail_server.open.clear()
        process = start(DATABASE_URL=cable.url)
        eventually(lambda: mail_server.waiting == 1)
        cable.pull()
        mail_server.open.set()
        cable.put_back()
        queue_mail()
        # It may have to be noticed first that the part of the worker that did it is gone.
        eventually(lambda: statuses() == {"succeeded"}, seconds=180)
        assert process.poll() is None
        # Scheduled jobs may have failed in between; the next minute makes up for it.
        once = ProcrastinateJob.objects.filter(queueing_lock=None)
        assert not once.filter(status="failed").exists()


@pytest.mark.parametrize("option", ["concurrency", "longest"])
@pytest.mark.parametrize("number", ["0", "-1", "1.5", "many"])
def test_a_worker_that_could_do_nothing_is_not_started(option: str, number: str) -> None:
    with pytest.raises(CommandError, match="must be a number from 1 on"):
        call_command("work", f"--{option}={number}")


def test_a_job_of_the_next_release_is_left_to_its_worker(start: StartWorker) -> None:
    app.configure_task("mail.of_the_next_release", queue="mail", allow_unknown=True).defer()
    start()
    eventually(lambda: ProcrastinateJob.objects.filter(attempts=1).exists())
    job = ProcrastinateJob.objects.get(task_name="mail.of_the_next_release")
    assert job.status == "todo"
    assert job.scheduled_at is not None


class TestRefusals:
    def test_one_for_now_is_tried_again_and_one_for_good_is_not(
        self, start: StartWorker, mail_server: MailServer, now: datetime
    ) -> None:
        queue_mail(3)
        mail_server.answers["person-0@acme.test"] = "451 try later"
        mail_server.answers["person-1@acme.test"] = "550 no such person"
        start()
        eventually(lambda: statuses() == {"todo", "failed", "succeeded"})
        eventually(lambda: job_of("person-0@acme.test").attempts > 0)
        later, never, fine = (job_of(f"person-{each}@acme.test") for each in range(3))
        # It may be tried again already.
        assert later.status in {"todo", "doing"}
        assert (never.status, fine.status) == ("failed", "succeeded")
        assert later.scheduled_at > now + timedelta(seconds=10)
        assert [mail.to for mail in mail_server.mails] == [["person-2@acme.test"]]
        # Only what has failed for good is noted, and not its recipient.
        (noted,) = AuditEvent.objects.filter(action="job:failed")
        assert (noted.target_id, noted.actor) == (str(never.pk), "the worker")
        assert noted.after == {"cause": "Refused: The mail server refuses it permanently (550)."}

    def test_one_operator_who_is_refused_keeps_no_mail_from_the_others(
        self, start: StartWorker, mail_server: MailServer, settings
    ) -> None:
        settings.OPERATOR_EMAILS = ["gone@shell.test", "here@shell.test"]
        mail_server.answers["gone@shell.test"] = "550 no such person"
        queue_for_operators(subject="Look", text="Look at this", path="/admin/")
        start()
        eventually(lambda: statuses() == {"failed", "succeeded"})
        assert [mail.to for mail in mail_server.mails] == [["here@shell.test"]]
