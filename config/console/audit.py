"""The audit log: where an operator sees what happened."""

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.urls import NoReverseMatch, reverse
from django.utils.html import format_html

from accounts.columns import moment
from accounts.console import ConsoleAdmin
from accounts.models import AuditEvent
from accounts.templatetags.console import changes

# Subjects and actions are offered as far as they occur in so many of the newest events.
RECENT = 2000
# Where the target of an act has its page, by the act's subject. What belongs to a client, a person or a channel is
# kept under it: that is whose history one asks for.
PAGES = {
    "client": "accounts_client",
    "language_model": "llmproxy_languagemodel",
    "licence": "accounts_client",
    "operator": "accounts_user",
    "override": "accounts_user",
    "plan": "licensing_plan",
    "job": "procrastinate_procrastinatejob",
    "release": "releases_shellchannel",
    "session": "accounts_session",
    "signing_key": "accounts_signingkey",
    "user": "accounts_user",
}


def page_of_target(event: AuditEvent) -> str | None:
    """The address of what an act was done to, as far as it has a page."""
    subject = event.action.partition(":")[0]
    if subject not in PAGES or not event.target_id:
        return None
    try:
        return reverse(f"admin:{PAGES[subject]}_change", args=[event.target_id])
    except NoReverseMatch:
        return None


class SubjectFilter(admin.SimpleListFilter):
    title, parameter_name = "subject", "subject"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        subjects = {action.partition(":")[0] for action in _recent_actions()} | {self.value()}
        return [(each, each.replace("_", " ")) for each in sorted(filter(None, subjects))]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        value = self.value()
        return queryset.filter(action__startswith=f"{value}:") if value else queryset


class TargetFilter(admin.SimpleListFilter):
    """Shown only where a row's page has led here."""

    title, parameter_name = "target", "target_id"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        value = self.value()
        return [(value, f"only {value[:8]}…")] if value else []

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        value = self.value()
        return queryset.filter(target_id=value) if value else queryset


class WhenFilter(admin.DateFieldListFilter):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.title = "when"


@admin.register(AuditEvent)
class AuditEventAdmin(ConsoleAdmin):
    list_display = (
        moment("at", "when"),
        "action",
        "target_link",
        "changed",
        "by",
        "reason",
    )
    list_filter = (TargetFilter, SubjectFilter, ("at", WhenFilter))
    search_fields = ("actor", "target", "^action", "=request_id", "=address")
    search_help_text = (
        "Who did it, what it was done to, the act itself, a request id, an address, or an id."
    )
    uuid_fields = ("actor_id", "target_id")
    fields = (
        moment("at", "when"),
        "action",
        "actor",
        "actor_id",
        "target_link",
        "target_id",
        "changed",
        "reason",
        "address",
        "request_id",
    )
    readonly_fields = ("target_link", "changed")

    @admin.display(description="target", ordering="target")
    def target_link(self, event: AuditEvent) -> str:
        page = page_of_target(event)
        return format_html('<a href="{}">{}</a>', page, event.target) if page else event.target

    @admin.display(description="by", ordering="actor")
    def by(self, event: AuditEvent) -> str:
        where = format_html('<br><span class="quiet">{}</span>', event.address or "")
        return format_html("{}{}", event.actor, where if event.address else "")

    @admin.display(description="what changed")
    def changed(self, event: AuditEvent) -> str:
        return changes(event)


def _recent_actions() -> list[str]:
    recent = AuditEvent.objects.order_by("-at", "-id").values("pk")[:RECENT]
    events = AuditEvent.objects.filter(pk__in=recent).order_by()
    return list(events.values_list("action", flat=True).distinct())
