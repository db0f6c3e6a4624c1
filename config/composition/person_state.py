"""The state of a person in one word: computed by the database, so that lists, filters and search agree.

A person who may sign in may still be unable to work: their client's licence or an operator's stop prevents it.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from django.contrib.auth.hashers import UNUSABLE_PASSWORD_PREFIX as NO_PASSWORD
from django.db.models import Case, CharField, Exists, OuterRef, Q, QuerySet, Subquery, Value, When
from django.http import HttpRequest
from django.utils import timezone

from accounts.models import PasswordLink, Session
from accounts.people.password_links import LIFETIMES
from config.console.lists.columns import ChoiceFilter
from config.console.tables import Chip
from licensing.models import Licence, Standing
from usage.models import Stop

# The chip of each state, in the order in which the first that applies is told.
CHIPS: Final[Mapping[str, Chip]] = {
    "erased": Chip("over", "Erased"),
    "disabled": Chip("stopped", "Disabled"),
    "never": Chip("over", "Not invited"),
    "over": Chip("over", "Invitation expired"),
    "waiting": Chip("over", "Invited"),
    "alone": Chip("stopped", "No client"),
    "unlicensed": Chip("stopped", "No licence"),
    "suspended": Chip("stopped", "Client suspended"),
    "stopped": Chip("stopped", "Calls stopped"),
    "unseen": Chip("over", "Never signed in"),
    "revoked": Chip("watch", "Sessions revoked"),
    "yes": Chip("well", "Active"),
}


def with_state(people: QuerySet[Any], *, now: datetime) -> QuerySet[Any]:
    """The people with ``state``, one of ``CHIPS``, and ``last_seen``, when a session of theirs was last used."""
    theirs = Session.objects.filter(user=OuterRef("pk"))
    last_begun = theirs.order_by("-started_at", "pk").values("ended_by")[:1]
    cases = [When(condition, then=Value(state)) for state, condition in _conditions(now).items()]
    last_used = theirs.order_by("-last_used_at", "pk").values("last_used_at")[:1]
    found: QuerySet[Any] = people.alias(last_ended_by=Subquery(last_begun)).annotate(
        state=Case(*cases, default=Value("yes"), output_field=CharField()),
        last_seen=Subquery(last_used),
    )
    return found


def _conditions(now: datetime) -> dict[str, Q]:
    """The condition of each state but the last, which needs none; the first that applies is a person's."""
    theirs = Session.objects.filter(user=OuterRef("pk"))
    has_none = Q(password__startswith=NO_PASSWORD)
    return {
        "erased": Q(erased_at__isnull=False),
        "disabled": Q(is_active=False),
        "never": has_none & Q(invited_at=None),
        "over": has_none & Q(invited_at__lte=now - LIFETIMES[PasswordLink.Kind.INVITATION]),
        "waiting": has_none,
        "alone": Q(is_staff=False, client=None),
        "unlicensed": Q(is_staff=False, client__licence=None),
        "suspended": Q(client__licence__status=Standing.SUSPENDED),
        "stopped": Q(Exists(Stop.objects.in_force(at=now).filter(user=OuterRef("pk")))),
        "unseen": Q(last_login=None) & ~Q(Exists(theirs)),
        "revoked": Q(Exists(theirs.filter(ended_by=Session.Ended.REVOKED)))
        & Q(last_ended_by=Session.Ended.REVOKED),
    }


def chip_of(person: Any) -> Chip:
    """The chip of a person of :func:`with_state`."""
    return CHIPS[person.state]


class StateFilter(ChoiceFilter):
    """Filters people by their state; erased people are listed only by the choice *erased*."""

    # As it was called when it told of joining alone: links that operators keep have it.
    title, parameter_name = "status", "joined"
    choices_of = tuple((state, chip.word) for state, chip in reversed([*CHIPS.items()]))

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        if self.value() != "erased":
            queryset = queryset.filter(erased_at=None)
        return super().queryset(request, queryset)

    def filtered(self, rows: QuerySet[Any], value: str) -> QuerySet[Any]:
        """Compares no computed state: PostgreSQL would take it for a rare one, and compute and sort all people's."""
        now = timezone.now()
        found = rows.filter(_few(value, now=now))
        for state, condition in _conditions(now).items():
            if state == value:
                return found.filter(condition)
            found = found.filter(~condition)
        return found


def _few(state: str, *, now: datetime) -> Q:
    """A condition on a state of few people, by which an index finds them before their states are computed."""
    suspended = Licence.objects.filter(status=Standing.SUSPENDED).values("client")
    revoked = Session.objects.filter(ended_by=Session.Ended.REVOKED).values("user")
    return {
        "suspended": Q(client__in=suspended),
        "stopped": Q(pk__in=Stop.objects.in_force(at=now).values("user")),
        "revoked": Q(pk__in=revoked),
    }.get(state, Q())
