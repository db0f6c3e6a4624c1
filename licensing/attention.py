"""Kinds of attention about licensing."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db.models import CharField, Count, F, OuterRef, Q, QuerySet, Subquery, UUIDField
from django.db.models.functions import Cast

from accounts.models import AuditEvent, Client, User
from accounts.seats import REFUSAL_SHOWN, REFUSED
from accounts.sessions import devices
from config.platform.attention import ONE_PERSON, Alert, Finding, Kind, Level, kinds, number_of
from licensing.models import HeldSuspension, Licence, Standing

GRACE_AHEAD = timedelta(days=14)
DECISION_AHEAD = timedelta(days=7)


def ending(now: datetime) -> QuerySet[Licence]:
    """Graces and the decisions of operators that end soon."""
    grace = Q(status=Standing.GRACE, grace_until__lte=now + GRACE_AHEAD)
    decision = Q(operator_until__gt=now, operator_until__lte=now + DECISION_AHEAD)
    rows = Licence.objects.filter(grace | decision).select_related("client")
    rows = rows.annotate(affected=User.objects.number_of("client_id"))
    return rows.order_by("grace_until", "operator_until")


def seat_refusals(now: datetime) -> QuerySet[AuditEvent]:
    return AuditEvent.objects.filter(action=REFUSED, at__gt=now - REFUSAL_SHOWN)


def without_seats(events: QuerySet[AuditEvent], now: datetime) -> Iterator[Finding]:
    """Clients that were refused a seat and have none free yet."""
    since = {UUID(client): at for client, at in events.values_list("target_id", "at")}
    enabled = Count("client__users", filter=Q(client__users__is_active=True))
    refused: QuerySet[Any] = Licence.objects.filter(client__in=since).select_related("client")
    for each in refused.annotate(used=enabled).filter(seats__lte=F("used")):
        yield Finding(
            pk=each.client_id,
            licence=each,
            client=each.client,
            used=each.used,
            since=since[each.client_id],
        )


def without_device(now: datetime) -> QuerySet[Any]:
    """People who were refused a sign-in on one more device within a day, and have not signed in since."""
    refused = AuditEvent.objects.filter(action=devices.ACTION, at__gt=now - REFUSAL_SHOWN)
    ids = refused.order_by().values(person=Cast("target_id", UUIDField()))
    of_person = refused.filter(target_id=Cast(OuterRef("pk"), CharField())).order_by("-at")
    people = User.objects.filter(pk__in=ids, is_active=True, client__licence__devices__isnull=False)
    found = people.annotate(since=Subquery(of_person.values("at")[:1]))
    found = found.filter(Q(last_login=None) | Q(last_login__lt=F("since"))).order_by("-since")
    return found.select_related("client__licence")


def held(rows: QuerySet[Any], now: datetime) -> Iterator[Any]:
    for each in rows:
        each.affected = number_of(len(each.licence_ids), "client")
        yield each


kinds.add(
    Kind(
        "clients", 90, "Clients", "accounts.view_client",
        Client.objects.filter(licence=None), Level.ACT, shown=0,
    ),
    Kind(
        "suspensions", 110, "Clients", "licensing.view_heldsuspension",
        HeldSuspension.objects.filter(ended_at=None, confirmed_at=None), Level.ACT, "noticed_at",
        acts="confirm", label="Confirm", then=held,
        alert=Alert("Check it against Stripe, then confirm.", "at once", is_mailed_by_rule=True),
    ),
    Kind(
        "seats", 115, "Clients", "licensing.view_licence", seat_refusals, on="licence",
        acts="terms", label="Change terms", client="client.pk", then=without_seats,
        alert=Alert("Raise the seats, or disable somebody.", "at once, for a day"),
    ),
    Kind(
        "devices", 117, "People", "accounts.view_user", without_device, on="client.licence",
        acts="terms", label="Change terms", affected=ONE_PERSON, client="client_id",
    ),
    Kind(
        "licence", 120, "Clients", "licensing.view_licence", ending,
        since="changed_at", acts="status", label="Change status", client="client_id",
    ),
)  # fmt: skip
