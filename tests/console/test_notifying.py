"""Alerts are posted to the operators' channel when they begin and when they end."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any, NoReturn, cast

import pytest
from django.conf import settings as configured
from django.db import connection, transaction
from django.urls import reverse
from procrastinate.contrib.django import app
from procrastinate.contrib.django.django_connector import DjangoConnector
from procrastinate.contrib.django.models import ProcrastinateJob
from procrastinate.periodic import PeriodicRegistry

from accounts.audit import Actor, record
from accounts.models import Client, Session
from accounts.sessions import reuse
from config.composition.attention.alerts_page import rows
from config.composition.attention.by_webhook import post
from config.composition.attention.notifying import notify
from config.models import Notification
from config.platform.attention import in_order
from config.platform.env.secret_files import Secret
from config.platform.http.errors import Broken, ExchangeError
from config.platform.periods import Period
from licensing.models import HeldSuspension
from tests.conftest import Browser
from tests.console.conftest import World
from tests.console.test_watch import beat, night, queued
from tests.races import race
from tests.standins.webhook import Webhook
from usage.models import Budget
from usage.spending.budgets import set_budget

pytestmark = pytest.mark.django_db(transaction=True)
MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
MISSED = "Nightly job missed: expire_grace"


@pytest.fixture(autouse=True)
def _queue(transactional_db: None) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "TRUNCATE procrastinate_jobs, procrastinate_workers, procrastinate_periodic_defers CASCADE"
        )


@pytest.fixture
def webhook(settings: Any) -> Iterator[Webhook]:
    server = Webhook()
    settings.ALERT_WEBHOOK_URL = Secret("ALERT_WEBHOOK_URL", server.url)
    yield server
    server.close()


@pytest.fixture
def _missed(now: datetime) -> None:
    beat(now)
    night("expire_grace", "done", now - 27 * HOUR)


def jobs() -> list[ProcrastinateJob]:
    return list(ProcrastinateJob.objects.filter(task_name="attention.post").order_by("id"))


def work() -> None:
    """Runs what is queued, by the queue's own worker. It has no clock, which queues jobs whenever a minute begins."""
    own = app.with_connector(cast("DjangoConnector", app.connector).get_worker_connector())
    own.periodic_registry = PeriodicRegistry()
    own.run_worker(wait=False, queues=["mail"], install_signal_handlers=False, listen_notify=False)


def heads(webhook: Webhook) -> list[str]:
    return [text.splitlines()[0] for text in webhook.texts]


@pytest.mark.usefixtures("_missed")
def test_an_alert_is_notified_once_when_it_begins_and_once_when_it_ends(
    webhook: Webhook, now: datetime
) -> None:
    for minutes in range(3):
        notify(now=now + minutes * MINUTE)
        work()
    assert heads(webhook) == [MISSED]
    night("expire_grace", "done", now)
    for minutes in range(3):
        notify(now=now + minutes * MINUTE)
        work()
    assert heads(webhook) == [MISSED, f"Over: {MISSED}"]
    assert not Notification.objects.exists()


@pytest.mark.usefixtures("_missed")
def test_a_message_links_to_the_console_and_to_what_to_do(
    webhook: Webhook, now: datetime, console: Browser
) -> None:
    notify(now=now)
    work()
    _, page, meaning = webhook.texts[0].splitlines()
    assert page == "https://shell.test/admin/accounts/auditevent/"
    assert meaning == "What to do: https://shell.test/admin/alerts/#night"
    shown = console.get(reverse("admin:alerts")).content.decode()
    assert 'id="night"' in shown
    assert "run the command of that name" in shown


def test_every_alert_says_what_to_do() -> None:
    assert [kind for kind, _, step in rows() if step] == [
        kind.name for kind in in_order() if kind.alert
    ]


@pytest.mark.usefixtures("_missed")
def test_a_mail_has_the_same_links(now: datetime) -> None:
    notify(now=now)
    [job] = ProcrastinateJob.objects.filter(task_name="mail.send")
    assert "https://shell.test/admin/accounts/auditevent/" in job.args["text"]
    assert "https://shell.test/admin/alerts/#night" in job.args["html"]


@pytest.mark.usefixtures("_missed")
def test_workers_that_look_at_once_notify_once(webhook: Webhook, now: datetime) -> None:
    race(*[lambda: notify(now=now)] * 4)
    assert len(jobs()) == 1
    race(work, work)
    assert heads(webhook) == [MISSED]


