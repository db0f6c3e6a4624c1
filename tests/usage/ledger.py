"""Reserves and settles calls as the model proxy does."""

from datetime import datetime
from typing import Any
from uuid import UUID

from usage.caps import Reservation, ReservationRequest, reserve
from usage.costs import UNKNOWN, AskedRoute, Prices
from usage.limits import PlanCaps
from usage.models import UsageRecord
from usage.settlement import After, Settlement
from usage.settlement import settle as settle_record


def ask(
    *,
    plan: PlanCaps,
    now: datetime,
    provider: str = "p",
    prices: Prices = UNKNOWN,
    counted_input: int | None = None,
    **request: Any,
) -> Reservation:
    """Reserves a call's tokens at a provider."""
    asked = AskedRoute(provider, prices, counted_input)
    return reserve(request=ReservationRequest(asked=asked, **request), plan=plan, now=now)


def settle(*, record_id: UUID, now: datetime, **settled: Any) -> After | None:
    """Settles a call to the provider that its record names."""
    return settle_record(settlement(record_id=record_id, **settled), now=now)


def settlement(*, record_id: UUID, **settled: Any) -> Settlement:
    record = UsageRecord.objects.get(pk=record_id)
    prices = Prices(
        record.input_price, record.cached_input_price, record.output_price, record.cache_write_price
    )
    asked = AskedRoute(record.provider, prices, record.counted_input)
    return Settlement(record_id=record_id, asked=asked, **settled)
