"""Kinds of attention about accounts."""

from collections.abc import Iterator
from datetime import datetime, timedelta

from django.conf import settings
from django.db.models import CharField, OuterRef, QuerySet, Subquery, UUIDField
from django.db.models.functions import Cast

from accounts import forwarding
from accounts.models import AuditEvent, ConnectionRevocation, Operator, Role, Session, SigningKey
from config.platform.attention import ONE_PERSON, Alert, Finding, Kind, Level, kinds

SYSLOG_OVERDUE = timedelta(minutes=10)
SHOWN_FOR = timedelta(days=1)
REUSED = "session:token_reused"


def syslog(now: datetime) -> Iterator[Finding]:
    oldest = forwarding.waiting() if settings.AUDIT_SYSLOG_URL else None
    if oldest and oldest.at < now - SYSLOG_OVERDUE:
        yield Finding(since=oldest.at, days=settings.AUDIT_RETENTION_DAYS)


def signing_key(now: datetime) -> Iterator[Finding]:
    if not any(key.verifies(at=now) and key.signs_from <= now for key in SigningKey.objects.all()):
        yield Finding()


def reuses(now: datetime) -> QuerySet[AuditEvent]:
    return AuditEvent.objects.filter(action=REUSED, at__gt=now - SHOWN_FOR)


def reused(events: QuerySet[AuditEvent], now: datetime) -> QuerySet[Session]:
    """The sessions of events of reuse, with when it was; the latest first."""
    of = events.filter(target_id=Cast(OuterRef("pk"), CharField())).order_by("-at")
    ids = events.order_by().values(session=Cast("target_id", UUIDField()))
    rows = Session.objects.filter(pk__in=ids).annotate(since=Subquery(of.values("at")[:1]))
    return rows.select_related("user").order_by("-since")


SESSIONS = "Sessions & keys"
kinds.add(
    Kind(
        "syslog", 60, "Audit", "accounts.view_auditevent", syslog, Level.ACT,
        alert=Alert(
            "Check the server; events wait in the database.", "10 minutes after the oldest event"
        ),
    ),
    Kind(
        "signing_key", 70, SESSIONS, "accounts.view_signingkey", signing_key, Level.ACT,
        affected="everybody",
    ),
    Kind(
        "reuse", 80, SESSIONS, "accounts.view_session", reuses, Level.ACT,
        on="user", acts="revoke", label="End sessions", affected=ONE_PERSON, client="user.client_id", then=reused,
        alert=Alert("Ask the person, then end all sessions.", "at once, for a day", is_mailed_by_rule=True),
    ),
    Kind(
        "operators", 100, "Operators", "accounts.view_operator",
        Operator.objects.filter(client__isnull=False), shown=0,
    ),
    Kind(
        "without_role", 105, "Operators", "accounts.view_operator",
        Operator.objects.filter(is_active=True, is_superuser=False).exclude(groups__name__in=Role.values), shown=0,
    ),
    Kind(
        "connections", 280, "People", "accounts.view_connectionrevocation",
        ConnectionRevocation.objects.filter(gave_up_at__isnull=False),
        Level.ACT, "gave_up_at", shown=0,
    ),
)  # fmt: skip
