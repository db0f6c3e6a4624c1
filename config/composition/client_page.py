"""A client's page: its licence, people, sessions, usage and latest events."""

from collections.abc import Iterable
from datetime import datetime
from operator import attrgetter
from typing import Any

from django import forms
from django.contrib import admin
from django.http import HttpRequest
from django.urls import reverse
from django.utils import timezone

from accounts.admin.alert_email import SetAlertEmail
from accounts.admin.audit import EVENTS_SHOWN, events_of_client, log_of_client
from accounts.admin.joining import ImportPeople, InvitePeople
from accounts.admin.notes import EditNotes
from accounts.audit import Actor
from accounts.models import Client, Session, User
from accounts.people.clients import delete_client, rename_client
from accounts.people.invitations import NOT_ACCEPTED
from accounts.seats import seats_of
from accounts.sessions.devices import devices_of_client
from config.composition.attention.listing import about_client
from config.composition.client_list import ClientList
from config.composition.client_month import month_of, people_of
from config.composition.devices import devices_of, table_of
from config.console.actions import Action, ReasonForm, Result
from config.console.lists.columns import moment
from licensing.licences import billing_reason, create_client
from licensing.models import Licence, Plan
from llmproxy.catalogue.unpriced import unpriced_warning
from releases.admin.levers import LEVERS
from releases.micro_apps.offers import Explained, explain
from usage.admin.budgets import SetBudget
from usage.admin.refusals import in_two_weeks
from usage.models import RunningCall

SESSIONS_SHOWN = 10
CALLS_SHOWN = 10
PROBLEMS_SHOWN = 10
SEES_SESSIONS = "accounts.view_session"


class NameForm(forms.Form):
    name = forms.CharField(max_length=200)


class ClientForm(NameForm):
    plan = forms.ModelChoiceField(Plan.objects.all())


class AddClient(Action):
    name = "add"
    label = "Add client"
    form_class = ClientForm

    def effects(self, target: None) -> Iterable[str]:
        yield "The client is added with its licence, which is active at once."
        yield "Next comes the client's page, where you invite people or import them from a file."

    def initial(self, target: None, *, by: HttpRequest) -> dict[str, Any]:
        return {"plan": Plan.objects.filter(is_default=True).first()}

    def do(self, target: None, **inputs: Any) -> Result:
        client = create_client(**inputs)
        return Result(f"{client} has been added with its licence. Now add its people.", client)


class SetClientBudget(SetBudget):
    """Sets the budget; its page also lists the models without prices, whose calls no budget counts."""

    def effects(self, target: Client) -> Iterable[str]:
        yield from super().effects(target)
        if warning := unpriced_warning():
            yield warning


class Rename(Action):
    name = "name"
    label = "Rename"
    question = "Rename {name}?"
    form_class = NameForm

    def initial(self, target: Client, *, by: HttpRequest) -> dict[str, Any]:
        return {"name": target.name}

    def do(self, target: Client, *, name: str, by: Actor, now: datetime) -> Result:
        client = rename_client(client_id=target.pk, name=name, by=by, now=now)
        return Result(f"The client is now called {client}.", client)


class DeleteClient(Action):
    name = "remove"
    label = "Delete"
    question = "Delete {name}?"
    form_class = ReasonForm
    destructive = True

    def available(self, target: Client, *, by: HttpRequest) -> bool:
        return not target.users.exists()

    def effects(self, target: Client) -> Iterable[str]:
        yield f"{target} and its licence are removed. This cannot be undone."

    def do(self, target: Client, **inputs: Any) -> Result:
        delete_client(client_id=target.pk, **inputs)
        return Result(f"{target} has been deleted.")


@admin.register(Client)
class ClientAdmin(ClientList):
    row_actions = (
        InvitePeople(),
        ImportPeople(),
        SetClientBudget(),
        SetAlertEmail(),
        EditNotes(),
        *LEVERS,
        Rename(),
        DeleteClient(),
    )
    add_action = AddClient()
    change_form_template = "admin/console/client.html"
    uuid_fields = ("id",)
    fields = ("id", "name", "alert_email", moment("created_at"))

    def get_queryset(self, request: HttpRequest) -> Any:
        return super().get_queryset(request).select_related("budget", "licence__plan")

    def audit_url(self, row: Client) -> str:
        return log_of_client(row.pk)

    def page_context(self, request: HttpRequest, row: Client) -> dict[str, Any]:
        now = timezone.now()
        licence = getattr(row, "licence", None)
        theirs = Session.objects.filter(user__client=row)
        live = theirs.live(at=now).select_related("user")
        sessions = list(live.order_by("-last_used_at")[:SESSIONS_SHOWN])
        budget = getattr(row, "budget", None)
        sees_usage = request.user.has_perm("usage.view_monthlyusage")
        licences: Any = self.admin_site.get_model_admin(Licence)
        found = about_client(row.pk, now=now, operator=request.user)
        problems = sorted(found, key=attrgetter("level"))
        people, _ = people_of(row, by=request, now=now)
        devices = devices_of(theirs, now=now) if request.user.has_perm(SEES_SESSIONS) else []
        return {
            "buttons": [
                *self.buttons(request, row),
                *(licences.buttons(request, licence) if licence else []),
            ],
            "problems": [(each, each.sentence(request)) for each in problems[:PROBLEMS_SHOWN]],
            "problem_number": len(problems),
            "licence": licence,
            "seats": seats_of(row),
            "billing_reason": billing_reason(licence) if licence else "",
            "apps": _apps_of(licence),
            "people_over": _over_limit(licence, now=now),
            "operator_decision_ended": licence and licence.operator_decision_has_expired(at=now),
            "people": people,
            "people_number": User.objects.filter(client=row, erased_at=None).count(),
            "waiting_number": User.objects.filter(NOT_ACCEPTED, client=row).count(),
            "people_url": f"{reverse('admin:accounts_user_changelist')}?client__id__exact={row.pk}",
            "month": month_of(row, budget, now=now) if sees_usage else None,
            "usage_url": f"{reverse('admin:usage_and_money')}?client={row.pk}",
            "budget": budget,
            **in_two_weeks(now=now, lookup="client_id__exact", value=row.pk),
            "devices": table_of(devices, by=request, whose=True),
            "sessions": sessions,
            "sessions_number": live.count() if len(sessions) == SESSIONS_SHOWN else len(sessions),
            "calls": RunningCall.objects.filter(user__client=row).select_related("user")[
                :CALLS_SHOWN
            ],
            "recent_events": events_of_client(row.pk)[:EVENTS_SHOWN],
        }


def _over_limit(licence: Licence | None, *, now: datetime) -> int:
    """The number of people who are signed in on more devices than the licence allows."""
    if licence is None or licence.devices is None:
        return 0
    return devices_of_client(licence.client_id, at=now).people_over(licence.devices)


def _apps_of(licence: Licence | None) -> list[Explained]:
    """The version of each micro app for the client, and the reason."""
    if licence is None or not licence.all_entitlements:
        return []
    return explain(
        slugs=licence.all_entitlements, client_id=licence.client_id, plan_id=licence.plan_id
    )
