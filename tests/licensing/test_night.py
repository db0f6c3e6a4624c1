"""The night's run as a process of its own: slow answers, two at once, killed half way."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from io import StringIO
from pathlib import Path

import pytest
from django.core.management import call_command
from django.db import connection, transaction

from accounts.audit import Actor
from accounts.models import AuditEvent
from config.composition.operation import nightly
from licensing.licences import set_customer
from licensing.models import Licence
from tests.licensing.conftest import Paying
from tests.standins.stripe_server import KEY, Stripe
from tests.waiting import eventually

pytestmark = pytest.mark.django_db(transaction=True)
ROOT = Path(__file__).resolve().parent.parent.parent
Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start(stripe: Stripe) -> Iterator[Start]:
    """Starts ``sync_subscriptions``, or another command, on the database of the test."""
    database = (
        os.environ["DATABASE_URL"].rpartition("/")[0] + f"/{connection.settings_dict['NAME']}"
    )
    started: list[subprocess.Popen[str]] = []

    def begin(command: str = "sync_subscriptions") -> subprocess.Popen[str]:
        given = {
            "DATABASE_URL": database,
            "STRIPE_API_KEY": KEY,
            "STRIPE_API_BASE": stripe.url,
        }
        process = subprocess.Popen(
            [sys.executable, "manage.py", command],
            cwd=ROOT,
            env={**os.environ, **given},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        started.append(process)
        return process

    yield begin
    stripe.release.set()
    for process in started:
        process.kill()
        process.wait()
        if process.stdout:
            process.stdout.close()


def others() -> list[tuple[int, bool, bool, bool]]:
    """The database's connections that are not ours: each with whether it is the lock of a job, is doing something or in
    the way of others, and waits for a lock.

    The lock is a transaction in which nothing was read or written: it keeps no row and no old version of one.
    """
    with connection.cursor() as cursor:
        # Within a transaction the first answer would be given again.
        cursor.execute("SELECT pg_stat_clear_snapshot()")
        cursor.execute(
            "WITH locks AS (SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND granted)"
            " SELECT pid, pid IN (SELECT pid FROM locks),"
            " state <> 'idle' AND pid NOT IN (SELECT pid FROM locks)"
            " OR COALESCE(backend_xid, backend_xmin) IS NOT NULL,"
            " wait_event_type IS NOT DISTINCT FROM 'Lock'"
            " FROM pg_stat_activity WHERE datname = current_database()"
            " AND backend_type = 'client backend' AND pid <> pg_backend_pid()"
        )
        return list(cursor.fetchall())


def sync() -> str:
    out = StringIO()
    call_command("sync_subscriptions", stdout=out)
    return out.getvalue()


def test_only_the_lock_is_held_while_stripe_is_slow_and_nobody_else_begins(
    stripe: Stripe, paying: Paying, start: Start
) -> None:
    paying(1)
    stripe.subscriptions, stripe.script = [("cus_0", "past_due")], ["wait"]
    before = {pid for pid, *_ in others()}
    first = start()
    assert stripe.waiting.wait(60)

    def held() -> list[list[bool]]:
        return [rest for pid, *rest in others() if pid not in before]

    assert [True, False, False] in held()
    eventually(lambda: not any(busy or waits for _, busy, waits in held()))
    assert sync() == "sync_subscriptions: not started, because it is already running\n"
    stripe.release.set()
    said, _ = first.communicate(timeout=60)
    assert (first.returncode, said) == (0, "sync_subscriptions: changed: 1 grace\n")
    assert sync() == "sync_subscriptions: nothing changed\n"


def test_killed_half_way_the_next_run_does_the_rest_and_nothing_twice(
    stripe: Stripe, paying: Paying, start: Start
) -> None:
    licences = paying(100)
    stripe.subscriptions = [(f"cus_{number}", "past_due") for number in range(100)]
    with transaction.atomic():
        # It comes to a stop here, because it changes one after the other, in the order of names.
        Licence.objects.select_for_update().get(pk=licences[50].pk)
        first = start()
        eventually(lambda: any(waits for *_, waits in others()))
        first.kill()
        first.wait()
        assert Licence.objects.filter(status="grace").count() == 50
    eventually(lambda: not any(is_lock or busy for _, is_lock, busy, _ in others()))
    assert Licence.objects.filter(status="grace").count() == 50
    until = licences[0]
    until.refresh_from_db()
    assert sync() == "sync_subscriptions: changed: 50 grace\n"
    told = AuditEvent.objects.filter(action="licence:billing_set").values_list("target", flat=True)
    assert sorted(told) == sorted(licence.client.name for licence in licences)
    assert Licence.objects.get(pk=until.pk).grace_until == until.grace_until


def test_a_night_that_is_killed_is_missed_for_each_of_its_jobs_and_the_next_is_whole(
    stripe: Stripe, paying: Paying, start: Start, now: datetime
) -> None:
    paying(1)
    stripe.subscriptions, stripe.script = [("cus_0", "past_due")], ["wait"]
    before = {pid for pid, *_ in others()}
    first = start("nightly")
    assert stripe.waiting.wait(60)
    first.kill()
    first.wait()
    eventually(lambda: {pid for pid, *_ in others()} <= before)
    events = AuditEvent.objects.filter(action__startswith="nightly:").order_by("id")
    assert [event.action for event in events] == ["nightly:begun"]
    names = [job.name for job in nightly.JOBS]
    missed = nightly.missed(now=now + timedelta(hours=27))
    assert [run.job for run in missed] == names

    out = StringIO()
    call_command("nightly", stdout=out)
    assert out.getvalue().startswith("sync_subscriptions: changed: 1 grace\n")
    assert [event.target for event in events.filter(action="nightly:done")] == names
    assert nightly.missed(now=now + timedelta(hours=25)) == []


def test_a_customer_that_an_operator_changes_while_stripe_is_asked_is_left_for_the_next_night(
    stripe: Stripe, paying: Paying, start: Start, by: Actor, now: datetime
) -> None:
    (licence,) = paying(1)
    # The list is answered, the question about the one who would be suspended is not, yet.
    stripe.subscriptions, stripe.script = [("cus_0", "canceled")], ["well", "wait"]
    run = start()
    assert stripe.waiting.wait(60)
    eventually(lambda: not any(busy for _, _, busy, _ in others()))
    set_customer(licence_id=licence.pk, customer_id="cus_new", reason="They moved.", by=by, now=now)
    stripe.release.set()
    said, _ = run.communicate(timeout=60)
    assert (run.returncode, said) == (0, "sync_subscriptions: nothing changed\n")
    licence.refresh_from_db()
    assert (licence.status, licence.stripe_customer_id) == ("active", "cus_new")
