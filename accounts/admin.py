"""Sessions, their tokens, and keys, to look at. The pages of clients, people and the audit log cross floors and
stand in ``config.console``."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from django.conf import settings
from django.contrib import admin
from django.db.models import Q, QuerySet
from django.http import HttpRequest
from django.urls import URLPattern, path
from django.utils import timezone
from django.utils.timesince import timeuntil

from accounts.acts import ActOnSeveral, do_each
from accounts.audit import Actor
from accounts.columns import OneOf, moment
from accounts.connections import admin as connections
from accounts.console import ConsoleAdmin, events_about
from accounts.large_lists import THEIRS, LargeList
from accounts.models import RefreshToken, Session, SigningKey
from accounts.models.keys import Stage
from accounts.models.sessions import live_tokens
from accounts.revocation import end_session
from accounts.templatetags.console import instant

# Registered there, found through here.
__all__ = ["connections"]

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
        why, reason = Session.Ended.REVOKED, given["reason"]
        ended = do_each(
            targets, lambda each: end_session(session=each, why=why, reason=reason, by=by, now=now)
        )
        return f"Sessions ended: {ended}."


class SessionState(OneOf):
    title, parameter_name = "state", "state"
    choices_of = (("live", "live"), ("expired", "expired"), ("ended", "ended"))

    def narrowed(self, rows: QuerySet[Any], value: str) -> QuerySet[Any]:
        if value == "ended":
            return rows.exclude(ended_at=None)
        now = timezone.now()
        if value == "live":
            return rows & Session.objects.live(at=now)
        # No token expires before this, which saves a look at those of every session since.
        old = Q(started_at__lte=now - settings.REFRESH_LIFETIME) | Q(expires_at__lte=now)
        return rows.filter(old, ended_at=None).exclude(live_tokens(at=now))


@admin.register(Session)
class SessionAdmin(LargeList):
    acts = (EndSession(),)
    change_form_template = "admin/console/session.html"
    list_display = (
        "short_id",
        "user",
        "device_fp",
        moment("started_at"),
        moment("last_used_at"),
        "last_used_from",
        moment("ended_at"),
        "ended_by",
    )
    list_filter = (SessionState, "ended_by", ("started_at", admin.DateFieldListFilter))
    linked_by = ("user__id__exact",)
    list_select_related = ("user",)
    search_help_text = f"{THEIRS}, how a device begins, or the id of a session or a user."
    uuid_fields = ("id", "user_id")
    fields = (
        "id",
        "user",
        "device_fp",
        moment("started_at"),
        "started_from",
        moment("last_used_at"),
        "last_used_from",
        moment("expires_at"),
        moment("ended_at"),
        "ended_by",
    )

    def named(self, term: str) -> Q:
        return Q(device_fp__startswith=term)

    @admin.display(description="session")
    def short_id(self, session: Session) -> str:
        return str(session.pk)[:8]

    def beside(self, request: HttpRequest, row: Session) -> dict[str, Any]:
        return {
            "tokens": RefreshToken.objects.filter(session=row)[:TOKENS_SHOWN],
            "recent_events": events_about([row.pk, row.user_id]),
        }


class TokenState(OneOf):
    title, parameter_name = "state", "state"
    choices_of = (("live", "live"), ("replaced", "replaced"), ("revoked", "revoked"))

    def narrowed(self, rows: QuerySet[Any], value: str) -> QuerySet[Any]:
        if value == "live":
            return rows.filter(revoked_at=None, replaced_at=None, expires_at__gt=timezone.now())
        return rows.filter(**{f"{value}_at__isnull": False})


@admin.register(RefreshToken)
class RefreshTokenAdmin(LargeList):
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
    search_help_text = f"{THEIRS}, or the id of a user or a session."
    uuid_fields = ("user_id", "session_id")

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view(self.changelist_view)
        return [path("", view, name="accounts_refreshtoken_changelist")]


class KeyStage(OneOf):
    title, parameter_name = "stage", "stage"
    choices_of = tuple((each.value, each.label) for each in Stage)

    def narrowed(self, rows: QuerySet[Any], value: str) -> QuerySet[Any]:
        return SigningKey.objects.filter(pk__in=rows).at_stage(Stage(value), at=timezone.now())


@admin.register(SigningKey)
class SigningKeyAdmin(ConsoleAdmin):
    list_display = (
        "kid",
        "stage",
        "next",
        moment("published_at"),
        moment("signs_from"),
        moment("superseded_at", "signs until"),
        "verifies_until",
        moment("revoked_at"),
    )
    list_filter = (KeyStage,)
    fields = (*list_display, "public_pem")
    readonly_fields = ("stage", "next", "verifies_until")

    @admin.display(description="stage")
    def stage(self, key: SigningKey) -> str:
        return key.stage(at=timezone.now()).label

    @admin.display(description="what happens next")
    def next(self, key: SigningKey) -> str:
        now = timezone.now()
        stage = key.stage(at=now)
        if stage in {Stage.PLANNED, Stage.PUBLISHED}:
            return f"signs in {timeuntil(key.signs_from, now)}"
        if stage == Stage.SIGNING and key.superseded_at is not None:
            return f"stops signing in {timeuntil(key.superseded_at, now)}"
        if stage == Stage.SIGNING:
            return "signs until another is made"
        if stage == Stage.VERIFYING and key.verifies_until is not None:
            return f"retires in {timeuntil(key.verifies_until, now)}"
        return "void since it was revoked" if key.revoked_at else "nothing"

    @admin.display(description="verifies until")
    def verifies_until(self, key: SigningKey) -> str:
        return instant(key.verifies_until)
