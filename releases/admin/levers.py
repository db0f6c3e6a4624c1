"""The actions that tell shells of a client, or all, their least version, a message, and where they update from."""

from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any

from django import forms
from django.contrib import admin
from django.db.models import Count
from django.http import HttpRequest

from accounts.device_names import shell_of
from accounts.models import Client, Session
from config.console.actions import Action, Preview, ReasonForm, Result, UtcDateTimeField
from config.console.base import ConsoleAdmin
from config.console.lists.columns import moment
from config.platform.text.versions import MAX_LENGTH
from licensing import notices
from licensing.callers import Caller
from licensing.models import Licence, ServiceNotice, ShellNotice
from licensing.models.notices import MAX_MESSAGE
from licensing.notices import is_below
from releases import levers
from releases.models import ShellChannel


class Lever(Action):
    """An action on the notice to the shells of a client, or of all clients."""

    def available(self, target: Client | ServiceNotice, *, by: HttpRequest) -> bool:
        return not isinstance(target, Client) or hasattr(target, "licence")

    def done(self, target: Client | ServiceNotice, sentence: str) -> Result:
        back = (target, self.name)
        return Result(sentence, target, "Shells get the change within a minute.", undo=back)


class VersionField(forms.CharField):
    """A version of the shell, or none."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(required=False, strip=True, max_length=MAX_LENGTH, **kwargs)


class MinimumForm(ReasonForm):
    minimum = VersionField(
        label="Minimum version", help_text="For example, 1.2.3. Empty: any version works."
    )
    # The version whose effects were shown.
    seen = forms.CharField(required=False, widget=forms.HiddenInput)


class SetMinimum(Lever):
    name = "minimum"
    label = "Set minimum version"
    question = "Set the minimum version for {row}?"
    button = "Show the effects"
    form_class = MinimumForm
    destructive = True

    def effects(self, target: Client | ServiceNotice) -> Iterable[str]:
        yield "A shell below the minimum shows only its update screen, and works again once it has updated."
        yield "Shells that cannot check continue to work. No request is refused because of its version."
        if isinstance(target, Client):
            yield "It replaces the minimum for all shells."

    def initial(self, target: Client | ServiceNotice, *, by: HttpRequest) -> dict[str, Any]:
        return {"minimum": notice_of(target).minimum_version}

    def do(
        self,
        target: Client | ServiceNotice,
        *,
        minimum: str,
        seen: str,
        reason: str,
        now: datetime,
        **inputs: Any,
    ) -> Result | Preview:
        if minimum and seen != minimum:
            levers.check_minimum(licence_id=licence_of(target), minimum=minimum)
            form = MinimumForm(initial={"minimum": minimum, "seen": minimum, "reason": reason})
            client = target if isinstance(target, Client) else None
            locked = locked_by(minimum, client, now=now)
            shown: dict[str, Any] = {
                "minimum": minimum,
                "client": client,
                "locked": locked,
                "number": sum(number for _, number in locked),
                "lost": levers.platforms_without_update(licence_id=licence_of(target)),
            }
            button = f"Set the minimum to {minimum}"
            return Preview(
                form=form, template="admin/console/minimum.html", shown=shown, button=button
            )
        levers.set_minimum_version(
            licence_id=licence_of(target), minimum=minimum, reason=reason, now=now, **inputs
        )
        said = f"has the minimum version {minimum}" if minimum else "has no minimum version"
        return self.done(target, f"{named(target)} {said}.")


class ChannelField(forms.ChoiceField):
    """A channel of the shell, or none."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(required=False, choices=self._names, **kwargs)

    @staticmethod
    def _names() -> list[tuple[str, str]]:
        names = ShellChannel.objects.values_list("name", flat=True)
        return [("", "Its own"), *((each, each) for each in names)]


class ShellForm(ReasonForm):
    channel = ChannelField(help_text="Empty: the channel that a shell was built for.")
    version = VersionField(
        label="Pinned version",
        help_text="For example, 1.2.3, published on the channel. Empty: the newest.",
    )


class SetShell(Lever):
    name = "shell"
    label = "Pin version"
    question = "Change the updates of {row}?"
    form_class = ShellForm

    def effects(self, target: Client | ServiceNotice) -> Iterable[str]:
        yield "A pinned shell is offered that version and no newer one. One that has a newer version keeps it."
        yield "A minimum version above the pin takes precedence."
        if isinstance(target, Client):
            yield "It replaces the setting for all shells."

    def initial(self, target: Client | ServiceNotice, *, by: HttpRequest) -> dict[str, Any]:
        notice = notice_of(target)
        return {"channel": notice.shell_channel, "version": notice.shell_version}

    def do(
        self, target: Client | ServiceNotice, *, channel: str, version: str, **inputs: Any
    ) -> Result:
        levers.set_shell(licence_id=licence_of(target), channel=channel, version=version, **inputs)
        of = f" of {channel}" if channel else ""
        said = f"is pinned to {version}{of}" if version else f"gets the newest version{of}"
        return self.done(target, f"{named(target)} {said}.")


