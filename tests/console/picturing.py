"""Invented clients with a month of usage, for the README's pictures of the console."""

from collections import defaultdict
from collections.abc import Iterator
from datetime import date, datetime, timedelta
from typing import Any

from django.db import connection

from accounts.audit import Actor
from accounts.models import Client, Session, User
from config.platform.periods import Period
from licensing.licences import create_client, set_operator_status
from licensing.models import Plan, Standing
from llmproxy.models import LanguageModel, Provider, Route
from usage.models import Budget, DailyUsage, MonthlyUsage, UsageRecord
from usage.models.totals import DAILY_SUMS, DayTotal, MonthTotal

# A client, how many thousand dollars it spends in a month, its budget in dollars, and its people.
CLIENTS = (
    ("Brightwater Hotels", 2.2, 4000, ("paul.okafor", "b.nwosu", "h.oyelaran")),
    ("Kestrel Insurance", 1.5, 1200, ("marta.kowal", "greta.holm")),
    ("Ostfeld Pharma", 0.9, 1200, ("dieter.voss",)),
    ("Tamar Energy", 0.73, None, ("sofia.lindgren",)),
    ("Calder & Wren", 0.43, 600, ("c.wren",)),
    ("Meridian Freight", 0.31, 500, ("tom.berg", "ines.duarte")),
    ("Lumen Optics", 0.2, 150, ("yuki.arai",)),
    ("Acme GmbH", 0.09, 250, ("ada.roth",)),
)
MODELS = (
    ("claude-sonnet-4", "anthropic", 5),
    ("gpt-4.1", "openai", 3),
    ("mistral-small", "own", 2),
)
DAYS = 58
DAY, HOUR = timedelta(days=1), timedelta(hours=1)


def fill(*, plan: Plan, by: Actor, now: datetime) -> None:
    with connection.cursor() as cursor:
        # A worker that has just reported.
        cursor.execute("INSERT INTO procrastinate_workers (last_heartbeat) VALUES (now())")
    for name, provider, _ in MODELS:
        model = LanguageModel.objects.create(name=name, provider_name=name)
        at, _ = Provider.objects.get_or_create(
            name=provider, defaults={"base_url": f"https://{provider}.example/v1"}
        )
        prices = {"input_price": 3_000_000, "output_price": 15_000_000}
        Route.objects.create(model=model, provider=at, provider_name=name, **prices)
    rows: list[DailyUsage] = []
    for name, thousands, budget, people in CLIENTS:
        client = create_client(name=name, plan=plan, by=by, now=now)
        users = [
            User.objects.create(email=f"{person}@{name.split()[0].lower()}.example", client=client)
            for person in people
        ]
        made = list(_days(client, users, thousands, now=now))
        rows += made
        if budget:
            _budget(client, budget, made, now=now)
        for user in users:
            _use(user, client, now=now)
    DailyUsage.objects.bulk_create(rows)
    _sum(rows, DayTotal, lambda row: {"day": row.day, "model": row.model, "provider": row.provider})
    _sum(
        rows,
        MonthTotal,
        lambda row: {
            "month": row.day.replace(day=1),
            "client_id": row.client_id,
            "user_id": row.user_id,
        },
    )
    set_operator_status(
        licence_id=Client.objects.get(name="Acme GmbH").licence.pk,
        status=Standing.GRACE,
        grace_until=now + 5 * DAY,
        reason="The invoice of October is late.",
        by=by,
        now=now,
    )


def _days(
    client: Client, users: list[User], thousands: float, *, now: datetime
) -> Iterator[DailyUsage]:
    """Each day of each person and model: much on working days, little at the weekend, a little less today."""
    for back in range(DAYS):
        day = Period.of(now - back * DAY).day
        busy = (0.25 if day.weekday() > 4 else 1.1) * (0.85 + (day.toordinal() * 7 % 11) / 35)
        for user in users:
            for model, provider, part in MODELS:
                cost = int(
                    thousands * 1e9 / 30 * busy * (0.6 if back == 0 else 1) * part / 10 / len(users)
                )
                calls = max(1, cost // 90_000)
                yield DailyUsage(
                    day=day, client_id=client.pk, user=user, model=model, provider=provider, cost=cost,
                    calls=calls, errors=calls // 180, disconnected=calls // 400,
                    input_tokens=cost // 4, cached_input_tokens=cost // 9, output_tokens=cost // 30,
                )  # fmt: skip


def _budget(client: Client, dollars: int, rows: list[DailyUsage], *, now: datetime) -> None:
    month, monthly = Period.of(now).month, dollars * 1_000_000
    spent = sum(row.cost for row in rows if row.day >= month)
    Budget.objects.create(
        client=client, monthly=monthly, period=month, spent=spent, summed_at=now,
        warned_at=now if spent > monthly * 0.8 else None, exceeded_at=now if spent > monthly else None,
    )  # fmt: skip


def _use(user: User, client: Client, *, now: datetime) -> None:
    """The calls of the last day, and a sign-in."""
    Session.objects.create(user=user, started_at=now - 3 * HOUR, last_used_at=now)
    for hour in range(24):
        at = now - hour * HOUR
        period = Period.of(at)
        MonthlyUsage.objects.get_or_create(
            user=user, period=period.month, defaults={"day": period.day}
        )
        number = 2 + (hour * 5 + len(user.email)) % 9
        UsageRecord.objects.bulk_create(
            UsageRecord(
                user=user, client_id=client.pk, period=period.month, day=period.day, model="gpt-4.1",
                provider="openai", streamed=True, reserved_input=1, reserved_output=1, opened_at=at,
                expires_at=at + HOUR, state="settled", settled_at=at, source="provider",
                end="provider_failed" if (hour, each) == (4, 1) else "done",
                input_tokens=4000, output_tokens=300, input_price=3_000_000, output_price=15_000_000, cost=16_500,
            )
            for each in range(number)
        )  # fmt: skip


def _sum(rows: list[DailyUsage], kind: Any, key: Any) -> None:
    sums: dict[tuple[date | str, ...], dict[str, Any]] = defaultdict(
        lambda: dict.fromkeys(DAILY_SUMS, 0)
    )
    named: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in rows:
        own = key(row)
        named[tuple(own.values())] = own
        for name in DAILY_SUMS:
            sums[tuple(own.values())][name] += getattr(row, name)
    kind.objects.bulk_create(kind(**named[each], **numbers) for each, numbers in sums.items())
