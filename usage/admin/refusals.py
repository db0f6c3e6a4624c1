"""The page of refusals."""

from datetime import datetime
from operator import itemgetter
from typing import Any
from uuid import UUID

from django.contrib import admin
from django.db.models import Count, Max, Q, Sum
from django.db.models.functions import TruncDate
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.http import urlencode

from accounts.admin.large_lists import THEIRS, LargeList
from config.api.problems import titles
from config.console.columns import ChoiceFilter, moment
from config.console.tables import Column, Link, Row, Table
from usage.models import Refusal
from usage.refusal_log import KEPT


class CodeFilter(ChoiceFilter):
    title, parameter_name = "reason", "code"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return sorted(titles().items(), key=itemgetter(1))


@admin.register(Refusal)
class RefusalAdmin(LargeList):
    list_display = (moment("last_at", "time"), "who", "reason", "model", "number", "left")
    change_form_template = "admin/console/refusal.html"
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


def by_reason(*, now: datetime, lookup: str, value: UUID) -> Table:
    """The refusals of two weeks of one person (``user__id__exact``) or client, by reason, and their days."""
    rows = Refusal.objects.filter(minute__gte=now - KEPT, **{lookup: value}).order_by()
    days = Count(TruncDate("minute"), distinct=True)
    sums = rows.values_list("code").annotate(n=Sum("number"), days=days, last=Max("last_at"))
    page, query = reverse("admin:usage_refusal_changelist"), urlencode({lookup: str(value)})
    found = sorted(sums, key=itemgetter(1), reverse=True)
    return Table(
        columns=[
            Column("Reason"),
            *(Column(each, "number") for each in ("Count", "Days")),
            Column("Last", "time"),
        ],
        rows=[
            Row([titles().get(code, code), *others], href=f"{page}?{query}&code={code}")
            for code, *others in found
        ],
        empty="None in 14 days.",
        more=Link("All refusals", f"{page}?{query}") if found else None,
    )
