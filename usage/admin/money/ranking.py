"""A ranking by cost of clients, people, models, providers, keys or labels."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from django.utils.html import format_html

from config.console.tables import Column, Link, Row, Table
from config.console.template_tags import bar, counted, dollars, share, short
from usage.admin.money.choosing import Chosen
from usage.admin.money.groups import names_of
from usage.models import Budget
from usage.spending.sums import FOUR_WEEKS, Course, Sums, forecast, total

SHOWN, MOST_SHOWN = 10, 100
SUMMED = ("Calls", "Unfinished", "Tokens in", "Out", "Cost")
# Groups that are summed from the ledger, without the calls that have no key or label.
LEDGERS = {"key", "label"}


def ranking_of(chosen: Chosen, here: Course) -> Table:
    """Returns the top rows of a group with their sums, for the filters of ``here``."""
    by, scope, whole = chosen.by, chosen.scope, here.whole
    if by == "label" and not (scope.client_id or scope.user_id or scope.key_id):
        return Table([], [], "Choose a client, a person or a key: labels are read from its calls.")
    most = MOST_SHOWN if chosen.given.get("all") else SHOWN
    ranked = scope.ranking(by, chosen.since, chosen.until, most=most + 1)
    is_more, ranked = len(ranked) > most, ranked[:most]
    names = names_of(by, [key for key, _ in ranked])
    columns = list(_columns(chosen, list(names), here))
    rows = []
    for key, sums in ranked:
        href = (
            chosen.address(**{by: key, "by": _next_group(by), "all": ""}) if by != "label" else ""
        )
        cells = [
            *cells_of(sums),
            part_of(sums, whole),
            *(cell(key, sums) for _, cell, _ in columns),
        ]
        rows.append(Row([names[key], *cells], href=href))
    ends = [""] * len(columns)
    if is_more:
        shown = total(sums for _, sums in ranked)
        others = Sums(*(of_all - part for of_all, part in zip(whole, shown, strict=True)))
        rows.append(Row(["All others", *cells_of(others), part_of(others, whole), *ends]))
    if rows and by not in LEDGERS:
        ends = [cell for _, _, cell in columns]
        rows.append(Row(["All", *cells_of(whole), "100 %", *ends], mark="total"))
    heads = [*SUMMED, "Share", *(head for head, _, _ in columns)]
    everything = Link("Show more", chosen.address(all="1")) if is_more and most == SHOWN else None
    return Table(numbered(by.capitalize(), heads), rows, "No calls yet.", everything)


def _columns(
    chosen: Chosen, keys: list[Any], here: Course
) -> Iterator[tuple[str, Callable[[Any, Sums], str], str]]:
    """Returns the columns of a current month: heading, cell, and the cell of the total."""
    if not chosen.is_now or chosen.by in LEDGERS or not keys:
        return
    if chosen.by == "client":
        budgets = dict(Budget.objects.filter(client__in=keys).values_list("client", "monthly"))
        yield (
            "Of budget",
            lambda key, sums: share(sums.cost, budgets[key]) if key in budgets else "none",
            "",
        )
    if len(keys) <= SHOWN:
        today = chosen.now.day
        costs = chosen.scope.costs_of(chosen.by, keys, today - FOUR_WEEKS, today)
        expected = {key: sum(forecast(days, chosen.now).values()) for key, days in costs.items()}
        yield "Forecast", lambda key, sums: dollars(sums.cost + expected[key]), dollars(here.end)


def _next_group(by: str) -> str:
    """Returns the group that a row of this one leads to."""
    return {"client": "person", "person": "model"}.get(by, "client")


def part_of(sums: Sums, whole: Sums) -> str:
    """Returns a share of all costs as a bar and a number."""
    percent = f"{100 * sums.cost / whole.cost if whole.cost else 0:.1f}"
    return bar(float(percent), percent)


def numbered(first: str, numbers: Iterable[str]) -> list[Column]:
    return [Column(first), *(Column(label, "number") for label in numbers)]


def cells_of(sums: Sums) -> list[Any]:
    unfinished = format_html(
        '<span title="{}, {} disconnected">{}</span>',
        counted(sums.errors, "error"),
        f"{sums.disconnected:,}",
        f"{sums.errors + sums.disconnected:,}",
    )
    return [sums.calls, unfinished, short(sums.input), short(sums.output), dollars(sums.cost)]
