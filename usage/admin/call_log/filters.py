"""Filters of calls: whose, by which model and provider, how they ended, and how long and dear they were."""

from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from decimal import Decimal
from string import hexdigits
from typing import Any, cast
from uuid import UUID

from django.db.models import DateTimeField, ExpressionWrapper, Q, QuerySet, Value
from django.db.models.functions import Coalesce
from django.utils import timezone
from django.utils.functional import cached_property

from accounts.models import Client, User
from config.console.base import uuid_in
from config.console.lists.typed import NONE, ChosenFilter, TypedFilter, Unknown, number_of
from config.platform.money import DOLLAR
from config.platform.problems.problem import titles
from usage.admin.call_log.ends import ENDS
from usage.admin.call_log.period import bounds_of
from usage.admin.money.groups import groups, names
from usage.models import UsageRecord
from usage.spending.daily import ERRORS

MOST_FOUND = 20
ANY_ERROR, ANY = "error", "any"


class ClientFilter(TypedFilter):
    """The calls of the client with this name or id; a part of a name finds several."""

    title, names = "client", ("client", "client_id", "client_id__exact")
    column = "client_id"
    hint = "All"
    is_first = leads = True

    @property
    def shown(self) -> str:
        """Returns the name of an id, where no other client has it."""
        identity = uuid_in(self.given)
        if identity is None:
            return self.given
        named = Client.objects.filter(pk=identity).values("name")
        found = Client.objects.filter(name__in=named).values_list("name", flat=True)[:2]
        return found[0] if len(found) == 1 else self.given

    def proposals(self) -> Sequence[str]:
        return offered(self.request)["client"]

    @property
    def is_one(self) -> bool:
        with suppress(Unknown):
            return len(self.ids) == 1
        return True

    @cached_property
    def ids(self) -> list[UUID]:
        """Returns the clients that are meant. Raises ``Unknown``."""
        if identity := uuid_in(self.given):
            return [identity]
        found = clients_named(self.given)
        if not found:
            raise Unknown(f"No client’s name contains “{self.given}”.")
        return found

    def filtered(self, rows: QuerySet[Any], value: str) -> QuerySet[Any]:
        return rows.filter(client_id__in=self.ids)


class PersonFilter(TypedFilter):
    """The calls of the person with this email or id; a part of an email finds several."""

    title, names = "person", ("person", "user", "user_id", "user__id__exact")
    column = "user_id"
    hint = "Email"
    finds_few = True

    @property
    def shown(self) -> str:
        identity = uuid_in(self.given)
        emails = User.objects.filter(pk=identity) if identity else User.objects.none()
        return emails.values_list("email", flat=True).first() or self.given

    @cached_property
    def ids(self) -> list[UUID]:
        """Returns the people who are meant. Raises ``Unknown``."""
        if identity := uuid_in(self.given):
            return [identity]
        exactly = User.objects.by_email(self.given).values_list("pk", flat=True)[:1]
        some = User.objects.filter(email__icontains=self.given).order_by("email")
        found = list(exactly) or list(some.values_list("pk", flat=True)[:MOST_FOUND])
        if not found:
            raise Unknown(f"Nobody’s email contains “{self.given}”.")
        return found

    def filtered(self, rows: QuerySet[Any], value: str) -> QuerySet[Any]:
        return bounds_of(self.request).by_month(rows.filter(user_id__in=self.ids))


class NamedFilter(ChosenFilter):
    """The calls of a model or provider; one that is no longer offered is still in the ledger."""

    is_first = True

    def options(self) -> Sequence[tuple[str, str]]:
        return [("", "All"), *((each, each) for each in offered(self.request)[self.names[0]])]


class ModelFilter(NamedFilter):
    title, names = "model", ("model", "model__exact")
    leads = True

    def filtered(self, rows: QuerySet[Any], value: str) -> QuerySet[Any]:
        return rows.filter(model=value)


class ProviderFilter(NamedFilter):
    title, names = "provider", ("provider", "provider__exact")

    def filtered(self, rows: QuerySet[Any], value: str) -> QuerySet[Any]:
        return rows.filter(provider=value)


class FailedFilter(NamedFilter):
    """The calls with an attempt that failed at this provider, or at any, whoever answered them."""

    title, names = "failed at", ("failed",)
    is_first = False

    def options(self) -> Sequence[tuple[str, str]]:
        names = ((each, each) for each in offered(self.request)["provider"])
        return [("", "All"), (ANY, "Any provider"), *names]

    def filtered(self, rows: QuerySet[Any], value: str) -> QuerySet[Any]:
        if value == ANY:
            return rows.filter(failures__attempts__0__isnull=False)
        return rows.filter(failures__contains={"attempts": [{"provider": value}]})


