"""Costs of calls: tokens, prices of the route asked, and abandoned attempts."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from json import dumps
from typing import Any, NamedTuple

from psycopg.types.numeric import Int8

from config.platform.problems.problem import instant

MILLION = 1_000_000
# The largest number of the database's type.
MOST = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """Tokens of one call. ``input`` includes ``cached_input``, read from a cache, and ``cache_write``, written to one;
    ``output`` includes ``reasoning``."""

    input: int = 0
    cached_input: int = 0
    cache_write: int = 0
    output: int = 0
    reasoning: int = 0


class Prices(NamedTuple):
    """A model's prices, in millionths of a dollar per million tokens; None: unknown.

    Input read from or written to a cache costs as much as other input, unless it has a price of its own.
    """

    input: int | None = None
    cached_input: int | None = None
    output: int | None = None
    cache_write: int | None = None

    def cost(self, spent: Spent) -> int | None:
        """Millionths of a dollar, rounded up so that no call is free; None without prices."""
        if self.input is None or self.output is None:
            return None
        of_cached = self.input if self.cached_input is None else self.cached_input
        of_written = self.input if self.cache_write is None else self.cache_write
        total = (
            (spent.input - spent.cached_input - spent.cache_write) * self.input
            + spent.cached_input * of_cached
            + spent.cache_write * of_written
            + spent.output * self.output
        )
        return min(-(-total // MILLION), MOST)


UNKNOWN = Prices()


class AskedRoute(NamedTuple):
    """The route of a call: provider, prices, and the prompt as counted for it."""

    provider: str
    prices: Prices = UNKNOWN
    counted_input: int | None = None

    def values(self) -> dict[str, Any]:
        """The values of a record's columns."""
        return {
            "provider": self.provider,
            "counted": int8(self.counted_input),
            "input_price": int8(self.prices.input),
            "cached_price": int8(self.prices.cached_input),
            "output_price": int8(self.prices.output),
            "write_price": int8(self.prices.cache_write),
        }


class Abandoned(NamedTuple):
    """An attempt that ended without an answer although its provider may bill it.

    ``is_reported``: the provider has said what it used; else the tokens are estimates.
    """

    provider: str
    prices: Prices
    spent: Spent
    is_reported: bool
    asked_at: datetime
    abandoned_at: datetime

    @property
    def cost(self) -> int | None:
        """The most that it may cost: without a report its prompt may have been written to a cache."""
        if self.is_reported:
            return self.prices.cost(self.spent)
        dearest = max(self.prices.input or 0, self.prices.cache_write or 0)
        return self.prices._replace(
            input=None if self.prices.input is None else dearest, cache_write=None
        ).cost(self.spent)


def as_json(abandoned: Sequence[Abandoned]) -> str | None:
    """The JSON of ``UsageRecord.abandoned``; None without any."""
    if not abandoned:
        return None
    return dumps(
        [
            {
                "provider": each.provider,
                "prices": list(each.prices),
                "input": each.spent.input,
                "output": each.spent.output,
                "cost": each.cost,
                "is_reported": each.is_reported,
                "asked_at": instant(each.asked_at),
                "abandoned_at": instant(each.abandoned_at),
            }
            for each in abandoned
        ]
    )


def int8(number: int | None) -> Int8 | None:
    """One type for all numbers: a statement is prepared once for each combination of types."""
    return None if number is None else Int8(number)
