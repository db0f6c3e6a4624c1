"""Actions on a channel of the shell; a template describes the effect of each on shells that have updated already."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, ClassVar

from django import forms
from django.http import HttpRequest

from config.console.actions import Action, Preview, ReasonForm, Result
from releases import channel_control, levers
from releases.delivery import cdn, purging
from releases.models import WHOLE, Publication, ShellChannel
from releases.version_rules import newest_signature


class ChannelAction(Action):
    """An action whose rule may also change storage, at once or by the worker; ``done`` is the message after it."""

    atomic = False
    consequences = "admin/console/channel_act.html"
    rule: ClassVar[Callable[..., bool | None]]
    done: ClassVar[str]
    # The action that is the way back.
    undone_by: ClassVar[str] = ""

    def shown(self, target: ShellChannel, form: Any) -> dict[str, Any]:
        return {
            "act": self.name,
            "channel": target,
            "current": Publication.objects.of(target.pk).wanted().first(),
            "running": channel_control.rollout(target.pk),
            "is_purged": cdn.is_purged(),
        }

    def do(self, target: ShellChannel, *args: Any, **inputs: Any) -> Result | Preview:
        placed = type(self).rule(channel=target.pk, **inputs)
        target.refresh_from_db()
        offered = channel_control.rollout(target.pk)
        offered = offered or Publication.objects.of(target.pk).wanted().first()
        version = offered.release.version if offered else "nothing"
        return Result(
            self.done.format(channel=target, version=version, **inputs),
            target,
            follows="Storage does not have it yet; a worker keeps trying."
            if placed is False
            else "",
            undo=(target, self.undone_by) if self.undone_by else None,
        )


class RollBackForm(ReasonForm):
    to = forms.ChoiceField(
        label="Go back to", help_text="Choose another version to see its effects."
    )
    # The choice whose effects were shown.
    seen = forms.CharField(required=False, widget=forms.HiddenInput)

    def __init__(self, *args: Any, channel: ShellChannel, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        field: Any = self.fields["to"]
        field.choices = [
            (each.pk, f"{each.release.version}, published {each.release.published_at:%-d %b %Y}")
            for each in channel_control.earlier(channel.pk)
        ]


class RollBack(ChannelAction):
    name = "roll_back"
    label = "Roll back"
    question = "Roll {name} back?"
    destructive = True
    consequences = "admin/console/rollback.html"
    rule = channel_control.roll_back
    done = "{channel} offers {version} again."

    def available(self, target: ShellChannel, *, by: HttpRequest) -> bool:
        return bool(channel_control.earlier(target.pk))

    def form(
        self, target: ShellChannel, data: Mapping[str, Any] | None, *, by: HttpRequest
    ) -> RollBackForm:
        first = channel_control.earlier(target.pk)[0].pk
        return RollBackForm(data, initial={"to": first, "seen": first}, channel=target)

    def shown(self, target: ShellChannel, form: Any) -> dict[str, Any]:
        """The offer of the channel before and after."""
        choices = channel_control.earlier(target.pk)
        named = str(form["to"].value())
        chosen = next((each for each in choices if str(each.pk) == named), choices[0])
        known = super().shown(target, form)
        before = known["running"] or known["current"]
        platforms = before.release.platforms if before else ()
        return known | {
            "chosen": chosen,
            "heading": f"Roll {target} back to {chosen.release.version}?",
            "sentence": "Older shells update. Shells with a newer version keep it: shells never install an older one.",
            "button": f"Roll back to {chosen.release.version}",
            "lost": sorted(set(platforms) - set(chosen.release.platforms)),
            "newest_signature": newest_signature(target.pk),
            "minimums": levers.minimums_above(target.pk, chosen.release.version),
        }

    def do(
        self, target: ShellChannel, *, to: str, seen: str, reason: str, **inputs: Any
    ) -> Result | Preview:
        chosen = next(each for each in channel_control.earlier(target.pk) if str(each.pk) == to)
        if seen != to:
            entered = {"to": to, "seen": to, "reason": reason}
            return Preview(form=RollBackForm(initial=entered, channel=target))
        return super().do(target, publication_id=chosen.pk, reason=reason, **inputs)


class ShareAction(ChannelAction):
    """An action on the release that a share of the shells is offered."""

    def available(self, target: ShellChannel, *, by: HttpRequest) -> bool:
        return channel_control.rollout(target.pk) is not None


class ShareForm(ReasonForm):
    share = forms.IntegerField(label="Percent of the shells", min_value=2, max_value=99)


class RaiseShare(ShareAction):
    name = "raise_share"
    label = "Raise share"
    question = "Raise the share of the new release on {name}?"
    form_class = ShareForm
    rule = channel_control.raise_share
    done = "{channel} offers {version} to {share} % of the shells."


class OfferToAll(ShareAction):
    name = "offer"
    label = "Offer to all"
    question = "Offer the new release on {name} to all shells?"
    rule = partial(channel_control.raise_share, share=WHOLE)
    done = "{channel} offers {version} to all shells."


class EndShare(ShareAction):
    name = "end_share"
    label = "End rollout"
    question = "End the rollout on {name}?"
    destructive = True
    rule = channel_control.end_share
    done = "{channel} offers {version} to all shells."


class Halt(ChannelAction):
    name = "halt"
    label = "Halt"
    question = "Halt {name}?"
    destructive = True
    rule = channel_control.halt
    done = "{channel} is halted."
    undone_by = "resume"

    def shown(self, target: ShellChannel, form: Any) -> dict[str, Any]:
        return super().shown(target, form) | {"minimums": levers.minimums_above(target.pk, None)}

    def available(self, target: ShellChannel, *, by: HttpRequest) -> bool:
        return target.halted_at is None


class Resume(ChannelAction):
    name = "resume"
    label = "Resume"
    question = "Resume {name}?"
    rule = channel_control.resume
    done = "{channel} offers {version} again."

    def available(self, target: ShellChannel, *, by: HttpRequest) -> bool:
        return target.halted_at is not None


class RetryPurge(ChannelAction):
    name = "purge"
    label = "Purge again"
    question = "Purge the CDN for {name} again?"
    atomic = True

    def available(self, target: ShellChannel, *, by: HttpRequest) -> bool:
        return purging.is_possible(target)

    def do(self, target: ShellChannel, **inputs: Any) -> Result:
        queued = purging.retry(channel=target.pk, **inputs)
        return Result(
            "A worker is purging again." if queued else "There is nothing to purge.", target
        )


CHANNEL_ACTIONS = (
    RaiseShare(),
    OfferToAll(),
    Halt(),
    Resume(),
    RetryPurge(),
    EndShare(),
    RollBack(),
)