class StateFilter(ChosenFilter):
    """Running calls, or those with one end, or with one of those that are errors."""

    title, names = "state", ("is", "end", "end__exact", "state", "state__exact")
    is_first = True

    def options(self) -> Sequence[tuple[str, str]]:
        ends = [(str(end), chip.word) for end, chip in ENDS.items()]
        return [("", "All"), ("open", "Running"), (ANY_ERROR, "Any error"), *ends]

    @property
    def leads(self) -> bool:
        return self.given not in {UsageRecord.End.DONE, UsageRecord.State.SETTLED}

    def filtered(self, rows: QuerySet[Any], value: str) -> QuerySet[Any]:
        if value in UsageRecord.State.values:
            return rows.filter(state=value)
        if value == ANY_ERROR:
            return rows.filter(end__in=ERRORS)
        if value not in UsageRecord.End.values:
            raise Unknown(f"“{value}” is no state of a call.")
        return rows.filter(end=value)


class ErrorFilter(TypedFilter):
    """Calls that ended with the error of this code, which their callers got too."""

    title, names = "error", ("error", "error_code")
    hint = "Code"
    leads, is_whole = True, False

    def proposals(self) -> Sequence[str]:
        return sorted(titles())

    def filtered(self, rows: QuerySet[Any], value: str) -> QuerySet[Any]:
        return self.leading(rows).filter(error_code=None if value == NONE else value)

    def leading(self, rows: QuerySet[Any]) -> QuerySet[Any]:
        """The calls whose callers received a problem: an index covers their ends, and they are few."""
        return rows.filter(end__in=(*ERRORS, UsageRecord.End.STOPPED))


class LabelFilter(TypedFilter):
    """Filters by a caller's own labels: their ``user``, or a pair of their ``metadata``."""

    title, names = "label", ("label",)
    hint = "user or name=value"

    def filtered(self, rows: QuerySet[Any], value: str) -> QuerySet[Any]:
        if value == NONE:
            return rows.filter(labels__isnull=True)
        labelled = Q(labels__contains={"user": value})
        name, is_pair, of_it = value.partition("=")
        if is_pair:
            labelled |= Q(labels__contains={"metadata": {name.strip(): of_it.strip()}})
        return rows.filter(labelled)


class KeyFilter(TypedFilter):
    """The calls of a personal key: its id, how that begins, or its name."""

    title, names = "key", ("key", "key_id", "key_id__exact")
    hint = "Name or id"

    @property
    def finds_few(self) -> bool:
        return self.given != NONE

    def filtered(self, rows: QuerySet[Any], value: str) -> QuerySet[Any]:
        if value == NONE:
            return rows.filter(key_id__isnull=True)
        keys = self._keys(value)
        return bounds_of(self.request).by_month(rows.filter(key_id__in=keys))

    @staticmethod
    def _keys(value: str) -> list[UUID]:
        if identity := uuid_in(value):
            return [identity]
        group = groups.get("key")
        named = Q(name__iexact=value)
        beginning = value.rstrip("…").replace("-", "")
        if len(beginning) >= 8 and all(each in hexdigits for each in beginning):
            named |= Q(pk__range=[UUID(beginning[:32].ljust(32, end)) for end in "0f"])
        found = group.model.objects.filter(named).values_list("pk", flat=True) if group else []
        keys = list(found[:MOST_FOUND])
        if not keys:
            raise Unknown(f"No personal key is named “{value}”.")
        return keys


class SlowerFilter(TypedFilter):
    """Calls that took longer than so many seconds; running ones until now."""

    title, names = "slower than", ("slower",)
    hint = "seconds"

    def filtered(self, rows: QuerySet[Any], value: str) -> QuerySet[Any]:
        least = timedelta(seconds=float(number_of(value, example="30", unit="s")))
        ended = Coalesce("settled_at", Value(timezone.now()))
        before = ExpressionWrapper(ended - Value(least), output_field=DateTimeField())
        return rows.filter(opened_at__lt=before)


class DearerFilter(TypedFilter):
    """Calls that cost more than so many dollars."""

    title, names = "dearer than", ("dearer",)
    hint = "dollars"

    def filtered(self, rows: QuerySet[Any], value: str) -> QuerySet[Any]:
        least: Decimal = number_of(value, example="0.50", unit="$") * DOLLAR
        return rows.filter(cost__gt=least)


def offered(request: Any) -> dict[str, list[str]]:
    """Returns the names of clients, models and providers, asked for once for a page."""
    if not hasattr(request, "offered"):
        request.offered = names("client", "model", "provider")
    return cast("dict[str, list[str]]", request.offered)


def clients_named(typed: str) -> list[UUID]:
    """Returns the clients with this name, or else the first whose names contain it."""
    exactly = Client.objects.filter(name__iexact=typed).values_list("pk", flat=True)[:MOST_FOUND]
    parts = Client.objects.filter(name__icontains=typed).values_list("pk", flat=True)[:MOST_FOUND]
    return list(exactly) or list(parts)