@pytest.mark.usefixtures("_missed")
def test_a_webhook_that_is_away_gets_all_of_it_later(webhook: Webhook, now: datetime) -> None:
    notify(now=now)
    [job] = jobs()
    for webhook.status in (503, 404, 302):
        with pytest.raises(Broken) as refusal:
            post(**job.args)
        assert webhook.secret not in str(refusal.value)
    work()
    [job] = jobs()
    # Tried again after a while, as mail is.
    assert (job.status, job.attempts) == ("todo", 1)
    assert job.scheduled_at is not None
    webhook.texts.clear()
    night("expire_grace", "done", now)
    notify(now=now + MINUTE)
    webhook.status = 200
    post(**job.args)
    assert heads(webhook) == [MISSED, f"Over: {MISSED}"]
    ProcrastinateJob.objects.update(scheduled_at=None)
    work()
    assert len(webhook.texts) == 2


@pytest.mark.usefixtures("_missed")
def test_a_worker_that_dies_between_post_and_mark_posts_again(
    webhook: Webhook, now: datetime
) -> None:
    notify(now=now)
    [job] = jobs()

    def die() -> NoReturn:
        with transaction.atomic():
            post(**job.args)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        die()
    work()
    work()
    assert heads(webhook) == [MISSED] * 2


@pytest.mark.usefixtures("_missed")
def test_an_answer_that_is_lost_is_no_success(webhook: Webhook, now: datetime) -> None:
    notify(now=now)
    [job] = jobs()
    webhook.status = 0
    with pytest.raises(ExchangeError) as failure:
        post(**job.args)
    assert webhook.secret not in str(failure.value)
    assert Notification.objects.get().notified_at is None


@pytest.mark.usefixtures("_missed")
def test_an_alert_back_before_its_end_is_posted_has_not_ended(
    webhook: Webhook, now: datetime
) -> None:
    notify(now=now)
    work()
    beat(now - HOUR + MINUTE)
    night("expire_grace", "done", now)
    notify(now=now)
    Notification.objects.filter(name__startswith="night").update(ended_at=now)
    night("expire_grace", "done", now + MINUTE)
    notify(now=now + 28 * HOUR)
    assert Notification.objects.get(name="night: expire_grace").ended_at is None


def test_nothing_is_posted_without_an_address(now: datetime) -> None:
    assert configured.ALERT_WEBHOOK_URL() == ""
    beat(now)
    queued("failed", now - HOUR)
    notify(now=now)
    assert not Notification.objects.exists()


def test_the_web_posts_that_no_worker_runs(webhook: Webhook, now: datetime) -> None:
    beat(now - 6 * MINUTE)
    for minutes in range(2):
        notify(now=now + minutes * MINUTE)
    assert heads(webhook) == ["No worker is running"]
    beat(now + 2 * MINUTE)
    notify(now=now + 2 * MINUTE)
    work()
    assert heads(webhook)[1:] == ["Over: No worker is running"]


def test_no_person_is_named_and_a_client_is_no_markup(
    webhook: Webhook, world: World, by: Actor, now: datetime
) -> None:
    beat(now)
    Client.objects.filter(pk=world.client.pk).update(name="A <!channel> & Co")
    set_budget(client_id=world.client.pk, monthly=100, reason="A limit.", by=by, now=now)
    month = Period.of(now).month
    Budget.objects.update(period=month, spent=81, warned_at=now)
    HeldSuspension.objects.create(job="expire_grace", licence_ids=[1, 2], clients=2, noticed_at=now)
    session = Session.objects.filter(user=world.person).first()
    assert session
    record(reuse.ACTION, session, by=by, now=now - MINUTE)
    notify(now=now)
    work()
    client = "A &lt;!channel&gt; &amp; Co"
    assert sorted(heads(webhook)) == [
        "1 background job failed",
        "2 suspensions wait for your confirmation",
        f"{client} has spent 81 % of its budget",
        "A replaced token of a session was presented again",
    ]
    assert not any(world.person.email in text for text in webhook.texts)
    # It becomes graver.
    Budget.objects.update(spent=100, exceeded_at=now)
    for _ in range(2):
        notify(now=now + MINUTE)
        work()
    assert heads(webhook)[4:] == [f"{client} has spent its budget: its model calls are refused"]


@pytest.mark.parametrize("value", ["http://hooks.example.com/x", "hooks.example.com", "ftp://x/y"])
def test_an_address_that_others_read_is_refused(value: str) -> None:
    secret: Any = configured.ALERT_WEBHOOK_URL
    with pytest.raises(Exception, match="Must be"):
        secret._check(value)
