"""The page of held suspensions: a run that would suspend many clients is held for an operator."""

from collections.abc import Iterable
from typing import Any

from django.contrib import admin
from django.http import HttpRequest

from config.console.actions import Action, Result
from config.console.base import ConsoleAdmin
from config.console.lists.columns import moment
from licensing import suspension_guard
from licensing.models import HeldSuspension, Licence

CLIENTS_NAMED = 20


class ConfirmSuspensions(Action):
    """Allows the next run to suspend the clients that it would."""

    name = "confirm"
    label = "Confirm suspensions"
    destructive = True

    def title(self, target: HeldSuspension, name: str) -> str:
        return f"Let {target.job} suspend {len(target.licence_ids)} of {target.clients} clients?"

    def available(self, target: HeldSuspension, *, by: HttpRequest) -> bool:
        return target.is_held

    def effects(self, target: HeldSuspension) -> Iterable[str]:
        yield f"The next run of {target.job} suspends {len(target.licence_ids)} of {target.clients} clients."
        yield f"Among them: {', '.join(_clients_of(target)[:CLIENTS_NAMED])}."
        yield "Their shells lock within a minute of it, and their model calls are refused."
        yield "A run that would suspend many other clients, or starts more than three days from now, is held again."

    def do(self, target: HeldSuspension, **inputs: Any) -> Result:
        suspension_guard.confirm(held_id=target.pk, **inputs)
        return Result(
            "Confirmed. The next run suspends them; run the command to do so now.", target
        )


def _clients_of(held: HeldSuspension) -> list[str]:
    names = Licence.objects.filter(pk__in=held.licence_ids).order_by("client__name")
    return list(names.values_list("client__name", flat=True))


@admin.register(HeldSuspension)
class HeldSuspensionAdmin(ConsoleAdmin):
    row_actions = (ConfirmSuspensions(),)
    list_display = (
        "job",
        moment("noticed_at"),
        "suspensions",
        "clients",
        moment("confirmed_at"),
        "confirmed_by",
        moment("ended_at"),
    )
    fields = (*list_display, "named")
    readonly_fields = ("suspensions", "named")

    @admin.display(description="would be suspended")
    def suspensions(self, held: HeldSuspension) -> int:
        return len(held.licence_ids)

    @admin.display(description="affected clients")
    def named(self, held: HeldSuspension) -> str:
        return ", ".join(_clients_of(held))
