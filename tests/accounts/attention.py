"""Rows for each kind of attention about accounts."""

from accounts.audit import record
from accounts.models import AuditEvent, AuditPosition, Session, SigningKey, User
from tests.console.bad_days import HOUR, Day
from tests.console.conftest import make_operator_of_a_client

# Kinds of the worst day alone.
QUIET = {"signing_key", "syslog"}


def bad_day(day: Day) -> None:
    session = Session.objects.filter(user=day.world.person).first()
    assert session is not None
    record(
        "session:token_reused", day.world.person.email, by=day.by, now=day.now, target_id=session.pk
    )
    User.objects.create(email="idle@ops.test", is_staff=True)
    make_operator_of_a_client(day.world.people[7])


def worst_day(day: Day) -> None:
    """A syslog server that is away, and no key that signs."""
    day.settings.AUDIT_SYSLOG_URL = "tcp://syslog.example:6514"
    oldest = AuditEvent.objects.order_by("at").values_list("pk", flat=True)[0]
    AuditPosition.objects.update_or_create(defaults={"event_id": oldest - 1, "at": day.now})
    SigningKey.objects.update(signs_from=day.now + 24 * HOUR)