class MessageForm(ReasonForm):
    text = forms.CharField(
        label="Message",
        required=False,
        max_length=MAX_MESSAGE,
        widget=forms.Textarea(attrs={"rows": 3}),
        help_text="Plain text. Empty: no message.",
    )
    level = forms.ChoiceField(choices=ShellNotice.Level, initial=ShellNotice.Level.INFO)
    until = UtcDateTimeField(
        label="Until (UTC)", required=False, help_text="Empty: until it is removed."
    )


class SetMessage(Lever):
    name = "message"
    label = "Show message"
    question = "Change the message to {row}?"
    form_class = MessageForm

    def effects(self, target: Client | ServiceNotice) -> Iterable[str]:
        yield "Shells show the message within a minute. Each new text is a new message."
        if isinstance(target, Client):
            yield "It replaces the message to all shells."

    def initial(self, target: Client | ServiceNotice, *, by: HttpRequest) -> dict[str, Any]:
        notice = notice_of(target)
        level = notice.message_level or ShellNotice.Level.INFO
        return {"text": notice.message_text, "level": level, "until": notice.message_until}

    def do(self, target: Client | ServiceNotice, *, text: str, **inputs: Any) -> Result:
        notice = notices.set_message(licence_id=licence_of(target), text=text, **inputs)
        end = f" until {notice.message_until:%-d %B %Y %H:%M} UTC" if notice.message_until else ""
        said = f"is shown the message{end}" if notice.message_text else "is shown no message"
        return self.done(target, f"{named(target)} {said}.")


LEVERS = (SetMinimum(), SetShell(), SetMessage())


def notice_of(target: Client | ServiceNotice) -> ShellNotice:
    return target if isinstance(target, ServiceNotice) else target.licence


def licence_of(target: Client | ServiceNotice) -> int | None:
    return None if isinstance(target, ServiceNotice) else target.licence.pk


def named(target: Client | ServiceNotice) -> str:
    return "Every client without its own" if isinstance(target, ServiceNotice) else str(target)


def sentences_of(caller: Caller) -> Iterator[str]:
    """The notice in the caller's licence status, in sentences that say whose it is; none without one."""
    own = Licence.objects.filter(client=caller.client_id).first()
    if own is None:
        return

    def whose(is_own: object) -> str:
        return f"set for {caller.client_name if is_own else levers.ALL}"

    if minimum := caller.minimum_version:
        set_for = whose(own.minimum_version)
        yield f"Below version {minimum} it shows only its update screen ({set_for})."
    if shell := caller.shell:
        channel = shell.get("channel", "its own channel")
        pin = f", pinned to {shell['version']}" if "version" in shell else ""
        yield f"It updates from {channel}{pin} ({whose(levers.has_source(own))})."
    pinned = levers.Source.of(own, notices.service_notice()).pin
    if pinned and "version" not in (shell or {}):
        yield f"Its pin to {pinned} does not apply: the minimum version is above it."
    if message := caller.message:
        end = (
            f", until {datetime.fromisoformat(message['until']):%-d %B %Y %H:%M} UTC"
            if "until" in message
            else ""
        )
        set_for = whose(str(own.message_id) == message["id"])
        yield f"It shows: “{message['text']}” ({message['level']}{end}; {set_for})."


def locked_by(minimum: str, client: Client | None, *, now: datetime) -> list[tuple[str, int]]:
    """The versions below a minimum that people have signed in with, and how many sessions last on each.

    Of a client, or of all clients (None) without a minimum of their own.
    """
    rows = Session.objects.live(at=now).order_by()
    of = {"user__client": client} if client else {"user__client__licence__minimum_version": ""}
    versions: Counter[str] = Counter()
    for agent, number in rows.filter(**of).values_list("agent").annotate(number=Count("pk")):
        versions[shell_of(agent)[0]] += number
    return [(each, number) for each, number in versions.most_common() if is_below(each, minimum)]


@admin.register(ServiceNotice)
class ServiceNoticeAdmin(ConsoleAdmin):
    """The notice to all shells, unless their client's licence has one of its own: one row."""

    row_actions = LEVERS
    list_display = ("__str__", "minimum", "updates", "message")
    fields = ("minimum", "updates", "message", moment("message_until"))
    readonly_fields = ("minimum", "updates", "message")

    def row_name(self, row: ServiceNotice) -> str:
        return "All shells"

    @admin.display(description="minimum version")
    def minimum(self, row: ServiceNotice) -> str:
        return row.minimum_version or "Any version works."

    @admin.display(description="updates")
    def updates(self, row: ServiceNotice) -> str:
        channel = row.shell_channel or "Each shell's own channel"
        return f"{channel}, {f'pinned to {row.shell_version}' if row.shell_version else 'newest version'}"

    @admin.display(description="message")
    def message(self, row: ServiceNotice) -> str:
        if not row.message_text:
            return "None"
        return f"{row.get_message_level_display()}: {row.message_text}"
