"""The audit log has each alert's beginning and end, whether operators are notified or not."""

import pytest

from accounts.audit import record
from accounts.models import AuditEvent
from config.composition.attention.by_mail import CLEARED, RAISED, WATCH
from config.composition.attention.notifying import notify
from licensing.models import HeldSuspension
from tests.console.test_notification_faults import MISSED, OVER, STILL, Operators, operators  # noqa: F401
from tests.console.test_notifying import heads, webhook  # noqa: F401
from tests.console.test_watch import _queue  # noqa: F401

pytestmark = pytest.mark.django_db(transaction=True)
HELD = "2 suspensions wait for your confirmation"


def events() -> list[tuple[str, str]]:
    found = AuditEvent.objects.filter(action__in=(RAISED, CLEARED)).order_by("id")
    return list(found.values_list("action", "target"))


@pytest.mark.parametrize(
    "steps",
    [
        "begin look work end look work",
        "off begin look work look work end look work",
        "off begin look work on look work look work end look work",
        "begin look work off end look work look work on look work look work",
        "begin mail_fails look off end look mail_is_back on look work",
    ],
)
def test_the_audit_log_has_a_beginning_and_an_end_whether_operators_are_mailed(
    operators: Operators,  # noqa: F811 - the fixture
    steps: str,
) -> None:
    for step in steps.split():
        getattr(operators, step)()
    assert events() == [(RAISED, "night: expire_grace"), (CLEARED, "night: expire_grace")]


@pytest.mark.parametrize(
    "steps",
    [
        "begin look work end look work again look work end look work",
        "off begin look work end look work again look work end look work",
        "begin look work off end look work again look work end look work",
        "begin look work off end look work again look work look work on end look work",
        "begin look work off end look again work look work end look work",
        "begin look work off end look work on again look work end look work",
    ],
)
def test_the_audit_log_has_an_alert_that_has_begun_again(
    operators: Operators,  # noqa: F811 - the fixture
    steps: str,
) -> None:
    for step in steps.split():
        getattr(operators, step)()
    assert [action for action, _ in events()] == [RAISED, CLEARED, RAISED, CLEARED]


def hold(operators: Operators) -> HeldSuspension:  # noqa: F811 - the fixture
    return HeldSuspension.objects.create(
        job="expire_grace", licence_ids=[1, 2], clients=2, noticed_at=operators.now
    )


def test_the_audit_log_has_a_beginning_and_an_end_of_what_its_rule_has_mailed(
    operators: Operators,  # noqa: F811 - the fixture
) -> None:
    row = hold(operators)
    for _ in range(2):
        operators.look()
        operators.work()
    HeldSuspension.objects.update(ended_at=operators.now)
    for _ in range(2):
        operators.look()
        operators.work()
    assert events() == [(RAISED, f"suspensions: {row.pk}"), (CLEARED, f"suspensions: {row.pk}")]
    assert AuditEvent.objects.get(action=RAISED).after == {"says": HELD}


def test_an_alert_that_a_rule_mailed_to_nobody_is_mailed_once_there_are_addresses(
    operators: Operators,  # noqa: F811 - the fixture
) -> None:
    operators.off()
    row = hold(operators)
    operators.look()
    operators.work()
    operators.on()
    for _ in range(2):
        operators.look()
        operators.work()
    assert (operators.posted, operators.mailed) == ([HELD], [HELD])
    assert events() == [(RAISED, f"suspensions: {row.pk}")]


def test_open_alerts_are_notified_once_when_a_channel_is_enabled_without_a_worker(
    operators: Operators,  # noqa: F811 - the fixture
) -> None:
    operators.off()
    for _ in range(2):
        notify(now=operators.now)
    operators.on()
    for _ in range(2):
        notify(now=operators.now)
    assert (heads(operators.webhook), operators.mailed) == ([STILL], [STILL])
    assert events() == [(RAISED, "worker")]


def test_an_end_that_the_release_before_has_recorded_is_not_recorded_twice(
    operators: Operators,  # noqa: F811 - the fixture
) -> None:
    operators.begin()
    operators.look()
    operators.work()
    # It clears what is no alert of its own.
    name = "night: expire_grace"
    record(CLEARED, name, by=WATCH, now=operators.now, target_id=name)
    operators.end()
    operators.look()
    operators.work()
    assert operators.mailed == [MISSED, OVER]
    assert [action for action, _ in events()] == [RAISED, CLEARED]
