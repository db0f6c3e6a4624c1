"""Actions that add people to a client: by invitation, or from a CSV file after a preview."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.http import HttpRequest

from accounts.admin.person_action import PersonAction
from accounts.audit import Actor
from accounts.models import Client, PasswordLink, User
from accounts.people.importing import MOST_BYTES, import_people, preview, read
from accounts.people.invitations import (
    MOST_PEOPLE,
    Fate,
    Outcome,
    emails_in,
    invite,
    invite_again,
    judge,
)
from accounts.people.operators import IS_AN_OPERATOR, may_touch
from accounts.people.password_links import LIFETIMES
from accounts.seats import lacking, seats_of
from config.console.actions import Action, BulkAction, Preview, Result
from config.console.template_tags import counted

HOURS = int(LIFETIMES[PasswordLink.Kind.INVITATION].total_seconds() // 3600)
LINK = f"They get an email with a link to set a password. It works once, for {HOURS} hours."


def joined(user: User, *, now: datetime) -> str:
    """A person's status in a few words: active, or how far they have come with joining."""
    if user.erased_at is not None:
        return "erased"
    if not user.is_active:
        return "disabled"
    if user.has_usable_password():
        return "active"
    if user.invited_at is None:
        return "not invited"
    ends = user.invited_at + LIFETIMES[PasswordLink.Kind.INVITATION]
    if ends <= now:
        return "invitation expired"
    return f"invited, until {ends:%d %b, %H:%M} UTC"


class InvitationForm(forms.Form):
    emails = forms.CharField(
        widget=forms.Textarea(attrs={"rows": 6, "spellcheck": "false"}),
        help_text="One or more, on separate lines or separated by commas.",
    )

    def __init__(self, *args: Any, client: Client, by: HttpRequest, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.client, self.by = client, by

    def clean_emails(self) -> str:
        """Checks that this operator may touch the people who are invited again, since that voids their first link."""
        text: str = self.cleaned_data["emails"]
        named = emails_in(text)
        if len(named) > MOST_PEOPLE:
            # The rule refuses so many without a query.
            return text
        verdicts = judge(named, client=self.client)
        waiting = [each.user_id for each in verdicts if each.fate == Fate.WAITING and each.user_id]
        for person in User.objects.filter(pk__in=waiting):
            if not may_touch(self.by, person):
                raise ValidationError(f"{person}: {IS_AN_OPERATOR}")
        return text


class InvitePeople(Action):
    name = "invite"
    label = "Invite people"
    question = "Invite people to {name}?"

    def form(
        self, target: Client, data: Mapping[str, Any] | None, *, by: HttpRequest
    ) -> forms.Form:
        return InvitationForm(data, client=target, by=by)

    def effects(self, target: Client) -> Iterable[str]:
        yield f"New people are added to {target}, without a password. {LINK}"
        yield "People who were invited before and have no password yet get a new link; the old one stops working."
        yield "People who already have a password get no email. If one email cannot be invited, nobody is."
        if seats := seats_of(target):
            yield seats.without(1) or f"Each new person takes a seat: {seats} are taken."

    def do(self, target: Client, *, emails: Any, **inputs: Any) -> Result:
        done = invite(named=emails_in(emails), client=target, **inputs)
        return Result(_invited(done.invited), target, _unchanged(done))


class InviteAgain(PersonAction, BulkAction):
    name = "invite"
    label = "Send invitation"
    question = "Send {name} an invitation?"
    form_class = forms.Form

    def available(self, target: User, *, by: HttpRequest) -> bool:
        return target.may_be_invited and super().available(target, by=by)

    def effects(self, target: User | None) -> Iterable[str]:
        yield LINK
        yield "An earlier link stops working."

    def message(self, subject: str, number: int) -> str:
        return _invited(number)

    def do_one(self, target: User, **inputs: Any) -> int:
        return invite_again(user_ids=[target.pk], **inputs)


class FileForm(forms.Form):
    file = forms.FileField(
        label="CSV file",
        widget=forms.ClearableFileInput(attrs={"accept": ".csv,text/csv"}),
        help_text="The first line names the columns, one of them “email”; other columns are ignored. "
        f"At most {MOST_PEOPLE:,} people and {MOST_BYTES // 1024} KiB.",
    )
    invited = forms.BooleanField(
        label="Send invitations", required=False, initial=True, help_text=LINK
    )


class SeenForm(forms.Form):
    """The form after the preview; it carries the file's text, because a browser sends no file twice."""

    text = forms.CharField(widget=forms.HiddenInput, strip=False)
    invited = forms.BooleanField(widget=forms.HiddenInput, required=False)
    # For refusals about the file.
    file = forms.CharField(widget=forms.HiddenInput, required=False)


class ImportPeople(Action):
    """Previews a file without any change, then imports it."""

    name = "import"
    label = "Import people"
    question = "Import people into {name}?"
    button = "Preview"

    def effects(self, target: Client) -> Iterable[str]:
        yield "The next page shows the effect of each line. Nothing is changed until you confirm it there."
        yield f"New people are added to {target}. People who are already here are not changed and get no email."
        yield "It is safe to import the same file again."

    def form(
        self, target: Client, data: Mapping[str, Any] | None, *, by: HttpRequest
    ) -> forms.Form:
        if data is not None and "text" in data:
            return SeenForm(data)
        return FileForm(data, by.FILES if data is not None else None)

    def do(self, target: Client, *, by: Actor, now: datetime, **inputs: Any) -> Result | Preview:
        if "text" in inputs:
            done = import_people(
                text=inputs["text"], client=target, invited=inputs["invited"], by=by, now=now
            )
            invited = _invited(done.invited) if inputs["invited"] else ""
            said = f"{counted(done.added, 'person', 'people')} added."
            return Result(said, target, f"{invited} {_unchanged(done)}".strip())
        return _foreseen(read(inputs["file"].read()), target, invited=inputs["invited"])


def _invited(number: int) -> str:
    return f"{counted(number, 'person', 'people')} invited."


def _unchanged(done: Outcome) -> str:
    """Returns the lines of a list that invited nobody, by their cause."""
    lines = (
        (done.repeated, "repeated line ignored", "repeated lines ignored"),
        (done.left - done.repeated, "person was here already", "people were here already"),
    )
    return " ".join(f"{counted(number, *words)}." for number, *words in lines if number)


def _foreseen(text: str, client: Client, *, invited: bool) -> Preview:
    verdicts, sheet = preview(text=text, client=client)
    new = sum(each.fate.is_new for each in verdicts)
    faults = sum(each.fate.is_fault for each in verdicts)
    no_seats = lacking(client, number=new)
    ready = new and not faults and not no_seats
    people = f"{new:,} {'person' if new == 1 else 'people'}{' and invite them' if invited else ''}"
    entered = {"text": text, "invited": invited}
    return Preview(
        form=SeenForm(initial=entered) if ready else FileForm(initial=entered),
        template="admin/console/import.html",
        shown={
            "verdicts": sorted(verdicts, key=lambda each: not each.fate.is_fault),
            "new": new,
            "faults": faults,
            "no_seats": no_seats,
            "left": len(verdicts) - new - faults,
            "ignored": sheet.ignored,
            "invited": invited,
        },
        button=f"Add {people}" if ready else "",
    )
