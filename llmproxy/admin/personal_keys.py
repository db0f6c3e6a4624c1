"""The page of personal keys, which never shows a key, and the action that ends one."""

from collections.abc import Iterable
from typing import Any

from django.contrib import admin
from django.db.models import Count, F, Q, QuerySet, Sum
from django.http import HttpRequest
from django.utils import timezone

from config.console.actions import BulkAction
from config.console.base import ConsoleAdmin
from config.console.lists.columns import ChoiceFilter, moment, person, tokens
from config.console.template_tags import counted
from config.platform.periods import Period
from llmproxy.keys.personal_keys import end_key
from llmproxy.models import PersonalKey
from usage.models import UsageRecord


class EndKey(BulkAction):
    name = "end"
    label = "Revoke key"
    question = "Revoke the key {row.name} of {row.user}?"
    destructive = True

    def available(self, target: PersonalKey, *, by: HttpRequest) -> bool:
        return _state(target) == "live"

    def effects(self, target: PersonalKey | None) -> Iterable[str]:
        yield "The key is refused from the next request on, permanently."
        yield "Its running model calls end within 15 seconds."
        yield "The person stays signed in and can create another; a plan without personal keys prevents that."

    def message(self, subject: str, number: int) -> str:
        return f"{counted(number, 'personal key')} revoked."

    def do_one(self, target: PersonalKey, **inputs: Any) -> int:
        return end_key(key=target, **inputs)


class KeyState(ChoiceFilter):
    title, parameter_name = "state", "state"
    choices_of = (("live", "live"), ("expired", "expired"), ("ended", "ended"))

    def filtered(self, rows: QuerySet[Any], value: str) -> QuerySet[Any]:
        now = timezone.now()
        if value == "live":
            return rows & PersonalKey.objects.live(at=now)
        ended = Q(ended_at__isnull=False) | ~Q(epoch=F("user__epoch"))
        return (
            rows.filter(ended)
            if value == "ended"
            else rows.exclude(ended).filter(expires_at__lte=now)
        )


@admin.register(PersonalKey)
class PersonalKeyAdmin(ConsoleAdmin):
    row_actions = (EndKey(),)
    list_display = (
        "name",
        person(),
        "state",
        moment("created_at"),
        moment("last_used_at", "last use"),
        moment("expires_at"),
        tokens("monthly_output_tokens", "own cap of output"),
    )
    list_filter = (KeyState, "created_at")
    link_lookups = ("user__id__exact",)
    list_select_related = ("user",)
    search_fields = ("user__email", "name")
    uuid_fields = ("id", "user_id")
    audit_target = "user_id"
    fields = (
        "id",
        *list_display,
        moment("ended_at"),
        "used_this_month",
    )
    readonly_fields = ("state", "used_this_month")

    def row_name(self, row: PersonalKey) -> str:
        return f"{row} of {row.user}"

    @admin.display(description="state")
    def state(self, key: PersonalKey) -> str:
        return _state(key)

    @admin.display(description="used this month (UTC)")
    def used_this_month(self, key: PersonalKey) -> str:
        month = Period.of(timezone.now()).month
        calls, given, output = (
            UsageRecord.objects.filter(key_id=key.pk, period=month)
            .aggregate(
                calls=Count("pk"),
                given=Sum("input_tokens", default=0),
                output=Sum("output_tokens", default=0),
            )
            .values()
        )
        return f"{calls:,} calls, {given:,} tokens of input, {output:,} of output"


def _state(key: PersonalKey) -> str:
    if key.ended_at is not None or key.epoch != key.user.epoch:
        return "ended"
    return "live" if key.expires_at > timezone.now() else "expired"
