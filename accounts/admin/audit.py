"""The page of the audit log, with its filters and search."""

import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from django.contrib import admin
from django.contrib.postgres.search import SearchQuery
from django.db.models import CharField, Q, QuerySet
from django.db.models.functions import Cast
from django.http import HttpRequest
from django.urls import NoReverseMatch, reverse, reverse_lazy
from django.utils.html import format_html

from accounts.admin.exports import ExportedList
from accounts.audit import record
from accounts.models import AuditEvent, Client, Session, User
from accounts.models.audit import AUDIT_WORDS
from config.console.base import MOST_SEARCHED, uuid_in
from config.console.lists.columns import ChoiceFilter, moment
from config.console.navigation import page_of
from config.console.tables import Chip, Link
from config.console.template_tags import cell, changes
from config.platform.acts import ACTS
from config.platform.exports import lines, pages

# The newest events whose subjects and actions the filters offer.
RECENT = 2000
LOG = reverse_lazy("admin:accounts_auditevent_changelist")
EVENTS_SHOWN = 10
SESSIONS_LOOKED_AT = 50
# The words of a search that count.
MOST_WORDS = 10
# A subject with its colon, or an action.
EXPORTED = (
    "id", "at", "action", "actor", "actor_id", "target", "target_id", "reason", "before", "after", "address",
    "request_id",
)  # fmt: skip
ACT = re.compile(r"\A[a-z_]+:[a-z_]*\Z")
# The page of an event's target, by its action or the subject of it. The target of an event about a possession is its
# owner (a client, a person, a channel), whose history operators look for.
PAGES = {
    "app": "releases_microapp",
    "brake": "licensing_heldsuspension",
    "client": "accounts_client",
    "connection": "accounts_user",
    "language_model": "llmproxy_languagemodel",
    "licence": "accounts_client",
    "operator": "accounts_user",
    "override": "accounts_user",
    "plan": "licensing_plan",
    "job": "procrastinate_procrastinatejob",
    "route": "llmproxy_route",
    "release": "releases_shellchannel",
    "session": "accounts_session",
    # No session came of it.
    "session:refused": "accounts_user",
    "signing_key": "accounts_signingkey",
    "spend_limit": "usage_spendlimit",
    "user": "accounts_user",
}
# The chip of an event that is no ordinary act, by the end of its action.
OUTCOMES = {
    "refused": Chip("refused", "Refused"),
    "reused": Chip("refused", "Reused"),
    "failed": Chip("stopped", "Failed"),
    "given_up": Chip("stopped", "Given up"),
    "by_hand": Chip("watch", "By hand"),
    "raised": Chip("watch", "Alert"),
}


def page_of_target(event: AuditEvent) -> str | None:
    """The address of an event's target, if it has a page."""
    page = PAGES.get(event.action) or PAGES.get(event.action.partition(":")[0])
    if page is None or not event.target_id:
        return None
    try:
        return reverse(f"admin:{page}_change", args=[event.target_id])
    except NoReverseMatch:
        return None


def events_of_person(user_id: UUID) -> str:
    """The address of the audit log, limited to a person and their sessions."""
    return f"{LOG}?{urlencode({'person': user_id})}"


def log_of_client(client_id: UUID) -> str:
    """The address of the audit log, limited to a client and its people."""
    return f"{LOG}?{urlencode({'client': client_id})}"


def events_of_client(client_id: UUID) -> QuerySet[AuditEvent]:
    """The events about a client, its licence and budget, and about its people and their overrides."""
    return AuditEvent.objects.filter(target_id__in=_ids_of_client(client_id))


def _ids_of_client(client_id: UUID) -> QuerySet[Any]:
    """The targets of a client's events, as a query: a client may have thousands of people."""
    identity = Cast("pk", CharField())
    people = User.objects.filter(client_id=client_id).order_by().values_list(identity)
    return people.union(
        Client.objects.filter(pk=client_id).order_by().values_list(identity), all=True
    )


def events_about(ids: Sequence[object]) -> QuerySet[AuditEvent]:
    """The newest events about some targets."""
    return AuditEvent.objects.filter(target_id__in=[str(each) for each in ids])[:EVENTS_SHOWN]


