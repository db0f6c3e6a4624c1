"""The front page: items that need attention, then the state of the service, with panels by role."""

from collections.abc import Callable
from datetime import datetime
from typing import Any, NamedTuple

from django.contrib import admin
from django.db.models import Count, F
from django.http import HttpRequest
from django.urls import reverse
from django.utils.safestring import SafeString

from accounts.models import AuditEvent
from config.composition.attention import listing
from config.composition.attention.items import Item
from config.composition.attention.operation import nights
from config.composition.front import pictures
from config.composition.operation.nightly import Run, last_runs
from config.console import shares
from config.platform.attention import Level
from config.platform.periods import Period
from licensing.models import Licence, Standing
from releases.delivery.cdn import is_purged
from releases.models import MicroApp, Publication, Purge, ShellChannel
from telemetry.volumes import people_by_shell_version
from usage.models import Budget, Refusal, RunningCall

SHOWN = 8


class Line(NamedTuple):
    """An item with the label and address of the action that this operator may take."""

    item: Item
    says: SafeString
    act: tuple[str, str] | None


class Panel(NamedTuple):
    """A part of the page, with the roles that see it; ``templates/admin/front`` renders its content."""

    name: str
    roles: str
    right: str
    find: Callable[[HttpRequest, datetime], Any]


def _licences(request: HttpRequest, now: datetime) -> dict[str, Any]:
    number = dict(Licence.objects.order_by().values_list("status").annotate(Count("pk")))
    others = Licence.objects.exclude(status=Standing.ACTIVE).select_related("client")
    return {
        "states": [(status, number.get(status, 0)) for status in Standing.values],
        "all": sum(number.values()),
        "others": others.order_by("grace_until", "-changed_at")[: SHOWN // 2],
    }


def _channels(request: HttpRequest, now: datetime) -> list[Any]:
    """Returns the channels of the list, each with its offer, how far that has come, and its state at the CDN."""
    console: Any = admin.site.get_model_admin(ShellChannel)
    newest = Publication.objects.stored().order_by("release__channel_id", "-pk")
    ones = newest.distinct("release__channel_id")
    since = dict(ones.values_list("release__channel_id", "stored_at"))
    newest_purges = Purge.objects.newest().select_related("channel") if is_purged() else ()
    purges = {each.channel_id: each for each in newest_purges}
    people = dict(people_by_shell_version(Period.of(now).day))

    def arrives(row: Any) -> str:
        if (purge := purges.get(row.pk)) is None:
            return "not checked"
        if purge.confirmed_at is None or not purge.is_current:
            return console.at_the_cdn(row) or "in progress"
        return "serves it" if purge.publication_id else "serves no update"

    return [
        (
            row,
            console.state(row),
            row.offered_version or "nothing",
            row.share,
            people.get(row.offered_version, 0),
            arrives(row),
            row.halted_at or since.get(row.pk),
        )
        for row in console.get_queryset(request)
    ]


def _shells(request: HttpRequest, now: datetime) -> list[shares.Line]:
    """Returns the number of people who reported today by the version of their shell."""
    return shares.lines(people_by_shell_version(Period.of(now).day))


# fmt: off
PANELS = (
    Panel("money", "owner auditor licensing", "usage.view_monthlyusage", pictures.money),
    Panel("calls", "owner auditor support", "usage.view_usagerecord", pictures.calls),
    Panel("sign_ins", "owner auditor support", "accounts.view_session", pictures.sign_ins),
    Panel("licences", "owner auditor licensing", "licensing.view_licence", _licences),
    Panel("budgets", "licensing", "usage.view_budget", lambda *_: Budget.objects.select_related("client").annotate(
        part=100 * F("spent") / F("monthly")).order_by("-part")[:SHOWN]),
    Panel("refusals", "support", "usage.view_refusal", lambda *_: Refusal.objects.select_related("user")[:SHOWN]),
    Panel("running", "support", "usage.view_runningcall", lambda *_: RunningCall.objects.select_related(
        "user")[:SHOWN]),
    Panel("channels", "release", "releases.view_shellchannel", _channels),
    Panel("shells", "release", "telemetry.view_event", _shells),
    Panel("publications", "release", "releases.view_shellrelease", lambda *_: Publication.objects.by_pipelines(
        ).select_related("release").defer("signature", "release__manifest")[:SHOWN]),
    Panel("apps", "release", "releases.view_microapp", lambda *_: MicroApp.objects.annotate(
        number=Count("pins")).prefetch_related("channels__version")[:SHOWN]),
    Panel("activity", "auditor", "accounts.view_auditevent", lambda *_: AuditEvent.objects.all()[:SHOWN]),
)
# fmt: on


def at_a_glance(request: HttpRequest, *, now: datetime) -> dict[str, Any]:
    """Returns the content of the front page. Nights take one line unless an item is about them."""
    user: Any = request.user
    runs = last_runs() if user.has_perm("accounts.view_auditevent") else None
    known = {"night": nights(now, runs)} if runs else None
    found = listing.items(now=now, operator=user, known=known)
    calm = all(item.kind.name != "night" for item in found)
    # Each reading of the roles is a query.
    roles = user.roles
    return {
        "items": found,
        "attention": [_line(request, item) for item in found],
        "act": sum(item.level == Level.ACT for item in found),
        "watch": sum(item.level == Level.WATCH for item in found),
        "panels": [
            (f"admin/front/{panel.name}.html", panel.find(request, now))
            for panel in PANELS
            if roles & {*panel.roles.split()} and user.has_perm(panel.right)
        ],
        "nights": _nights(runs) if runs and calm else None,
    }


def _line(request: HttpRequest, item: Item) -> Line:
    return Line(item, item.says(request), _act(request, item) or _door(request, item))


def _act(request: HttpRequest, item: Item) -> tuple[str, str] | None:
    on: Any = item.on if item.acts else None
    if on is None:
        return None
    console: Any = admin.site.get_model_admin(type(on))
    for name in item.acts:
        if address := console.link(request, name, on):
            return item.kind.label or console.action(name).label, address
    return None


def _door(request: HttpRequest, item: Item) -> tuple[str, str] | None:
    user: Any = request.user
    if item.door is None or not user.has_perm(item.door.right):
        return None
    address = reverse(f"admin:{item.door.route}")
    return item.door.label, f"{address}?{item.door.query}".rstrip("?")


def _nights(runs: list[Run]) -> dict[str, Any]:
    ended = [run.done_at for run in runs if run.done_at]
    return {"jobs": len(runs), "ended": len(ended), "last": max(ended, default=None)}
