"""Operators hear of each alert's beginning and end once by each way, whatever fails meanwhile.

The rows with a number are faults that users of other alert managers have reported.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from smtplib import SMTPServerDisconnected
from typing import Any

import pytest
from django.contrib.auth.models import Permission
from django.core import mail
from django.core.mail.backends import locmem
from django.db import connection
from django.db.migrations.executor import MigrationExecutor
from procrastinate.contrib.django.models import ProcrastinateJob

from accounts.audit import record
from accounts.models import AuditEvent
from config.composition.attention.by_mail import CLEARED, RAISED, WATCH
from config.composition.attention.by_webhook import post
from config.composition.attention.notifying import notify
from config.models import Notification
from config.platform.env.secret_files import Secret
from config.platform.http.errors import Broken
from licensing.models import HeldSuspension
from tests.console.test_notifying import MISSED, heads, webhook, work  # noqa: F401
from tests.console.test_watch import _queue, beat, night  # noqa: F401
from tests.races import race
from tests.standins.webhook import Webhook

pytestmark = pytest.mark.django_db(transaction=True)
MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
OVER = f"Over: {MISSED}"


class Operators:
    """Mails and posts that operators get while alerts begin and end and ways of notifying fail."""

    def __init__(
        self, server: Webhook, now: datetime, monkeypatch: pytest.MonkeyPatch, settings: Any
    ) -> None:
        self.webhook, self.now, self._patch, self._settings = server, now, monkeypatch, settings
        self.posted: list[str] = []
        self.on()

    def begin(self) -> None:
        night("expire_grace", "done", self.now - 27 * HOUR)

    def end(self) -> None:
        night("expire_grace", "done", self.now)

    def again(self) -> None:
        """A day on, without another night."""
        self.now += 28 * HOUR

    def look(self) -> None:
        beat(self.now)
        notify(now=self.now)

    def look_at_once(self) -> None:
        beat(self.now)
        race(*[lambda: notify(now=self.now)] * 4)

    def work(self) -> None:
        ProcrastinateJob.objects.filter(status="todo").update(scheduled_at=None)
        work()
        self._take()

    def webhook_fails(self) -> None:
        self.webhook.status = 503

    def webhook_is_back(self) -> None:
        self.webhook.status = 200

    def mail_fails(self) -> None:
        def refuse(backend: Any, messages: Any) -> int:
            raise SMTPServerDisconnected

        self._whole = locmem.EmailBackend.send_messages
        self._patch.setattr(locmem.EmailBackend, "send_messages", refuse)

    def mail_is_back(self) -> None:
        self._patch.setattr(locmem.EmailBackend, "send_messages", self._whole)

    def mail_off(self) -> None:
        self._settings.OPERATOR_EMAILS = []

    def mail_on(self) -> None:
        self._settings.OPERATOR_EMAILS = ["ops@shell.test"]

    def webhook_off(self) -> None:
        self._settings.ALERT_WEBHOOK_URL = Secret("ALERT_WEBHOOK_URL", "")

    def webhook_on(self) -> None:
        self._settings.ALERT_WEBHOOK_URL = Secret("ALERT_WEBHOOK_URL", self.webhook.url)

    def off(self) -> None:
        self.mail_off()
        self.webhook_off()

    def on(self) -> None:
        self.mail_on()
        self.webhook_on()

    def _take(self) -> None:
        if self.webhook.status == 200:
            self.posted += heads(self.webhook)
        self.webhook.texts.clear()

    @property
    def mailed(self) -> list[str]:
        return [each.subject for each in mail.outbox]


@pytest.fixture
def operators(
    webhook: Webhook,  # noqa: F811 - the fixture
    now: datetime,
    monkeypatch: pytest.MonkeyPatch,
    settings: Any,
) -> Operators:
    return Operators(webhook, now, monkeypatch, settings)


CASES: Sequence[tuple[str, str, list[str]]] = [
    # One way fails and is tried again; the other is not repeated.
    ("prometheus/alertmanager#1494",
     "begin webhook_fails look work look work end look work webhook_is_back work look work", [MISSED, OVER]),
    ("the same of mail",
     "begin mail_fails look work look work end look work mail_is_back work work look work", [MISSED, OVER]),
    # Alerts that ended unobserved, and alerts that were pending when everything was restarted.
    ("prometheus/alertmanager#2570", "begin look work end look work", [MISSED, OVER]),
    ("grafana/grafana#68162", "begin look work end look look look work", [MISSED, OVER]),
    ("healthchecks/healthchecks#212", "begin look look work end look look work", [MISSED, OVER]),
    # No end without a beginning, and none of what nobody saw.
    ("prometheus/alertmanager#878", "begin end look work look work", []),
    ("prometheus/alertmanager#878, unsent", "begin look end look work", [MISSED, OVER]),
    # Several processes, after a failure too.
    ("prometheus/alertmanager#3865",
     "begin webhook_fails look_at_once work look_at_once webhook_is_back work look_at_once work", [MISSED]),
    # Lasting: nothing is repeated, neither with time nor by restarts.
    ("grafana/grafana#36888", "begin look work look work look work look work", [MISSED]),
    ("louislam/uptime-kuma#4101", "begin look look_at_once look_at_once work", [MISSED]),
    # Back after its end: it begins again.
    ("grafana/grafana#80996", "begin look work end look work again look work", [MISSED, OVER, MISSED]),
    # In order, also where the first waits for its server.
    ("in order", "begin mail_fails webhook_fails look work end look mail_is_back webhook_is_back work work",
     [MISSED, OVER]),
    # Turned on: what stands is notified once, and nothing of what ended before.
    ("begun while off", "off begin look work look work on look work look work", [MISSED]),
    ("begun while off, ended while on", "off begin look work on look work end look work", [MISSED, OVER]),
    ("begun and ended while off", "off begin look work end look work on look work", []),
    ("off and on again", "begin look work off look work on look work look work", [MISSED]),
    ("ended while off", "begin look work off end look work look on look work look work", [MISSED, OVER]),
    ("back while off", "begin look work off end look work again look work on look work", [MISSED]),
    ("turned off while it waits",
     "begin mail_fails webhook_fails look work off mail_is_back webhook_is_back work look work on look work work",
     [MISSED]),
    ("turned off while its end waits",
     "begin look work webhook_fails end look work off webhook_is_back work look on look work work", [MISSED, OVER]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("steps", "wanted"), [each[1:] for each in CASES], ids=[each[0] for each in CASES]
)
def test_each_way_notifies_once_of_a_beginning_and_an_end(
    operators: Operators, steps: str, wanted: list[str]
) -> None:
    for step in steps.split():
        getattr(operators, step)()
    assert (operators.posted, operators.mailed) == (wanted, wanted)


@pytest.mark.parametrize("fails", ["by_mail", "by_webhook"])
def test_a_process_killed_half_way_has_notified_of_nothing(
    operators: Operators, fails: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    operators.begin()
    with monkeypatch.context() as dying:
        dying.setattr(f"config.composition.attention.{fails}.queue", die)
        with pytest.raises(KeyboardInterrupt):
            operators.look()
    assert not ProcrastinateJob.objects.exists()
    operators.look()
    operators.work()
    assert (operators.posted, operators.mailed) == ([MISSED], [MISSED])


STILL = "No worker is running"


@pytest.mark.parametrize("away", ["mail", "webhook"])
def test_a_failing_channel_does_not_block_the_other_without_a_worker(
    operators: Operators, away: str
) -> None:
    getattr(operators, f"{away}_fails")()
    for _ in range(2):
        with pytest.raises((SMTPServerDisconnected, Broken)):
            notify(now=operators.now)
    got = {"mail": operators.mailed, "webhook": heads(operators.webhook)}
    assert got["webhook" if away == "mail" else "mail"] == [STILL]
    operators.webhook.texts *= away == "mail"
    getattr(operators, f"{away}_is_back")()
    notify(now=operators.now)
    assert (heads(operators.webhook), operators.mailed) == ([STILL], [STILL])


def test_an_alert_that_could_not_be_mailed_is_queued_once_a_worker_runs(
    operators: Operators,
) -> None:
    operators.mail_fails()
    with pytest.raises(SMTPServerDisconnected):
        notify(now=operators.now)
    operators.mail_is_back()
    for _ in range(2):
        operators.look()
        operators.work()
    assert operators.mailed == [STILL, f"Over: {STILL}"]
    assert operators.posted == [STILL, f"Over: {STILL}"]


def test_a_beginning_that_its_rule_has_mailed_is_posted_and_its_end_goes_both_ways(
    operators: Operators,
) -> None:
    HeldSuspension.objects.create(
        job="expire_grace", licence_ids=[1, 2], clients=2, noticed_at=operators.now
    )
    held = "2 suspensions wait for your confirmation"
    operators.look()
    operators.work()
    assert (operators.posted, operators.mailed) == ([held], [])
    HeldSuspension.objects.update(ended_at=operators.now)
    operators.look()
    operators.work()
    assert (operators.posted, operators.mailed) == ([held, f"Over: {held}"], [f"Over: {held}"])


class TestReleaseBefore:
    """Its processes mail by audit events alone, and post by the rows of the webhook, which they delete."""

    def raise_it(self, operators: Operators) -> None:
        record(
            RAISED, "night: expire_grace", by=WATCH, now=operators.now,
            target_id="night: expire_grace", after={"says": MISSED},
        )  # fmt: skip
        Notification.objects.create(
            name="night: expire_grace", text=MISSED, level=0, notified_at=operators.now
        )

    def test_its_notifications_are_not_repeated_and_their_end_is_sent_both_ways(
        self, operators: Operators
    ) -> None:
        operators.begin()
        self.raise_it(operators)
        operators.look()
        operators.work()
        assert (operators.posted, operators.mailed) == ([], [])
        operators.end()
        operators.look()
        operators.work()
        assert (operators.posted, operators.mailed) == ([OVER], [OVER])

    def test_a_mail_of_long_ago_does_not_stand_for_a_new_alert(self, operators: Operators) -> None:
        record(
            RAISED, "night: expire_grace", by=WATCH, now=operators.now - timedelta(days=30),
            target_id="night: expire_grace", after={"says": MISSED},
        )  # fmt: skip
        operators.begin()
        operators.look()
        operators.work()
        assert operators.mailed == [MISSED]

    def test_an_end_that_it_has_posted_and_cleared_is_mailed_all_the_same(
        self, operators: Operators
    ) -> None:
        operators.begin()
        operators.look()
        operators.work()
        operators.end()
        row = Notification.objects.get()
        row.ended_at = operators.now
        row.save()
        post(row.pk)
        record(CLEARED, row.name, by=WATCH, now=operators.now, target_id=row.name)
        operators.look()
        operators.work()
        assert (operators.posted, operators.mailed) == ([MISSED, OVER], [MISSED, OVER])

    def test_the_previous_release_finds_the_alerts_that_this_one_raised(
        self, operators: Operators
    ) -> None:
        operators.begin()
        operators.look()
        operators.work()
        event = AuditEvent.objects.get(action=RAISED)
        assert (event.target, event.target_id) == ("night: expire_grace",) * 2
        columns = "SELECT name, text, level, told_at IS NULL, over_at FROM config_tolditem"
        with connection.cursor() as cursor:
            cursor.execute(columns)
            [(name, text, level, is_untold, over_at)] = cursor.fetchall()
        assert (name, text.splitlines()[0], level) == ("night: expire_grace", MISSED, 0)
        assert (is_untold, over_at) == (False, None)

    def test_the_migration_keeps_rows_and_rights_and_goes_back(self, operators: Operators) -> None:
        Notification.objects.create(name="queue", text="Queued jobs are waiting", level=0)
        try:
            MigrationExecutor(connection).migrate([("config", "0001_items_are_told")])
            assert rights() == ["tolditem"]
        finally:
            executor = MigrationExecutor(connection)
            executor.migrate(executor.loader.graph.leaf_nodes())
        assert rights() == ["notification"]
        assert Notification.objects.get().text == "Queued jobs are waiting"


def rights() -> list[str]:
    found = Permission.objects.filter(
        codename__startswith="view_", content_type__app_label="config"
    )
    return [
        each.content_type.model
        for each in found.select_related("content_type")
        if each.codename in {"view_tolditem", "view_notification"}
    ]
