"""The pages of micro apps, their versions and pins, and the actions that change the offer to shells."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from django import forms
from django.contrib import admin
from django.http import HttpRequest

from accounts.admin.fields import ClientField
from accounts.models import Client
from config.console.actions import Action, Preview, ReasonForm, Result
from config.console.base import ConsoleAdmin
from config.console.lists.columns import moment
from licensing.models import Plan
from releases.micro_apps.channels import move_channel, pin, unpin, withdraw
from releases.micro_apps.offers import reach
from releases.models import AppChannel, AppPin, AppVersion, MicroApp

STABLE, BETA = AppChannel.Name.STABLE, AppChannel.Name.BETA


class AppAction(Action):
    """An action that changes the offers of an app; its page shows both states and the shells affected."""

    consequences = "admin/console/app_act.html"

    def shown(self, target: MicroApp, form: Any) -> dict[str, Any]:
        return {
            "act": self.name,
            "app": target,
            "offers": AppChannel.objects.filter(app=target).select_related("version"),
            "reach": reach(slug=target.slug),
        }


class VersionAction(AppAction):
    """An action whose form offers the versions of its app, older ones included: it can roll back."""

    def available(self, target: MicroApp, *, by: HttpRequest) -> bool:
        return AppVersion.objects.offerable().filter(app=target).exists()

    def form(self, target: MicroApp, data: Mapping[str, Any] | None, *, by: HttpRequest) -> Any:
        form = super().form(target, data, by=by)
        form.fields["version"].queryset = AppVersion.objects.offerable().filter(app=target)
        return form


class VersionForm(ReasonForm):
    version = forms.ModelChoiceField(AppVersion.objects.none(), empty_label="Choose a version")


class MoveForm(VersionForm):
    channel = forms.ChoiceField(choices=[("", "Choose a channel"), *AppChannel.Name.choices])
    # The channel and the version whose effects were shown.
    seen = forms.CharField(required=False, widget=forms.HiddenInput)

    field_order = ("channel", "version")


class MoveChannel(VersionAction):
    name = "move"
    label = "Move a channel"
    question = "Move a channel of {name}?"
    button = "Show the effects"
    form_class = MoveForm

    def shown(self, target: MicroApp, form: Any) -> dict[str, Any]:
        channel, _, number = str(form["seen"].value() or "").partition(" ")
        versions = form.fields["version"].queryset
        version = versions.filter(pk=int(number)).first() if number.isdecimal() else None
        button = f"Move {channel} to {version.version}" if version else ""
        known = super().shown(target, form)
        return known | {"channel": channel, "version": version, "button": button}

    def do(
        self, target: MicroApp, *, channel: Any, version: Any, seen: str, **inputs: Any
    ) -> Result | Preview:
        effects = f"{channel} {version.pk}"
        if seen != effects:
            entered = inputs | {"channel": channel, "version": version.pk, "seen": effects}
            form: Any = MoveForm(initial=entered)
            form.fields["version"].queryset = AppVersion.objects.offerable().filter(app=target)
            return Preview(form=form)
        moved = move_channel(name=channel, version_id=version.pk, **inputs)
        return Result(f"{moved} offers {moved.version.version}.", target)


class Promote(AppAction):
    """Offers the beta version on stable."""

    name = "promote"
    label = "Promote beta to stable"
    question = "Promote the beta of {name} to stable?"

    def available(self, target: MicroApp, *, by: HttpRequest) -> bool:
        now = _offers(target)
        return BETA in now and now[BETA] != now.get(STABLE)

    def shown(self, target: MicroApp, form: Any) -> dict[str, Any]:
        return super().shown(target, form) | {"channel": STABLE, "version": _offers(target)[BETA]}

    def do(self, target: MicroApp, *args: Any, **inputs: Any) -> Result:
        moved = move_channel(name=STABLE, version_id=_offers(target)[BETA].pk, **inputs)
        return Result(f"{moved} offers {moved.version.version}.", target)


def _offers(app: MicroApp) -> dict[str, AppVersion]:
    """The version that each channel of an app offers."""
    channels = AppChannel.objects.filter(app=app).select_related("version")
    return {each.name: each.version for each in channels}


class ClientPinForm(VersionForm):
    client = ClientField(help_text="By name or id.")


class PinClient(VersionAction):
    name = "pin_client"
    label = "Pin a client"
    question = "Pin a client to a version of {name}?"
    form_class = ClientPinForm

    def do(self, target: MicroApp, *, version: Any, client: Client, **inputs: Any) -> Result:
        pin(version_id=version.pk, client_id=client.pk, **inputs)
        return Result(f"{client} is pinned to {version}.", target)


class PlanPinForm(VersionForm):
    plan = forms.ModelChoiceField(Plan.objects.all(), empty_label="Choose a plan")


class PinPlan(VersionAction):
    name = "pin_plan"
    label = "Pin a plan"
    question = "Pin a plan to a version of {name}?"
    form_class = PlanPinForm

    def do(self, target: MicroApp, *, version: Any, plan: Plan, **inputs: Any) -> Result:
        pin(version_id=version.pk, plan_id=plan.pk, **inputs)
        return Result(f"The plan {plan} is pinned to {version}.", target)


def offered_on(name: str) -> Callable[[MicroApp], str]:
    """A list column for the version that a channel offers."""

    @admin.display(description=name)
    def column(app: MicroApp) -> str:
        offers = (each.version.version for each in app.channels.all() if each.name == name)
        return next(offers, "–")

    return column


@admin.register(MicroApp)
class MicroAppAdmin(ConsoleAdmin):
    row_actions = (Promote(), MoveChannel(), PinClient(), PinPlan())
    change_form_template = "admin/console/app.html"
    list_display = ("slug", offered_on("stable"), offered_on("beta"), offered_on("latest"))
    search_fields = ("slug",)
    fields = ("slug",)

    def get_queryset(self, request: HttpRequest) -> Any:
        return super().get_queryset(request).prefetch_related("channels__version")

    def page_context(self, request: HttpRequest, row: MicroApp) -> dict[str, Any]:
        return {
            "channels": row.channels.all(),
            "reach": reach(slug=row.slug),
            "versions": row.versions.defer("signature"),
            "pins": row.pins.select_related("version", "client", "plan"),
        }


class Withdraw(Action):
    name = "withdraw"
    label = "Withdraw"
    question = "Withdraw {name}?"
    destructive = True

    def available(self, target: AppVersion, *, by: HttpRequest) -> bool:
        return target.withdrawn_at is None

    def effects(self, target: AppVersion) -> Iterable[str]:
        used = [str(each) for each in (*target.channels.all(), *target.pins.all())]
        if used:
            yield f"Still offered by: {', '.join(used)}. Move these first; until then this is refused."
        yield "No channel or pin can offer it after that. Shells that have it keep it until they get a newer one."
        yield "This cannot be undone; publish the next version instead."

    def do(self, target: AppVersion, **inputs: Any) -> Result:
        version = withdraw(version_id=target.pk, **inputs)
        return Result(f"{version} is withdrawn.", version.app)


@admin.register(AppVersion)
class AppVersionAdmin(ConsoleAdmin):
    row_actions = (Withdraw(),)
    change_form_template = "admin/console/version.html"
    audit_target = "app_id"
    list_display = (
        "app",
        "version",
        moment("published_at"),
        "published_by",
        moment("withdrawn_at"),
    )
    list_filter = ("app",)
    list_select_related = ("app",)
    search_fields = ("app__slug", "version", "=sha256")
    fields = (
        *list_display,
        "withdrawn_reason",
        moment("stored_at"),
        "sha256",
        "size",
        "signed_with",
    )


class Unpin(Action):
    name = "unpin"
    label = "Remove the pin"
    question = "Remove the pin of {name}?"
    destructive = True

    def effects(self, target: AppPin) -> Iterable[str]:
        rule = "its plan's pin, or the channel," if target.client_id else "the channel"
        yield f"For {target.client or target.plan}, {rule} applies again."
        yield "Shells get it at their next update check and keep their installed version until then."

    def do(self, target: AppPin, **inputs: Any) -> Result:
        unpin(pin_id=target.pk, **inputs)
        return Result("The pin has been removed.", target.app)


@admin.register(AppPin)
class AppPinAdmin(ConsoleAdmin):
    row_actions = (Unpin(),)
    change_form_template = "admin/console/pin.html"
    audit_target = "app_id"
    list_display = ("app", "version", "client", "plan", moment("pinned_at"), "pinned_by")
    list_filter = ("app", "plan")
    list_select_related = ("app", "version", "client", "plan")
    search_fields = ("client__name", "app__slug")
    fields = (*list_display, "reason")
