"""The pages of sessions and refresh tokens, and the action that ends a session."""

from collections.abc import Iterable
from typing import Any

from django.conf import settings
from django.contrib import admin
from django.db.models import Q, QuerySet
from django.http import HttpRequest
from django.urls import URLPattern, path
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString

from accounts.admin.audit import events_about
from accounts.admin.everybody import RevokeEverybody
from accounts.admin.large_lists import THEIRS, LargeList
from accounts.device_names import in_a_sentence
from accounts.models import RefreshToken, Session
from accounts.models.sessions import live_tokens
from accounts.sessions.revocation import end_session
from config.console.actions import BulkAction
from config.console.lists.columns import ChoiceFilter, moment, person
from config.console.template_tags import counted

TOKENS_SHOWN = 20


class EndSession(BulkAction):
    name = "end"
    label = "End session"
    destructive = True

    def title(self, target: Session | None, name: str) -> str:
        if target is None:
            return self.label
        device = in_a_sentence(target.device) or "an unknown device"
        return f"Sign {target.user} out of {device}?"

    def available(self, target: Session, *, by: HttpRequest) -> bool:
        return target.ended_at is None

    def effects(self, target: Session | None) -> Iterable[str]:
        yield "The tokens of this session are refused from the next request on."
        yield "Its running model calls end within 15 seconds."
        yield "The person can sign in again; other sessions continue."

    def message(self, subject: str, number: int) -> str:
        return f"{counted(number, 'session')} ended."

    def do_one(self, target: Session, **inputs: Any) -> int:
        return end_session(session=target, why=Session.Ended.REVOKED, **inputs)


class SessionState(ChoiceFilter):
    title, parameter_name = "state", "state"
    choices_of = (("live", "live"), ("expired", "expired"), ("ended", "ended"))

    def filtered(self, rows: QuerySet[Any], value: str) -> QuerySet[Any]:
        if value == "ended":
            return rows.exclude(ended_at=None)
        now = timezone.now()
        if value == "live":
            return rows & Session.objects.live(at=now)
        # No token expires earlier, so the tokens of younger sessions need no look.
        old = Q(started_at__lte=now - settings.REFRESH_LIFETIME) | Q(expires_at__lte=now)
        return rows.filter(old, ended_at=None).exclude(live_tokens(at=now))


@admin.register(Session)
class SessionAdmin(LargeList):
    row_actions = (EndSession(),)
    add_action = RevokeEverybody()
    change_form_template = "admin/console/session.html"
    list_display = (
        "short_id",
        person(),
        "device",
        moment("started_at"),
        moment("last_used_at"),
        "last_used_from",
        moment("ended_at"),
        "ended_by",
    )
    list_filter = (SessionState, "ended_by", "started_at")
    link_lookups = ("user__id__exact",)
    list_select_related = ("user",)
    search_help_text = (
        f"{THEIRS}, the beginning of a device’s name, or the id of a session or a person."
    )
    uuid_fields = ("id", "user_id")
    fields = ("id",)

    def named(self, term: str) -> Q:
        return Q(device_fp__startswith=term)

    @admin.display(description="device")
    def device(self, session: Session) -> SafeString:
        """Its name; its own description is the title."""
        said = ", ".join(filter(None, (session.agent, session.device_fp))) or "Nothing reported."
        name = session.device or "Unknown device"
        return format_html("<details><summary>{}</summary>{}</details>", name, said)

    @admin.display(description="session")
    def short_id(self, session: Session) -> str:
        return str(session.pk)[:8]

    def row_name(self, row: Session) -> str:
        return f"{row.device or 'Unknown device'} of {row.user}"

    def page_context(self, request: HttpRequest, row: Session) -> dict[str, Any]:
        return {
            "is_live": Session.objects.live(at=timezone.now()).filter(pk=row.pk).exists(),
            "tokens": RefreshToken.objects.filter(session=row)[:TOKENS_SHOWN],
            "recent_events": events_about([row.pk, row.user_id]),
        }


class TokenState(ChoiceFilter):
    title, parameter_name = "state", "state"
    choices_of = (("live", "live"), ("replaced", "replaced"), ("revoked", "revoked"))

    def filtered(self, rows: QuerySet[Any], value: str) -> QuerySet[Any]:
        if value == "live":
            return rows.filter(revoked_at=None, replaced_at=None, expires_at__gt=timezone.now())
        return rows.filter(**{f"{value}_at__isnull": False})


@admin.register(RefreshToken)
class RefreshTokenAdmin(LargeList):
    """A list without pages of rows: their addresses would show ids, and an id is half of a token."""

    list_display = (
        "__str__",
        person(),
        "device_fp",
        moment("issued_at"),
        moment("expires_at"),
        moment("replaced_at"),
        moment("revoked_at"),
    )
    list_display_links = None
    list_filter = (TokenState, "issued_at")
    list_select_related = ("user",)
    search_help_text = f"{THEIRS}, or the id of a person or a session."
    uuid_fields = ("user_id", "session_id")

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view(self.changelist_view)
        return [path("", view, name="accounts_refreshtoken_changelist")]
