"""The pages of events, their export and their volumes. No query here counts or sorts the whole table."""

from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any
from uuid import UUID

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.db.models import OuterRef, QuerySet, Subquery
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils import timezone

from accounts.admin.exports import ExportedList
from accounts.audit import record
from accounts.models import Client, User
from config.console.base import uuid_in
from config.console.lists.columns import ChoiceFilter, moment
from config.console.tables import Link
from config.console.template_tags import cell, short_id
from telemetry.export import lines
from telemetry.models import Event
from telemetry.statements import known
from telemetry.volumes import REST, volumes

DAYS_SHOWN = 14
# The earliest day that can be chosen; there are no events of earlier days.
EARLIEST = date(2000, 1, 1)
NO_APP = "-"


class DayFilter(ChoiceFilter):
    title, parameter_name = "day received (UTC)", "day"

    def lookups(self, request: HttpRequest, model_admin: Any) -> Sequence[tuple[str, str]]:
        return [(day, day) for day in _last_days()]

    def filtered(self, rows: QuerySet[Any], value: str) -> QuerySet[Any]:
        begin = datetime.fromisoformat(value).replace(tzinfo=UTC)
        return rows.filter(received_at__gte=begin, received_at__lt=begin + timedelta(days=1))


class NameFilter(ChoiceFilter):
    title, parameter_name = "name", "name"

    def lookups(self, request: HttpRequest, model_admin: Any) -> Sequence[tuple[str, str]]:
        return [(name, name) for name in known("name")]


class AppFilter(ChoiceFilter):
    title, parameter_name = "app", "app"

    def lookups(self, request: HttpRequest, model_admin: Any) -> Sequence[tuple[str, str]]:
        apps = known("app")
        return [(app or NO_APP, app or "the shell itself") for app in apps]

    def filtered(self, rows: QuerySet[Any], value: str) -> QuerySet[Any]:
        return rows.filter(app=_app(value))


class VersionFilter(ChoiceFilter):
    """A filter that offers versions once an app is chosen, because the index begins with the app."""

    title, parameter_name, lookup = "shell version", "version", "shell_version"

    def lookups(self, request: HttpRequest, model_admin: Any) -> Sequence[tuple[str, str]]:
        app = request.GET.get("app")
        if app is None or "\0" in app:
            return []
        versions = known("shell_version", app=_app(app))
        return [(each, each) for each in versions if each]


@admin.register(Event)
class EventAdmin(ExportedList):
    change_list_template = "admin/console/telemetry.html"
    export_name = "telemetry"
    list_display = (
        moment("received_at"),
        "name",
        "program",
        "version",
        "person",
        "client",
        moment("occurred_at"),
    )
    list_filter = (DayFilter, NameFilter, AppFilter, VersionFilter)
    sortable_by = ()
    search_fields = ("event_id",)
    search_help_text = "The id of an event."
    uuid_fields = ("event_id",)
    fields = ("event_id", *list_display, "properties")
    readonly_fields = ("program", "version", "client", "person")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """With names for operators who may look them up; others and the files of events have ids."""
        rows: QuerySet[Any] = super().get_queryset(request)
        sees = request.user.has_perms(("accounts.view_client", "accounts.view_user"))
        if sees and "export" not in str(getattr(request.resolver_match, "url_name", "")):
            names = Client.objects.filter(pk=OuterRef("client_id")).values("name")
            emails = User.objects.filter(pk=OuterRef("user_id")).values("email")
            rows = rows.annotate(client_name=Subquery(names), person_email=Subquery(emails))
        return rows

    @admin.display(description="app")
    def program(self, event: Any) -> str:
        return event.app or "the shell itself"

    @admin.display(description="shell version")
    def version(self, event: Any) -> str:
        return event.shell_version or "not sent"

    @admin.display(description="client")
    def client(self, event: Any) -> str:
        return link_of("client", event.client_id, getattr(event, "client_name", None))

    @admin.display(description="person")
    def person(self, event: Any) -> str:
        return link_of("user", event.user_id, getattr(event, "person_email", None))

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """Finds an event by its id; no index finds words."""
        if search_term and uuid_in(search_term) is None:
            return queryset.none(), False
        return super().get_search_results(request, queryset, search_term)

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view(self._volumes)
        return [path("volumes/", view, name="telemetry_event_volumes"), *super().get_urls()]

    def export(self, rows: QuerySet[Event], *, ending: str) -> Iterator[bytes]:
        return lines(rows, ending=ending)

    def note_export(self, **inputs: Any) -> None:
        record("telemetry:exported", **inputs)

    def _volumes(self, request: HttpRequest) -> HttpResponse:
        """The volumes of a day by app and version, also after its events were pruned."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        days = _last_days()
        day = _day(request.GET.get("day", "")) or days[0]
        found = volumes(day=date.fromisoformat(day))
        context = {
            **self.admin_site.each_context(request),
            "title": "Volumes",
            "days": days,
            "day": day,
            "volumes": found,
            "total": sum(each.events for each in found),
            "rest": REST,
        }
        return TemplateResponse(request, "admin/console/volumes.html", context)


def link_of(model: str, key: UUID, name: str | None) -> str:
    """A link to a client or person by name; the beginning of the id of one who is gone or may not be looked up."""
    page = reverse(f"admin:accounts_{model}_change", args=[key])
    return cell(Link(name, page)) if name else short_id(key)


def _last_days() -> list[str]:
    """Today and the days before it (UTC), as ``YYYY-MM-DD``, newest first."""
    today = timezone.now().astimezone(UTC).date()
    return [f"{today - timedelta(days=number)}" for number in range(DAYS_SHOWN)]


def _day(text: str) -> str | None:
    """A day that is not in the future, as ``YYYY-MM-DD``."""
    try:
        day = date.fromisoformat(text)
    except ValueError:
        return None
    return f"{day}" if EARLIEST <= day <= timezone.now().astimezone(UTC).date() else None


def _app(value: str) -> str:
    return "" if value == NO_APP else value
