"""The pages of connections and of their revocations. They never show a token."""

from collections.abc import Iterable
from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils import timezone

from accounts.connections.disconnecting import ConnectionNotFound, disconnect, dismiss, retry
from accounts.models import Connection, ConnectionRevocation, User
from config.console.actions import BulkAction
from config.console.base import ConsoleAdmin
from config.console.lists.columns import ChoiceFilter, moment, person
from config.console.template_tags import counted


class Disconnect(BulkAction):
    name = "disconnect"
    label = "Disconnect"
    question = "Disconnect {row.user} from {row.provider}?"
    destructive = True

    def effects(self, target: Connection | None) -> Iterable[str]:
        yield "The grant is deleted here at once, and revoked at the provider as soon as the provider answers."
        yield "The person can connect again."

    def message(self, subject: str, number: int) -> str:
        return f"{counted(number, 'connection')} removed."

    def do_one(self, target: Connection, **inputs: Any) -> int:
        try:
            disconnect(user_id=target.user_id, provider=target.provider, **inputs)
        except ConnectionNotFound:
            # Another operator or the person has done it meanwhile.
            return 0
        return 1


class ConnectionState(ChoiceFilter):
    title, parameter_name = "state", "state"
    choices_of = (
        ("lapsed", "reauthorisation needed"),
        ("failing", "provider failed on the last attempt"),
        ("well", "neither"),
    )

    def filtered(self, rows: QuerySet[Any], value: str) -> QuerySet[Any]:
        if value == "lapsed":
            return rows.filter(lapsed_at__isnull=False)
        rows = rows.filter(lapsed_at=None)
        return rows.exclude(failure="") if value == "failing" else rows.filter(failure="")


@admin.register(Connection)
class ConnectionAdmin(ConsoleAdmin):
    row_actions = (Disconnect(),)
    list_display = (
        person(linked=False),
        "provider",
        "state",
        moment("connected_at"),
        moment("refreshed_at", "last refresh"),
        "failure",
    )
    list_filter = (ConnectionState,)
    link_lookups = ("user__id__exact",)
    list_select_related = ("user",)
    search_fields = ("user__email", "provider")
    uuid_fields = ("user_id",)
    audit_target = "user_id"
    fields = (
        person(),
        "provider",
        "state",
        "scopes",
        moment("connected_at"),
        moment("refreshed_at", "last refresh"),
        moment("expires_at", "access token ends"),
        moment("lapsed_at"),
        "lapse",
        moment("failed_at"),
        "failure",
        moment("ask_again_at", "provider is left alone until"),
        moment("refused_since", "refused in unknown words since"),
    )
    readonly_fields = ("state",)

    def row_name(self, row: Connection) -> str:
        return f"{row.provider} of {row.user}"

    @admin.display(description="state")
    def state(self, connection: Connection) -> str:
        return connection.state(at=timezone.now()).label


class Retry(BulkAction):
    name = "retry"
    label = "Try again"
    question = "Try again to revoke the grant at {row.provider}?"

    def available(self, target: ConnectionRevocation, *, by: HttpRequest) -> bool:
        return target.gave_up_at is not None

    def effects(self, target: ConnectionRevocation | None) -> Iterable[str]:
        yield "The revocation is sent again at once, and then at growing intervals for another two weeks."

    def message(self, subject: str, number: int) -> str:
        return f"{counted(number, 'revocation')} started again."

    def do_one(self, target: ConnectionRevocation, **inputs: Any) -> int:
        return retry(revocation_id=target.pk, **inputs)


class Dismiss(BulkAction):
    name = "dismiss"
    label = "Forget"
    question = "Forget the grant at {row.provider}?"
    destructive = True

    def effects(self, target: ConnectionRevocation | None) -> Iterable[str]:
        yield "The token that could revoke this grant is deleted."
        yield "If the provider still accepts the grant, only the person can end it, at the provider."

    def message(self, subject: str, number: int) -> str:
        return f"{counted(number, 'revocation')} forgotten."

    def do_one(self, target: ConnectionRevocation, **inputs: Any) -> int:
        return dismiss(revocation_id=target.pk, **inputs)


class RevocationState(ChoiceFilter):
    title, parameter_name = "state", "state"
    choices_of = (("waiting", "not confirmed yet"), ("given_up", "given up"))

    def filtered(self, rows: QuerySet[Any], value: str) -> QuerySet[Any]:
        return rows.filter(gave_up_at__isnull=value == "waiting")


@admin.register(ConnectionRevocation)
class RevocationAdmin(ConsoleAdmin):
    row_actions = (Retry(), Dismiss())
    list_display = (
        "id",
        "provider",
        moment("asked_at"),
        "attempts",
        "failure",
        moment("tried_at"),
        moment("due_at", "next attempt"),
        moment("gave_up_at", "given up"),
    )
    list_filter = (RevocationState,)
    search_fields = ("provider",)
    uuid_fields = ("user_id",)
    audit_target = "user_id"
    fields = (*list_display, "user_id")

    def owner(self, row: ConnectionRevocation) -> User | None:
        return User.objects.filter(pk=row.user_id).first()
