"""The page of attempts at calls that providers left without an answer, and may bill."""

from django.contrib import admin
from django.urls import reverse
from django.utils.html import format_html

from config.console.base import ConsoleAdmin
from config.console.columns import dollars, moment, tokens
from usage.models import LeftAttempt


@admin.register(LeftAttempt)
class LeftAttemptAdmin(ConsoleAdmin):
    """Each beside its call, which went on to another provider. They are few: a route that fails cools down."""

    list_display = (
        moment("left_at", "left"),
        "provider",
        "waited",
        tokens("input_tokens"),
        tokens("output_tokens"),
        dollars("cost", "cost at most, uncharged"),
        "person",
        "asked_model",
        "call",
    )
    list_filter = ("provider",)
    sortable_by = ()
    list_select_related = ("record__user",)
    date_hierarchy = "left_at"
    search_fields = ("record__user__email", "=record__request_id", "=record__model", "=provider")
    search_help_text = "A part of an email, a request id, a model, a provider, or the id of a call, a user or a client."
    uuid_fields = ("id", "record_id", "record__user_id", "record__client_id")
    uuid_text_fields = ("record__request_id",)
    fields = ("id", moment("asked_at", "asked"), *list_display, "request_id")
    readonly_fields = ("waited", "person", "asked_model", "call", "request_id")

    @admin.display(description="after")
    def waited(self, attempt: LeftAttempt) -> str:
        return f"{(attempt.left_at - attempt.asked_at).total_seconds():.0f} s"

    @admin.display(description="person")
    def person(self, attempt: LeftAttempt) -> str:
        page = reverse("admin:accounts_user_change", args=[attempt.record.user_id])
        return format_html('<a href="{}">{}</a>', page, attempt.record.user)

    @admin.display(description="model")
    def asked_model(self, attempt: LeftAttempt) -> str:
        return attempt.record.model

    @admin.display(description="request id")
    def request_id(self, attempt: LeftAttempt) -> str:
        return attempt.record.request_id

    @admin.display(description="its call")
    def call(self, attempt: LeftAttempt) -> str:
        """The call, by whom it went on to and how it ended."""
        record = attempt.record
        page = reverse("admin:usage_usagerecord_change", args=[record.pk])
        return format_html(
            '<a href="{}">{}: {}</a>', page, record.provider, record.get_end_display() or "runs"
        )

    def audit_target(self, row: LeftAttempt) -> object:
        return row.record.user_id
