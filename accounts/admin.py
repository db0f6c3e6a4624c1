"""Sessions, their tokens, and keys, to look at. The pages of clients, people and the audit log cross floors and
stand in ``config.console``."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.urls import URLPattern, path
from django.utils import timezone

from accounts.acts import ActOnSeveral
from accounts.audit import Actor
from accounts.columns import OneOf, moment
from accounts.console import ConsoleAdmin
from accounts.models import RefreshToken, Session, SigningKey
from accounts.models.keys import VERIFYING
from accounts.revocation import end_session
from accounts.templatetags.console import instant

TOKENS_SHOWN = 20


class EndSession(ActOnSeveral):
    name = "end"
    label = "End session"
    grave = True

    def offered(self, target: Session, *, by: HttpRequest) -> bool:
        return target.ended_at is None

    def effects(self, target: Session | None) -> Iterable[str]:
        yield "The tokens of this session are refused from the next request on."
        yield "Its running model calls end within 15 seconds."
        yield "The person can sign in again; other sessions are not touched."

    def do_all(
        self, targets: Sequence[Session], given: dict[str, Any], *, by: Actor, now: datetime
    ) -> str:
        why = Session.Ended.REVOKED
        ended = sum(
            end_session(session=each, why=why, reason=given["reason"], by=by, now=now)
            for each in targets
        )
        return f"Sessions ended: {ended}."


class SessionState(OneOf):
    title, parameter_name = "state", "state"
    choices_of = (("open", "not ended"), ("ended", "ended"))

    def narrowed(self, rows: QuerySet[Any], value: str) -> QuerySet[Any]:
        return rows.filter(ended_at__isnull=value == "open")


@admin.register(Session)
class SessionAdmin(ConsoleAdmin):
    acts = (EndSession(),)
    change_form_template = "admin/console/session.html"
    list_display = (
        "short_id",
        "user",
        "device_fp",
        moment("started_at"),
        moment("last_used_at"),
        moment("ended_at"),
        "ended_by",
    )
    list_filter = (SessionState, "ended_by", ("started_at", admin.DateFieldListFilter))
    list_select_related = ("user",)
    search_fields = ("user__email", "device_fp")
    uuid_fields = ("id", "user_id")
    fields = (
        "id",
        "user",
        "device_fp",
        moment("started_at"),
        moment("last_used_at"),
        moment("expires_at"),
        moment("ended_at"),
        "ended_by",
    )

    @admin.display(description="session")
    def short_id(self, session: Session) -> str:
        return str(session.pk)[:8]

    def beside(self, request: HttpRequest, row: Session) -> dict[str, Any]:
        return {"tokens": RefreshToken.objects.filter(session=row)[:TOKENS_SHOWN]}


class TokenState(OneOf):
    title, parameter_name = "state", "state"
    choices_of = (("live", "live"), ("replaced", "replaced"), ("revoked", "revoked"))

    def narrowed(self, rows: QuerySet[Any], value: str) -> QuerySet[Any]:
        if value == "live":
            return rows.filter(revoked_at=None, replaced_by=None, expires_at__gt=timezone.now())
        return rows.filter(**{f"{value}_at__isnull": False})


@admin.register(RefreshToken)
class RefreshTokenAdmin(ConsoleAdmin):
    """A list only: a row's own address would show its id, which is half of a token."""

    list_display = (
        "__str__",
        "user",
        "device_fp",
        moment("issued_at"),
        moment("expires_at"),
        moment("replaced_at"),
        moment("revoked_at"),
    )
    list_display_links = None
    list_filter = (TokenState, ("issued_at", admin.DateFieldListFilter))
    list_select_related = ("user",)
    search_fields = ("user__email", "device_fp")
    uuid_fields = ("user_id", "session_id")

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view(self.changelist_view)
        return [path("", view, name="accounts_refreshtoken_changelist")]


@admin.register(SigningKey)
class SigningKeyAdmin(ConsoleAdmin):
    list_display = (
        "kid",
        "stage",
        moment("published_at"),
        moment("signs_from"),
        moment("superseded_at"),
        "verifies_until",
        moment("revoked_at"),
    )
    fields = (*list_display, "public_pem")
    readonly_fields = ("stage", "verifies_until")

    @admin.display(description="stage")
    def stage(self, key: SigningKey) -> str:
        now = timezone.now()
        if not key.verifies(at=now):
            return "retired"
        if key.superseded_at is not None and key.superseded_at <= now:
            return "verifying"
        return "signing" if key.signs_from <= now else "published"

    @admin.display(description="verifies until")
    def verifies_until(self, key: SigningKey) -> str:
        return instant(key.superseded_at + VERIFYING if key.superseded_at else None)
