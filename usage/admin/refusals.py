"""The page of refusals."""

from operator import itemgetter
from typing import Any
from uuid import UUID

from django.contrib import admin
from django.db.models import Q
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html, format_html_join

from accounts.admin.large_lists import THEIRS, LargeList
from config.api.problems import titles
from config.console.columns import ChoiceFilter, moment
from usage.models import Refusal


class CodeFilter(ChoiceFilter):
    title, parameter_name = "reason", "code"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return sorted(titles().items(), key=itemgetter(1))


@admin.register(Refusal)
class RefusalAdmin(LargeList):
    list_display = (moment("last_at", "time"), "who", "reason", "model", "number", "left")
    list_filter = (CodeFilter, "minute")
    link_lookups = ("user__id__exact", "client_id__exact")
    list_select_related = ("user",)
    search_help_text = f"{THEIRS}, or a request id, or the id of a person or client."
    uuid_fields = ("user_id", "client_id")
    fields = (
        moment("minute"),
        *list_display,
        "status",
        "code",
        "route",
        "client_id",
        "request_ids",
    )
    readonly_fields = ("who", "left", "reason")

    @admin.display(description="person")
    def who(self, row: Refusal) -> str:
        if row.user_id is None:
            return f"unknown, from {row.address or 'many networks'}"
        page = reverse("admin:accounts_user_change", args=[row.user_id])
        return format_html('<a href="{}">{}</a>', page, row.user)

    @admin.display(description="asked and left")
    def left(self, row: Refusal) -> str:
        """What was asked for and what was left, as far as the refusal said."""
        numbers = ((name.replace("_", " "), value) for name, value in row.numbers.items())
        return format_html_join(", ", "{} {}", numbers)

    def named(self, term: str) -> Q:
        return Q(request_ids__contains=[term])

    def uuid_query(self, identity: UUID) -> Q:
        return super().uuid_query(identity) | self.named(str(identity))
