"""A client's page: its licence, its people, where they are signed in, what they use, and what happened."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from django import forms
from django.contrib import admin
from django.db.models import Count, QuerySet, Sum
from django.http import HttpRequest
from django.urls import reverse
from django.utils import timezone

from accounts.acts import Act, Done, WithReason
from accounts.audit import Actor
from accounts.clients import delete_client, rename_client
from accounts.columns import moment
from accounts.console import ConsoleAdmin, events_about
from accounts.models import Client, Session, User
from accounts.templatetags.console import standing
from licensing.admin import StatusFilter
from licensing.licences import create_client
from licensing.models import Licence, Plan
from usage.models import MonthlyUsage, Override
from usage.periods import Period
from usage.summaries import Share

PEOPLE_SHOWN = 25
SESSIONS_SHOWN = 10


class ClientForm(forms.Form):
    name = forms.CharField(max_length=200)
    plan = forms.ModelChoiceField(Plan.objects.all(), empty_label=None)


class AddClient(Act):
    name = "add"
    label = "Add client"
    permission = "add"
    form_class = ClientForm

    def effects(self, target: None) -> Iterable[str]:
        yield "The client and its licence are made together; the licence is active at once."

    def do(self, target: None, given: dict[str, Any], *, by: Actor, now: datetime) -> Done:
        client = create_client(name=given["name"], plan=given["plan"], by=by, now=now)
        return Done(f"{client} has been added with its licence. Its people come next.", client)


class NameForm(forms.Form):
    name = forms.CharField(max_length=200)


class Rename(Act):
    name = "name"
    label = "Rename"
    form_class = NameForm

    def initial(self, target: Client, *, by: HttpRequest) -> dict[str, Any]:
        return {"name": target.name}

    def do(self, target: Client, given: dict[str, Any], *, by: Actor, now: datetime) -> Done:
        client = rename_client(client_id=target.pk, name=given["name"], by=by, now=now)
        return Done(f"The client is called {client} now.", client)


class DeleteClient(Act):
    name = "remove"
    label = "Delete"
    permission = "delete"
    form_class = WithReason
    grave = True

    def offered(self, target: Client, *, by: HttpRequest) -> bool:
        return not target.users.exists()

    def effects(self, target: Client) -> Iterable[str]:
        yield f"{target} and its licence are removed. This cannot be undone."

    def do(self, target: Client, given: dict[str, Any], *, by: Actor, now: datetime) -> Done:
        delete_client(client_id=target.pk, reason=given["reason"], by=by, now=now)
        return Done(f"{target} has been deleted.")


class LicenceStatusFilter(StatusFilter):
    def narrowed(self, rows: QuerySet[Any], value: str) -> QuerySet[Any]:
        return rows.filter(licence__status=value)


@admin.register(Client)
class ClientAdmin(ConsoleAdmin):
    acts = (Rename(), DeleteClient())
    adding = AddClient()
    change_form_template = "admin/console/client.html"
    list_display = ("name", "status", "plan", "people", moment("created_at"))
    list_filter = (LicenceStatusFilter, "licence__plan")
    list_select_related = ("licence__plan",)
    search_fields = ("name",)
    uuid_fields = ("id",)
    fields = ("id", "name", moment("created_at"))

    def get_queryset(self, request: HttpRequest) -> Any:
        return super().get_queryset(request).annotate(people_count=Count("users"))

    @admin.display(description="licence", ordering="licence__status")
    def status(self, client: Any) -> str:
        licence = getattr(client, "licence", None)
        return standing(licence.status) if licence else "none"

    @admin.display(description="plan", ordering="licence__plan")
    def plan(self, client: Any) -> str:
        licence = getattr(client, "licence", None)
        return str(licence.plan) if licence else "none"

    @admin.display(description="people", ordering="people_count")
    def people(self, client: Any) -> int:
        return int(client.people_count)

    def beside(self, request: HttpRequest, row: Client) -> dict[str, Any]:
        now = timezone.now()
        licence = Licence.objects.select_related("plan").filter(client=row).first()
        sessions = Session.objects.filter(user__client=row).live(at=now).select_related("user")
        people = _people(row, licence=licence, now=now)
        users = reverse("admin:accounts_user_changelist")
        return {
            "licence": licence,
            "operator_word_ended": licence and licence.operator_word_has_ended(at=now),
            "people": people,
            "people_number": User.objects.filter(client=row).count(),
            "people_url": f"{users}?client__id__exact={row.pk}",
            "month": _month_of_all(row, now=now),
            "period": Period.of(now),
            "sessions": sessions.order_by("-last_used_at")[:SESSIONS_SHOWN],
            "sessions_number": sessions.count(),
            "recent_events": events_about([row.pk, *(person["user"].pk for person in people)]),
        }


def _people(client: Client, *, licence: Licence | None, now: datetime) -> list[dict[str, Any]]:
    """The first of a client's people by email, with their live sessions and what they have used this month."""
    users = list(User.objects.filter(client=client)[:PEOPLE_SHOWN])
    live = Session.objects.filter(user__in=users).live(at=now).order_by()
    sessions = dict(live.values_list("user").annotate(Count("pk")))
    months = MonthlyUsage.objects.filter(user__in=users, period=Period.of(now).month)
    used = {row.user_id: row for row in months}
    in_force = Override.objects.filter(user__in=users, starts_at__lte=now, ends_at__gt=now)
    overrides = {row.user_id: row for row in in_force.order_by("pk")}
    return [
        {
            "user": user,
            "sessions": sessions.get(user.pk, 0),
            "override": overrides.get(user.pk),
            **_shares(used.get(user.pk), overrides.get(user.pk), licence.plan if licence else None),
        }
        for user in users
    ]


def _shares(
    month: MonthlyUsage | None, override: Override | None, plan: Plan | None
) -> dict[str, Share]:
    """A person's tokens of the month beside the caps that count for them."""
    shares = {}
    for kind in ("input", "output"):
        column = f"monthly_{kind}_tokens"
        own = getattr(override, column) if override else None
        shares[kind] = Share(
            used=getattr(month, f"{kind}_used") if month else 0,
            in_flight=getattr(month, f"{kind}_reserved") if month else 0,
            cap=getattr(plan, column, None) if own is None else own,
        )
    return shares


def _month_of_all(client: Client, *, now: datetime) -> dict[str, int]:
    """Tokens of this month, of everybody who belongs to the client now."""
    rows = MonthlyUsage.objects.filter(user__client=client, period=Period.of(now).month)
    sums = rows.aggregate(
        input=Sum("input_used"),
        output=Sum("output_used"),
        in_flight=Sum("input_reserved") + Sum("output_reserved"),
    )
    return {name: value or 0 for name, value in sums.items()}
