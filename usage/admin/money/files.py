"""Files of usage: daily usage with the filters of its page, and clients' statements."""

from collections.abc import Iterator, Mapping
from datetime import date
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, StreamingHttpResponse
from django.shortcuts import get_object_or_404
from django.utils import timezone

from accounts.admin.exports import FORMATS, file_response, noted
from accounts.audit import record
from accounts.models import Client
from accounts.people.operators import actor_of
from config.console.base import uuid_in
from config.console.tables import Chip, Column, Link, Row, Table
from config.console.template_tags import dollars
from config.platform.exports import lines, pages
from config.platform.money import decimal
from config.platform.periods import last_months
from usage.admin.money.choosing import Chosen, first_day
from usage.models import DailyUsage, UsageRecord
from usage.models.totals import DAILY_SUMS
from usage.spending.statements import NAMES, Line, Statement, parts, values
from usage.spending.sums import Scope

EXPORT = "usage.usagerecord_export"
MONTHS_SHOWN = 13
EXPORTED = ("day", "client_id", "client", "user_id", "person", "model", "provider", *DAILY_SUMS)


def statements_of(chosen: Chosen, *, may_export: bool) -> Table:
    """Returns the months of one client, or of all."""
    client = chosen.scope.client_id
    since = last_months(chosen.now.day, MONTHS_SHOWN)[-1]
    months = Scope(client_id=client).by_month(since, chosen.now.day)
    whose = {"client_id": client} if client else {}
    running = UsageRecord.objects.open().filter(**whose)
    unsettled = {chosen.now.month, *running.order_by().values_list("period", flat=True)}
    rows = []
    for month, sums in sorted(months.items(), reverse=True):
        is_running = month in unsettled
        query = urlencode({"client": client or "all", "month": f"{month:%Y-%m}"})
        files = [Link(each.upper(), f"statement.{each}?{query}") for each in FORMATS if may_export]
        chip = Chip("running", "Running") if is_running else Chip("well", "Final")
        rows.append(Row([f"{month:%B %Y}", chip, sums.calls, dollars(sums.cost), files]))
    columns = [Column("Month"), Column("State", "chip")]
    columns += [Column("Calls", "number"), Column("Money", "number"), Column("", "acts")]
    return Table(columns, rows, "No calls yet.")


def export(request: HttpRequest, ending: str) -> StreamingHttpResponse:
    """Downloads daily usage with the filters of the page, except by key, which daily usage does not have."""
    _check(request, ending)
    chosen = Chosen.of(request)
    if chosen.scope.key_id:
        raise Http404
    _note(request, ending)
    rows = chosen.scope.daily(chosen.since, chosen.until).select_related("user")
    clients = dict(Client.objects.values_list("pk", "name"))
    found = ([_row(each, clients) for each in page] for page in pages(rows, time="day"))
    content = lines(EXPORTED, found, ending=ending)
    return file_response(content, name="daily-usage", ending=ending, now=chosen.seen.at)


def _row(row: DailyUsage, clients: Mapping[UUID, str]) -> dict[str, Any]:
    return {
        "day": str(row.day),
        "client_id": str(row.client_id),
        "client": clients.get(row.client_id, ""),
        "user_id": str(row.user_id),
        "person": row.user.email or "",
        "model": row.model,
        "provider": row.provider,
        **{name: getattr(row, name) for name in DAILY_SUMS},
        "cost": str(decimal(row.cost)),
    }


def statement(request: HttpRequest, ending: str) -> StreamingHttpResponse:
    """Downloads the statement of a month: a client's, or a line for each client."""
    _check(request, ending)
    whose = request.GET.get("client")
    month = first_day(request.GET.get("month", ""), len("2026-11"))
    client = None if whose == "all" else get_object_or_404(Client, pk=uuid_in(whose))
    if month is None:
        raise Http404
    _note(request, ending)
    made = Statement(client_id=client.pk, month=month) if client else None
    of_all = [*parts(made), ("total", [made.total()])] if made else [("client", _totals(month))]
    rows = [{"of": of, "name": line.name, **values(line)} for of, found in of_all for line in found]
    name = f"statement-{month:%Y-%m}-{client.pk if client else 'all'}"
    content = lines(["of", "name", *NAMES], [rows], ending=ending)
    return file_response(content, name=name, ending=ending, now=timezone.now())


def _totals(month: date) -> Iterator[Line]:
    """Returns each client's totals of a month, by the client's name."""
    settled = UsageRecord.objects.filter(period=month, state=UsageRecord.State.SETTLED)
    for client in Client.objects.filter(pk__in=settled.values("client_id")).order_by("name"):
        yield Statement(client_id=client.pk, month=month).total()._replace(name=client.name)


def _check(request: HttpRequest, ending: str) -> None:
    """Refuses roles that may not export, and unknown formats."""
    if not request.user.has_perm(EXPORT):
        raise PermissionDenied
    if ending not in FORMATS:
        raise Http404


def _note(request: HttpRequest, ending: str) -> None:
    """Writes the event of an export."""
    after = noted(request)
    record("usage:exported", ending, by=actor_of(request), now=timezone.now(), after=after)
