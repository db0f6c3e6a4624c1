"""The page of signing keys."""

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.utils import timezone
from django.utils.timesince import timeuntil

from accounts.models import SigningKey
from accounts.models.keys import Stage
from config.console.base import ConsoleAdmin
from config.console.lists.columns import ChoiceFilter, moment
from config.console.template_tags import instant


class KeyStage(ChoiceFilter):
    title, parameter_name = "stage", "stage"
    choices_of = tuple((each.value, each.label) for each in Stage)

    def filtered(self, rows: QuerySet[Any], value: str) -> QuerySet[Any]:
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
            return "signs until another is created"
        if stage == Stage.VERIFYING and key.verifies_until is not None:
            return f"retires in {timeuntil(key.verifies_until, now)}"
        return "no longer valid" if key.revoked_at else "nothing"

    @admin.display(description="verifies until")
    def verifies_until(self, key: SigningKey) -> str:
        return instant(key.verifies_until)
