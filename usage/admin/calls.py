"""The page of running calls, and the actions that end one call or stop all calls of a person."""

from collections.abc import Iterable
from typing import Any

from django.contrib import admin
from django.http import HttpRequest
from django.utils import timezone
from django.utils.html import format_html

from accounts.admin.person_action import PersonAction
from accounts.models import User
from config.console.actions import BulkAction, ReasonForm, Result, UtcDateTimeField
from config.console.base import ConsoleAdmin
from config.console.lists.columns import act, person, tokens
from config.console.template_tags import cell, counted, instant
from usage.admin.call_story import state_of, story
from usage.models import RunningCall
from usage.stops import end_call, restart_model_calls, stop_model_calls, stop_of


class StopForm(ReasonForm):
    ends_at = UtcDateTimeField(
        label="Until (UTC)", required=False, help_text="Empty: until an operator restarts them."
    )


class StopModelCalls(PersonAction, BulkAction):
    name = "stop_calls"
    label = "Stop model calls"
    question = "Stop model calls for {name}?"
    form_class = StopForm
    destructive = True

    def available(self, target: User, *, by: HttpRequest) -> bool:
        calls = target.client_id is not None and super().available(target, by=by)
        return calls and not stop_of(target, now=timezone.now())

    def effects(self, target: User | None) -> Iterable[str]:
        yield "New model calls are refused at once (model_calls_stopped); running ones end within 15 seconds."
        yield "Output until then is charged. They stay signed in."

    def message(self, subject: str, number: int) -> str:
        return f"{subject} can no longer call models. {_ending(number) if number else 'No call was running.'}"

    def do_one(self, target: User, **inputs: Any) -> int:
        return stop_model_calls(user_id=target.pk, **inputs)


class RestartModelCalls(PersonAction, BulkAction):
    name = "restart_calls"
    label = "Restart model calls"
    question = "Let {name} call models again?"

    def available(self, target: User, *, by: HttpRequest) -> bool:
        stop = stop_of(target, now=timezone.now())
        return stop is not None and super().available(target, by=by)

    def effects(self, target: User | None) -> Iterable[str]:
        yield "Model calls work again, from the next one on."

    def message(self, subject: str, number: int) -> str:
        return f"{subject} can call models again."

    def do_one(self, target: User, **inputs: Any) -> int:
        return restart_model_calls(user_id=target.pk, **inputs)


class EndCall(BulkAction):
    name = "end"
    label = "End calls"
    question = "End this call of {row.user} to {row.model}?"
    destructive = True

    def available(self, target: RunningCall, *, by: HttpRequest) -> bool:
        return target.told_to_end_at is None and target.expires_at > timezone.now()

    def effects(self, target: RunningCall | None) -> Iterable[str]:
        yield "The call ends within 15 seconds, with an error that says an operator stopped it."
        yield "Output until then is charged."
        yield "The person can start other calls at once; to prevent that, stop their model calls."

    def do(self, target: RunningCall, *args: Any, **inputs: Any) -> Result:
        # The list comes next: an ended call has no page.
        return Result(self.do_all([target], **inputs))

    def message(self, subject: str, number: int) -> str:
        return _ending(number)

    def do_one(self, target: RunningCall, **inputs: Any) -> int:
        return end_call(record_id=target.pk, **inputs)


def _ending(number: int) -> str:
    """Returns what follows for running calls: an operator's word ends them within seconds."""
    return f"{counted(number, 'call')} will end within 15 seconds."


@admin.register(RunningCall)
class RunningCallAdmin(ConsoleAdmin):
    """The running calls; a call that has ended is no longer listed."""

    row_actions = (EndCall(),)
    change_form_template = "admin/console/call.html"
    list_display = (
        "since",
        person(),
        "client",
        "model",
        "chip",
        tokens("reserved_output"),
        tokens("checkpoint_output", "delivered so far"),
    )
    list_display_links = ("since",)
    list_filter = ("streamed", "model")
    list_select_related = ("user__client",)
    search_fields = ("user__email", "=model", "=request_id")
    uuid_fields = ("id", "user_id", "client_id", "session_id", "key_id")
    audit_target = "user_id"
    uuid_text_fields = ("request_id",)
    fields = ("id",)

    def page_context(self, request: HttpRequest, row: RunningCall) -> dict[str, Any]:
        return story(row, now=timezone.now())

    @admin.display(description="client", ordering="user__client__name")
    def client(self, call: RunningCall) -> str:
        return str(call.user.client or "")

    @admin.display(description="since", ordering="opened_at")
    def since(self, call: RunningCall) -> str:
        age = max(0, int((timezone.now() - call.opened_at).total_seconds()))
        return format_html('{} <span class="quiet">{} s ago</span>', instant(call.opened_at), age)

    @admin.display(description="state")
    def chip(self, call: RunningCall) -> str:
        return cell(state_of(call, now=timezone.now()))

    def get_list_display(self, request: HttpRequest) -> Any:
        return (*self.list_display, act(request, "end", "End", "End the call {}"))

    def row_name(self, row: RunningCall) -> str:
        return f"{row} of {row.user}"