def ids_of_person(user_id: UUID) -> list[UUID]:
    """The targets of a person's events in the audit log: their own id and those of the sessions used last.

    Ended sessions too: a reused token ends its session, and operators then look for the reason.
    """
    used_last = Session.objects.filter(user_id=user_id).order_by("-last_used_at", "pk")
    return [user_id, *used_last.values_list("pk", flat=True)[:SESSIONS_LOOKED_AT]]


class SubjectFilter(ChoiceFilter):
    title, parameter_name = "subject", "subject"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        subjects = {action.partition(":")[0] for action in _recent_actions()} | {self.value()}
        return [(each, each.replace("_", " ")) for each in sorted(filter(None, subjects))]

    def filtered(self, rows: QuerySet[Any], value: str) -> QuerySet[Any]:
        return rows.filter(action__startswith=f"{value}:")


class LinkedFilter(ChoiceFilter):
    """A filter that is shown only if a link of another page has set it, by the name of what it is limited to."""

    caption = "{}"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        value = self.value()
        return [(value, self.caption.format(self.named(value)))] if value else []

    def named(self, value: str) -> str:
        return value


class TargetFilter(LinkedFilter):
    title, parameter_name = "target", "target_id"

    def named(self, value: str) -> str:
        newest = AuditEvent.objects.filter(target_id=value).exclude(target="").order_by("-at")
        return newest.values_list("target", flat=True).first() or _short(value)


class PersonFilter(LinkedFilter):
    """The events of a person and of their sessions."""

    title, parameter_name = "person", "person"
    caption = "{} and their sessions"

    def named(self, value: str) -> str:
        return _name_of(User.objects.all(), value)

    def filtered(self, rows: QuerySet[Any], value: str) -> QuerySet[Any]:
        person = uuid_in(value)
        ids = ids_of_person(person) if person else []
        return rows.filter(target_id__in=[str(each) for each in ids])


class ClientFilter(LinkedFilter):
    """The events of a client and of its people."""

    title, parameter_name = "client", "client"
    caption = "{} and its people"

    def named(self, value: str) -> str:
        return _name_of(Client.objects.all(), value)

    def filtered(self, rows: QuerySet[Any], value: str) -> QuerySet[Any]:
        client = uuid_in(value)
        return rows.filter(target_id__in=_ids_of_client(client)) if client else rows.none()


class ActorFilter(LinkedFilter):
    title, parameter_name = "by", "actor"

    def filtered(self, rows: QuerySet[Any], value: str) -> QuerySet[Any]:
        # The index serves the prefix.
        return rows.filter(actor__istartswith=value, actor=value)


class ActionFilter(ChoiceFilter):
    """The recent actions, or those of the chosen subject."""

    title, parameter_name = "act", "action"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        subject = request.GET.get("subject", "")
        acts = {each for each in _recent_actions() if each.startswith(f"{subject}:")}
        return [(each, each) for each in sorted(acts | {self.value() or ""}) if each]


class WhenFilter(admin.ListFilter):
    """From one instant until another, in UTC; either may be empty. It needs no script."""

    title = "when (UTC)"
    names = ("since", "until")

    def __init__(
        self, request: HttpRequest, params: dict[str, Any], model: Any, model_admin: Any
    ) -> None:
        super().__init__(request, params, model, model_admin)
        for name in self.names:
            if name in params:
                self.used_parameters[name] = params.pop(name)[-1]

    def has_output(self) -> bool:
        return True

    def expected_parameters(self) -> list[str | None]:
        return [*self.names]

    @property
    def moments(self) -> list[tuple[str, str]]:
        """The names and values of its two fields."""
        return [(name, str(self.used_parameters.get(name, ""))) for name in self.names]

    def choices(self, changelist: Any) -> Iterator[dict[str, Any]]:
        return iter(())

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        since, until = (_instant(str(self.used_parameters.get(name, ""))) for name in self.names)
        if since:
            queryset = queryset.filter(at__gte=since)
        return queryset.filter(at__lt=until) if until else queryset


