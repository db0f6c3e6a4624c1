"""The list of calls, which looks through so many of them at once, however many there are.

An index gives the calls of a period, a client or a model in their order, and finds those of a person, a key or an
error. What else they are, such as slow, is looked for among the newest of these; the page leads to those before.
"""

from datetime import date, datetime, timedelta
from typing import Any, NamedTuple

from django.db import connection
from django.db.models import QuerySet, prefetch_related_objects
from django.http import HttpRequest
from django.utils import timezone

from accounts.models import Client
from config.console import base
from config.console.list_filters import RestrictedChangeList
from config.console.lists.typed import TypedFilter
from config.platform.db.connections import plan_for_values
from config.platform.periods import Period
from usage.admin.call_log.filters import ClientFilter, ModelFilter, PersonFilter, ProviderFilter
from usage.admin.call_log.period import (
    DAY_NAMES,
    SINCE,
    UNTIL,
    ExactPeriodFilter,
    PeriodFilter,
    bounds_of,
)
from usage.models import UsageRecord
from usage.spending.sums import Scope, total

LOOKED_AT = 50_000
PERIODS = (PeriodFilter, ExactPeriodFilter)
# The filters that daily usage knows as well.
SUMMED = (*PERIODS, ClientFilter, PersonFilter, ModelFilter, ProviderFilter)


class Spent(NamedTuple):
    """The cost of whole days, in millionths of a dollar."""

    cost: int
    first: date
    last: date


class CallList(RestrictedChangeList):
    # The period in words, the time of the first call that was looked at, and the address of the calls before it.
    period = before = ""
    looked_at = 0
    looked_back_to: datetime | None = None

    def get_filters(self, request: HttpRequest) -> Any:
        found = super().get_filters(request)
        specs = [each for each in found[0] if isinstance(each, TypedFilter)]
        self.chosen = [each for each in specs if each.given]
        self.period = next(each.words for each in specs if isinstance(each, PeriodFilter))
        # The period that every list has is none that somebody has chosen.
        is_active = any(not isinstance(each, PeriodFilter) for each in self.chosen)
        return (*found[:-1], is_active or bool(found[2]))

    def get_results(self, request: HttpRequest) -> None:
        running = UsageRecord.objects.open().filter(expires_at__gt=timezone.now())
        with connection.execute_wrapper(plan_for_values):
            oldest, self.running = self._oldest(request), running.count()
        if oldest:
            self.queryset = self.queryset.filter(opened_at__gte=oldest)
        super().get_results(request)
        # Not joined: for a page of calls PostgreSQL may read everybody.
        prefetch_related_objects(self.result_list, "user__client")
        self._name_clients()
        # A full list says itself that there are more.
        if oldest and self.result_count < base.COUNTED_ROWS:
            since = bounds_of(request).since
            period = {SINCE: since and since.isoformat(), UNTIL: oldest.isoformat()}
            self.looked_at, self.looked_back_to = LOOKED_AT, oldest
            self.before = self.get_query_string({**dict.fromkeys(DAY_NAMES), **period})

    def _name_clients(self) -> None:
        """Adds to each call the name of its client, of which most are the people's own."""
        theirs = [each.user.client for each in self.result_list]
        names = {client.pk: client.name for client in theirs if client}
        others = {each.client_id for each in self.result_list} - names.keys()
        if others:
            left = Client.objects.filter(pk__in=others)
            names.update(left.values_list("pk", "name"))
        for each in self.result_list:
            each.client_name = names.get(each.client_id) or str(each.client_id)[:8]

    def _oldest(self, request: HttpRequest) -> datetime | None:
        """The time of the last call to look at; None where an index leads to all that is listed."""
        periods = [each for each in self.chosen if isinstance(each, PERIODS)]
        others = [each for each in self.chosen if each not in periods]
        if self.query or any(each.finds_few for each in others):
            return None
        leading = [each for each in others if each.leads][:1]
        if leading == others and all(each.is_whole for each in leading):
            return None
        leading = [each for each in leading if each.is_one]
        rows: QuerySet[Any] = UsageRecord.objects.order_by("-opened_at")
        for each in (*periods, *leading):
            rows = each.leading(rows)
        return next(iter(rows.values_list("opened_at", flat=True)[LOOKED_AT : LOOKED_AT + 1]), None)


def spent(calls: CallList, request: HttpRequest) -> Spent | None:
    """Returns the cost of one client or person in the days of a list; None for any other list."""
    whose = [each for each in calls.chosen if isinstance(each, (ClientFilter, PersonFilter))]
    since, until = bounds_of(request)
    is_summed = all(isinstance(each, SUMMED) for each in calls.chosen)
    if calls.query or not whose or since is None or not is_summed:
        return None
    if any(each.problem or len(each.ids) != 1 for each in whose):
        return None
    chosen: dict[str, Any] = {each.column: each.ids[0] for each in whose}
    for each in calls.chosen:
        if isinstance(each, (ModelFilter, ProviderFilter)):
            chosen[each.names[0]] = each.given
    if until is not None and until <= since:
        return None
    # The last instant of the period.
    end = (until or timezone.now()) - timedelta(microseconds=1)
    first, last = Period.of(since).day, Period.of(end).day
    cost = total(Scope(**chosen).by_day(first, last).values()).cost
    return Spent(cost, first, last)
