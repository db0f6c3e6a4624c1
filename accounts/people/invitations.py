"""Invitations: adds new people to a client and mails them a link to set a password."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple
from uuid import UUID

from django.contrib.auth.hashers import UNUSABLE_PASSWORD_PREFIX
from django.db import transaction
from django.db.models import Q
from procrastinate.contrib.django import app
from procrastinate.types import JSONValue

from accounts.audit import Actor, record_each
from accounts.models import Client, PasswordLink, User
from accounts.people.emails import is_email
from accounts.people.users import create_users
from accounts.seats import within_seats
from config.platform.problems.problem import Fault, InvalidRequest
from config.platform.text.forms import email_form

MOST_PEOPLE = 1000
EMAIL_LENGTH = 254
# People without a password who may set one.
NOT_ACCEPTED = Q(
    is_active=True,
    erased_at=None,
    password__startswith=UNUSABLE_PASSWORD_PREFIX,
    client__isnull=False,
)


class Fate(StrEnum):
    """The verdicts on a named person, as the console shows them."""

    NEW = "will be added"
    WAITING = "is here, without a password yet"
    HERE = "is here"
    DISABLED = "is here, disabled"
    TWICE = "was named before"
    ELSEWHERE = "belongs to another client"
    OPERATOR = "is an operator without a client"
    FAULTY = "is not an email address"
    MISSING = "has no email"
    TOO_LONG = "is too long for an email address"

    @property
    def is_new(self) -> bool:
        return self is Fate.NEW

    @property
    def is_fault(self) -> bool:
        """Returns whether this verdict refuses the whole list."""
        return self in {Fate.ELSEWHERE, Fate.OPERATOR, Fate.FAULTY, Fate.MISSING, Fate.TOO_LONG}


class Named(NamedTuple):
    """An email of a list, and its line, from 1."""

    line: int
    email: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The verdict on one email; ``user_id`` is set for an existing person."""

    line: int
    email: str
    fate: Fate
    user_id: UUID | None = None

    def __str__(self) -> str:
        return f"{self.email[:80]} {self.fate}".strip()


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The numbers of people added and invited, and of lines that changed nothing, those repeated among them."""

    added: int
    invited: int
    left: int
    repeated: int


def emails_in(text: str) -> list[Named]:
    """The emails in a text, separated by lines, commas, semicolons or spaces, or in angle brackets after a name."""
    found = []
    for number, line in enumerate(text.splitlines(), start=1):
        for part in re.split(r"[,;]", line):
            bracketed = re.findall(r"<([^<>]*)>", part)
            found += [Named(number, each) for each in bracketed or part.split()]
    return found


def judge(named: Iterable[Named], *, client: Client) -> list[Verdict]:
    """The verdict on each email, in order; changes nothing."""
    given = [Named(line, email.strip().lower()) for line, email in named]
    known = _known({email for _, email in given if len(email) <= EMAIL_LENGTH})
    seen: set[str] = set()
    verdicts = []
    for line, email in given:
        form = email_form(email)
        user = known.get(email) or known.get(form)
        fate = Fate.TWICE if email and form in seen else _fate(email, user, client)
        seen.add(form)
        verdicts.append(
            Verdict(line=line, email=email, fate=fate, user_id=user.pk if user else None)
        )
    return verdicts


def _known(emails: set[str]) -> dict[str, User]:
    """The people of these emails, by their own text and by their form."""
    forms = {email_form(each) for each in emails}
    found = list(User.objects.filter(Q(email__in=emails) | Q(email_form__in=forms)))
    by_form = {user.email_form: user for user in found if user.email_form is not None}
    return by_form | {user.email: user for user in found}


def _fate(email: str, user: User | None, client: Client) -> Fate:
    if user is None:
        return _form_of(email)
    if user.client_id != client.pk:
        return Fate.ELSEWHERE if user.client_id else Fate.OPERATOR
    if not user.is_active:
        return Fate.DISABLED
    return Fate.HERE if user.has_usable_password() else Fate.WAITING


def _form_of(email: str) -> Fate:
    if not email:
        return Fate.MISSING
    if len(email) > EMAIL_LENGTH:
        return Fate.TOO_LONG
    return Fate.NEW if is_email(email) else Fate.FAULTY


def invite(*, named: Sequence[Named], client: Client, by: Actor, now: datetime) -> Outcome:
    """Adds new people to a client, and mails all named people without a password a link to set one.

    Invites all or nobody: raises ``InvalidRequest`` with a fault for each who cannot be invited, and
    ``SeatsExhausted``.
    """
    with within_seats(client, by=by, now=now):
        verdicts = checked(named, client=client, field="emails")
        added = add_new(verdicts, client=client, by=by, now=now)
        waiting = [each.user_id for each in verdicts if each.fate == Fate.WAITING and each.user_id]
        invited = invite_again(user_ids=[*added, *waiting], by=by, now=now)
    left, repeated = len(verdicts) - invited, repeats(verdicts)
    return Outcome(added=len(added), invited=invited, left=left, repeated=repeated)


def repeats(verdicts: Sequence[Verdict]) -> int:
    """The number of lines that name somebody whom an earlier one named."""
    return sum(each.fate is Fate.TWICE for each in verdicts)


def invite_again(*, user_ids: Sequence[UUID], by: Actor, now: datetime) -> int:
    """Mails people without a password a new link, which voids the previous one; returns the number of mails."""
    with transaction.atomic():
        waiting = User.objects.filter(NOT_ACCEPTED, pk__in=user_ids).order_by("pk")
        named = list(
            waiting.select_for_update(no_key=True, of=("self",)).values_list("email", "pk")
        )
        ids = [user_id for _, user_id in named]
        User.objects.filter(pk__in=ids).update(invited_at=now)
        kind = PasswordLink.Kind.INVITATION.value
        record_each("user:password_link_requested", by=by, now=now, of=named, after={"kind": kind})
        if ids:
            job = app.configure_task("accounts.send_password_link", queue="mail")
            wanted: list[dict[str, JSONValue]] = [
                {"user_id": str(user_id), "kind": kind} for user_id in ids
            ]
            job.batch_defer(*wanted)
    return len(ids)


def checked(named: Sequence[Named], *, client: Client, field: str) -> list[Verdict]:
    """The verdict on each email. Call it within the client's seats, so that nobody else adds people to it meanwhile.

    Raises ``InvalidRequest`` for an empty list, for too many emails, and with a fault for each faulty one.
    """
    check_number(named, field=field)
    verdicts = judge(named, client=client)
    faults = [
        Fault(f"/{field}/{each.line}", each.fate.name.lower(), f"Line {each.line}: {each}.")
        for each in verdicts
        if each.fate.is_fault
    ]
    if faults:
        raise InvalidRequest(errors=faults)
    return verdicts


def check_number(named: Sequence[Named], *, field: str) -> None:
    """Raises ``InvalidRequest`` for an empty list and for too many emails."""
    if not named:
        raise InvalidRequest(errors=[Fault(f"/{field}", "required", "It contains no email.")])
    if len(named) > MOST_PEOPLE:
        sentence = f"At most {MOST_PEOPLE:,} people at once; this list has {len(named):,}."
        raise InvalidRequest(errors=[Fault(f"/{field}", "too_many", sentence)])


def add_new(verdicts: Sequence[Verdict], *, client: Client, by: Actor, now: datetime) -> list[UUID]:
    """Adds the new people without an invitation; returns their ids."""
    emails = [each.email for each in verdicts if each.fate.is_new]
    return [user.pk for user in create_users(emails=emails, client=client, by=by, now=now)]