@admin.register(AuditEvent)
class AuditEventAdmin(ExportedList):
    export_name = "audit"
    list_display = ("activity", "outcome", "changed", moment("at", "time"))
    # The sentence links the event and what it names.
    list_display_links = None
    list_filter = (
        TargetFilter,
        PersonFilter,
        ClientFilter,
        ActorFilter,
        SubjectFilter,
        ActionFilter,
        WhenFilter,
    )
    sortable_by = ()
    # Shows the search box; get_search_results does the search.
    search_fields = ("actor",)
    search_help_text = (
        "Words of the actor, target or reason, or their beginnings; an action or its subject (licence:); "
        "a whole request id, address or id."
    )
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

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """Searches by index alone, so that a year of events takes no longer than a day."""
        term = search_term.strip()[:MOST_SEARCHED]
        if ACT.match(term):
            return queryset.filter(action__startswith=term), False
        if _is_address(term):
            return queryset.filter(address=term), False
        either = Q(request_id=term)
        if identity := uuid_in(term):
            either |= Q(actor_id=identity) | Q(target_id=str(identity))
        elif term.find("@") > 0:
            # By its words, every event of its domain would be looked at.
            either |= Q(actor__istartswith=term) | Q(target__istartswith=term)
        elif words := re.findall(r"[^\W_]+", term):
            query = " & ".join(f"{word}:*" for word in words[:MOST_WORDS])
            either |= Q(words=SearchQuery(query, search_type="raw", config="simple"))
            queryset = queryset.alias(words=AUDIT_WORDS)
        return queryset.filter(either) if term else queryset, False

    def export(self, rows: QuerySet[AuditEvent], *, ending: str) -> Iterator[bytes]:
        found = (map(_as_exported, events) for events in pages(rows, time="at"))
        return lines(EXPORTED, found, ending=ending)

    def note_export(self, **inputs: Any) -> None:
        record("audit:exported", **inputs)

    @admin.display(description="target")
    def target_link(self, event: AuditEvent) -> str:
        declared = ACTS.get(event.action)
        name = declared.target(event.target) if declared else event.target
        return cell(Link(_short(name or event.target_id), page_of_target(event) or ""))

    @admin.display(description="activity")
    def activity(self, event: AuditEvent) -> str:
        """The sentence of an event: its actor, the act, and what the act was done to."""
        declared = ACTS.get(event.action)
        sentence = declared.sentence if declared else f"{event.action} {{}}"
        before, _, after = sentence.partition("{}")
        by = f"{LOG}?{urlencode({'actor': event.actor})}" if event.actor else ""
        parts = [
            Link(event.actor or "Somebody", by),
            Link(before.strip(), page_of(event), strong=True),
            self.target_link(event) if "{}" in sentence else "",
            after.strip(),
        ]
        return cell([part for part in parts if part])

    @admin.display(description="result")
    def outcome(self, event: AuditEvent) -> str | None:
        found = (chip for end, chip in OUTCOMES.items() if event.action.endswith(end))
        return cell(next(found, "")) or None

    @admin.display(description="details")
    def changed(self, event: AuditEvent) -> str | None:
        why = format_html("“{}”", event.reason) if event.reason else ""
        told = changes(event)
        return format_html('<div class="changes">{} {}</div>', told, why) if told or why else None


def _name_of(rows: QuerySet[Any], value: str) -> str:
    """The name of a client or person by the text of an id; its beginning if there is none."""
    identity = uuid_in(value)
    row = rows.filter(pk=identity).first() if identity else None
    return str(row) if row else _short(value)


def _short(name: str) -> str:
    """Shortens an id; any other name is returned as it is."""
    return f"{name[:8]}…" if uuid_in(name) else name


def _as_exported(event: AuditEvent) -> dict[str, Any]:
    row = {name: getattr(event, name) for name in EXPORTED}
    return row | {name: str(row[name] or "") for name in ("at", "actor_id", "address")}


def _is_address(text: str) -> bool:
    """Returns whether a text is an IPv4 or IPv6 address."""
    try:
        return bool(ip_address(text))
    except ValueError:
        return False


def _instant(text: str) -> datetime | None:
    """Parses an instant in UTC; None for an empty or invalid one."""
    try:
        return datetime.fromisoformat(text).replace(tzinfo=UTC)
    except ValueError:
        return None


def _recent_actions() -> list[str]:
    recent = AuditEvent.objects.order_by("-at", "-id").values("pk")[:RECENT]
    events = AuditEvent.objects.filter(pk__in=recent).order_by()
    return list(events.values_list("action", flat=True).distinct())
