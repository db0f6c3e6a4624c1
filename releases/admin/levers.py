"""The actions that tell shells of a client, or all, their least version, a message, and where they update from."""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from django import forms
from django.contrib import admin
from django.http import HttpRequest

from accounts.device_names import SHELL
from accounts.models import Client, Session
from config.console.actions import Action, Preview, ReasonForm, Result, UtcDateTimeField
from config.console.base import ConsoleAdmin
from config.console.lists.columns import moment
from config.platform.text.versions import MAX_LENGTH
from licensing import notices
from licensing.callers import Caller
from licensing.models import ServiceNotice, ShellNotice
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
        self, target: Client | ServiceNotice, *, minimum: str, seen: str, reason: str, **given: Any
    ) -> Result | Preview:
        if minimum and seen != minimum:
            levers.check_minimum(licence_id=licence_of(target), minimum=minimum)
            form = MinimumForm(initial={"minimum": minimum, "seen": minimum, "reason": reason})
            shown: dict[str, Any] = {
                "minimum": minimum,
                "client": target if isinstance(target, Client) else None,
            }
            shown["locked"] = locked_by(minimum, target) if isinstance(target, Client) else ()
            button = f"Set the minimum to {minimum}"
            return Preview(
                form=form, template="admin/console/minimum.html", shown=shown, button=button
            )
        levers.set_minimum_version(
            licence_id=licence_of(target), minimum=minimum, reason=reason, **given
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
        self, target: Client | ServiceNotice, *, channel: str, version: str, **given: Any
    ) -> Result:
        levers.set_shell(licence_id=licence_of(target), channel=channel, version=version, **given)
        of = f" of {channel}" if channel else ""
        said = f"is pinned to {version}{of}" if version else f"gets the newest version{of}"
        return self.done(target, f"{named(target)} {said}.")


class MessageForm(ReasonForm):
    text = forms.CharField(
        label="Message",
        required=False,
        max_length=500,
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

    def do(self, target: Client | ServiceNotice, *, text: str, **given: Any) -> Result:
        notice = notices.set_message(licence_id=licence_of(target), text=text, **given)
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
    """The notice in the caller's licence status, in sentences; none without one."""
    if minimum := caller.minimum_version:
        yield f"Below version {minimum} it shows its update screen alone."
    if shell := caller.shell:
        channel = shell.get("channel", "its own channel")
        pin = f", pinned to {shell['version']}" if "version" in shell else ""
        yield f"It updates from {channel}{pin}."
    if message := caller.message:
        yield f"It shows: “{message['text']}” ({message['level']})."


def locked_by(minimum: str, client: Client) -> list[tuple[str, int]]:
    """The versions below a minimum that a client's people signed in with, and how many sessions last on each."""
    agents = Session.objects.filter(user__client=client, ended_at=None).values_list(
        "agent", flat=True
    )
    versions = Counter(found[1] if (found := SHELL.match(agent)) else "" for agent in agents)
    return [(each, number) for each, number in versions.most_common() if is_below(each, minimum)]


@admin.register(ServiceNotice)
class ServiceNoticeAdmin(ConsoleAdmin):
    """The notice to all shells, unless their client's licence says otherwise: one row."""

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
