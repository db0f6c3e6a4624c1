"""Fills in the forms of emails that a process of the release before has written, and names people of one mailbox.

Of two people with one mailbox, who are from before or from such a process, the older has the form.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime
from uuid import UUID

from django.core import checks
from django.db import IntegrityError, ProgrammingError, transaction
from django.db.models import QuerySet

from accounts.models import User
from config.platform.db.checks import of_each_database
from config.platform.text.forms import email_form

PEOPLE_AT_A_TIME = 500
# Of one run, which others of its queue wait for.
MOST_BATCHES = 100
# Far more than there can be pairs of.
LOOKED_AT = 10_000


def fill_email_forms() -> int:
    """Gives people without a form that of their email; returns their number. It can be done again without harm.

    A row that is in use is left for the next run, and so is a batch while somebody of one of its mailboxes is added.
    """
    filled, last = 0, None
    for _ in range(MOST_BATCHES):
        people, number = _fill(after=last)
        if not people:
            break
        filled, last = filled + number, people[-1].pk
    return filled


def _fill(*, after: UUID | None) -> tuple[Sequence[User], int]:
    """Fills a batch in the order of the ids; returns its people, and how many of them have their form now."""
    rows = _without_form(User.objects.all())
    with transaction.atomic():
        free = rows.filter(pk__gt=after) if after else rows
        people = list(free.select_for_update(skip_locked=True, no_key=True)[:PEOPLE_AT_A_TIME])
        try:
            with transaction.atomic():
                return people, _put_forms(people)
        except IntegrityError:
            return people, 0


def _put_forms(people: Iterable[User]) -> int:
    having, given = [], []
    for form, alike in _by_form(people, among=User.objects.all()).items():
        oldest, *younger = alike
        having += [each.pk for each in younger if each.email_form is not None]
        if oldest.email_form is None:
            oldest.email_form = form
            given.append(oldest)
    User.objects.filter(pk__in=having).update(email_form=None)
    return User.objects.bulk_update(given, ["email_form"])


@of_each_database
def one_mailbox_is_one_person(alias: str) -> list[checks.CheckMessage]:
    """Warns of each person whose mailbox an older one has."""
    return [_warning(*pair) for pair in _pairs(alias)]


def _pairs(alias: str) -> list[tuple[User, User]]:
    people = User.objects.using(alias)
    try:
        with transaction.atomic(using=alias):
            found = _by_form(_without_form(people)[:LOOKED_AT], among=people)
    except ProgrammingError:
        # Before the migration there is no column, and in a new database no table.
        return []
    return [(oldest, each) for oldest, *younger in found.values() for each in younger]


def _warning(older: User, younger: User) -> checks.CheckMessage:
    return checks.Warning(
        f"Two people have one mailbox: {older.email} ({older.pk}) and {younger.email} ({younger.pk}).",
        hint="The second is only found by exactly this text. Change the email of one of them, or erase one.",
        id="accounts.W001",
    )


def _without_form(people: QuerySet[User]) -> QuerySet[User]:
    return people.filter(email_form=None, erased_at=None).order_by("pk")


def _by_form(people: Iterable[User], *, among: QuerySet[User]) -> dict[str, list[User]]:
    """These people and those who have one of their forms, by the form, the oldest first."""
    alike: defaultdict[str, list[User]] = defaultdict(list)
    for each in people:
        alike[email_form(each.email)].append(each)
    for each in among.filter(email_form__in=list(alike)):
        alike[str(each.email_form)].append(each)
    return {form: sorted(found, key=_age) for form, found in alike.items()}


def _age(person: User) -> tuple[datetime, UUID]:
    return person.created_at, person.pk


checks.register(one_mailbox_is_one_person, checks.Tags.database)
