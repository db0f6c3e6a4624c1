"""Actions on a channel of the shell; each describes its effect on shells that have updated already."""

from collections.abc import Iterable, Mapping
from typing import Any

from django import forms
from django.http import HttpRequest

from config.console.actions import Action, Preview, ReasonForm, Result
from releases import channel_control
from releases.delivery import cdn, purging
from releases.models import Publication, ShellChannel
from releases.versions import Version

KEPT_SECONDS = 360


def _cdn_follows() -> str:
    if cdn.is_purged():
        return "The CDN is purged and read back; until this page reports success, it may serve the old files."
    return (
        f"No purge is configured: caches may serve the old files for {KEPT_SECONDS} more seconds."
    )


def _outcome(done: str, *, placed: bool) -> str:
    later = "" if placed else " Storage does not have it yet; a worker keeps trying."
    return f"{done}{later}"


class RollBackForm(ReasonForm):
    to = forms.ChoiceField(label="Go back to")
    # The choice whose preview was shown.
    seen = forms.CharField(required=False, widget=forms.HiddenInput)

    def __init__(self, *args: Any, channel: ShellChannel, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        field: Any = self.fields["to"]
        field.choices = [
            (each.pk, f"{each.release.version} (published {each.published_at:%Y-%m-%d %H:%M} UTC)")
            for each in channel_control.earlier(channel.pk)
        ]


class RollBack(Action):
    name = "roll_back"
    label = "Roll back"
    atomic = False
    button = "Preview"
    form_class = RollBackForm
    destructive = True

    def available(self, target: ShellChannel, *, by: HttpRequest) -> bool:
        return bool(channel_control.earlier(target.pk))

    def effects(self, target: ShellChannel) -> Iterable[str]:
        yield "The channel offers an earlier release again, with the same bytes and the same signature."
        yield (
            "Shells that have updated already stay on the newer version: a shell takes no older one. "
            "To change those, publish a newer version."
        )
        yield _cdn_follows()

    def form(
        self, target: ShellChannel, data: Mapping[str, Any] | None, *, by: HttpRequest
    ) -> RollBackForm:
        return RollBackForm(data, channel=target)

    def do(
        self, target: ShellChannel, *, to: str, seen: str, reason: str, **given: Any
    ) -> Result | Preview:
        chosen = next(each for each in channel_control.earlier(target.pk) if str(each.pk) == to)
        if seen != to:
            entered = {"to": to, "seen": to, "reason": reason}
            return Preview(
                form=RollBackForm(initial=entered, channel=target),
                template="admin/console/rollback.html",
                shown=_preview(target, chosen),
                button=self.label,
            )
        placed = channel_control.roll_back(
            channel=target.pk, publication_id=chosen.pk, reason=reason, **given
        )
        done = f"{target} offers {chosen.release.version} again."
        return Result(_outcome(done, placed=placed), target)


def _preview(target: ShellChannel, chosen: Publication) -> dict[str, Any]:
    """The offer of the channel before and after."""
    current = Publication.objects.of(target.pk).wanted().first()
    before, after = current.release.version if current else "", chosen.release.version
    platforms = current.release.platforms if current else ()
    return {
        "channel": target,
        "before": before,
        "after": after,
        "is_older": Version.parse(after) < Version.parse(before),
        "lost": sorted(set(platforms) - set(chosen.release.platforms)),
        "chosen": chosen,
    }


class Halt(Action):
    name = "halt"
    label = "Halt"
    atomic = False
    destructive = True

    def available(self, target: ShellChannel, *, by: HttpRequest) -> bool:
        return target.halted_at is None

    def effects(self, target: ShellChannel) -> Iterable[str]:
        yield "The update address answers 204 to every shell of this channel from now on: there is no update."
        yield (
            "The manifest is removed from storage. A shell that reads it from the CDN finds none, logs that, and "
            "keeps its version."
        )
        yield (
            "Shells that have updated already stay on their version. "
            "To change those, resume and publish a newer one."
        )
        yield "A publish under way is ended, and others are refused until the channel is resumed."
        yield _cdn_follows()

    def do(self, target: ShellChannel, **given: Any) -> Result:
        placed = channel_control.halt(channel=target.pk, **given)
        return Result(_outcome(f"{target} offers nothing.", placed=placed), target)


class Resume(Action):
    name = "resume"
    label = "Resume"
    atomic = False

    def available(self, target: ShellChannel, *, by: HttpRequest) -> bool:
        return target.halted_at is not None

    def effects(self, target: ShellChannel) -> Iterable[str]:
        current = Publication.objects.of(target.pk).wanted().first()
        offer = f"version {current.release.version}" if current else "the next published version"
        yield f"The channel offers {offer} again. To offer an earlier one, roll back first."
        yield "Publishing works again."
        yield _cdn_follows()

    def do(self, target: ShellChannel, **given: Any) -> Result:
        placed = channel_control.resume(channel=target.pk, **given)
        return Result(_outcome(f"{target} is resumed.", placed=placed), target)


class RetryPurge(Action):
    name = "purge"
    label = "Purge again"

    def available(self, target: ShellChannel, *, by: HttpRequest) -> bool:
        return purging.is_possible(target)

    def effects(self, target: ShellChannel) -> Iterable[str]:
        yield "A worker purges the CDN again at once, and reads the public address until it serves the offer."

    def do(self, target: ShellChannel, **given: Any) -> Result:
        queued = purging.retry(channel=target.pk, **given)
        return Result("A worker purges again." if queued else "There is nothing to purge.", target)
