"""Budgets: a client's monthly limit in money, which an operator sets and the worker watches.

Every minute the worker sums each budgeted client's settled calls of the month, and mails operators at 80 % and at the
end. Admission compares the two numbers of the row: a raised budget lets calls pass at once, and a new month by itself.
"""

from collections import Counter
from datetime import date, datetime
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import QuerySet, Sum

from accounts.audit import Actor, reason_faults, record
from accounts.models import Client
from config.platform.money import DOLLAR, in_dollars
from config.platform.periods import Period
from config.platform.problems.problem import Fault, InvalidRequest
from usage import mails
from usage.models import Budget, UsageRecord
from usage.settlement import SHARE_PERCENT
from usage.spending.statements import abandoned_attempts

# More than anybody spends, and small enough that sums fit the database's type.
MOST = 10**9 * DOLLAR


def set_budget(
    *, client_id: UUID, monthly: int | None, reason: str, by: Actor, now: datetime
) -> Budget | None:
    """Sets a client's monthly budget in millionths of a dollar; None removes it.

    Raises ``InvalidRequest`` without a reason, or for a number that is no budget.
    """
    faults = reason_faults(reason)
    if monthly is not None and not 0 < monthly <= MOST:
        faults.append(Fault("/monthly", "invalid", f"Above $0, up to {in_dollars(MOST)}."))
    if faults:
        raise InvalidRequest(errors=faults)
    with transaction.atomic():
        client = Client.objects.select_for_update(no_key=True).get(pk=client_id)
        budget = Budget.objects.select_for_update().filter(client=client).first()
        before = _seen(budget)
        if monthly is not None:
            budget = budget or Budget(client=client)
            budget.monthly = monthly
            _forget_notices(budget)
            budget.save()
        elif budget:
            budget.delete()
            budget = None
        after = _seen(budget)
        record(
            "client:budget_set", client, by=by, now=now, reason=reason, before=before, after=after
        )
    return budget


def watch(*, now: datetime) -> int:
    """Sums what budgeted clients have spent this month, and mails operators about it; returns the number of budgets.

    A call counts once it is settled, in the month of its admission.
    """
    month = Period.of(now).month
    with transaction.atomic():
        budgets = list(
            Budget.objects.select_for_update(of=("self",))
            .select_related("client")
            .order_by("client_id")
        )
        # Under the lock, so that no other worker writes an older sum after this one.
        sums = _spent(month, clients=[each.client_id for each in budgets])
        for budget in budgets:
            _update(budget, sums[budget.client_id], month=month, now=now)
        Budget.objects.bulk_update(
            budgets, ["period", "spent", "summed_at", "warned_at", "exceeded_at"]
        )
    return len(budgets)


def warned(*, month: date) -> QuerySet[Budget]:
    """The budgets of which 80 % or more is spent in this month."""
    budgets = Budget.objects.filter(period=month, warned_at__isnull=False)
    return budgets.select_related("client").order_by("client__name")


def standing(budget: Budget) -> str:
    """Describes the spending of a budget in a sentence for operators."""
    if budget.exceeded_at:
        return f"{budget.client} has spent this month's budget: its model calls are refused."
    return f"{budget.client} has spent {percent_of(budget)} % of this month's budget."


def percent_of(budget: Budget) -> int:
    return 100 * budget.spent // budget.monthly


def _spent(month: date, *, clients: list[UUID]) -> dict[UUID, int]:
    """Returns the spending of each client in a month, including abandoned attempts."""
    # From the index ``usage_by_client_and_month`` alone.
    records = UsageRecord.objects.filter(client_id__in=clients, period=month).order_by()
    sums = Counter(dict.fromkeys(clients, 0))
    for client, spent in records.values_list("client_id").annotate(Sum("cost")):
        sums[client] += spent or 0
    for call, attempt in abandoned_attempts(records):
        sums[call.client_id] += attempt.cost or 0
    return dict(sums)


def _update(budget: Budget, spent: int, *, month: date, now: datetime) -> None:
    """Writes a sum into a budget, with the mail about it. A lowered charge makes it smaller."""
    if budget.period is not None and budget.period > month:
        # Another worker is ahead of the turn of the month.
        return
    if budget.period != month:
        budget.period, budget.spent = month, 0
        budget.warned_at = budget.exceeded_at = None
    budget.spent, budget.summed_at = spent, now
    _forget_notices(budget)
    is_exceeded = budget.spent >= budget.monthly
    is_new = budget.exceeded_at is None if is_exceeded else budget.warned_at is None
    if is_new and percent_of(budget) >= SHARE_PERCENT:
        budget.warned_at = budget.warned_at or now
        budget.exceeded_at = now if is_exceeded else None
        mails.budget(budget, percent=percent_of(budget))


def _forget_notices(budget: Budget) -> None:
    """Lets operators hear of a changed budget again where less than before is spent of it."""
    if budget.spent < budget.monthly:
        budget.exceeded_at = None
    if percent_of(budget) < SHARE_PERCENT:
        budget.warned_at = None


def _seen(budget: Budget | None) -> dict[str, Any] | None:
    """The representation in the audit log."""
    return {"monthly": in_dollars(budget.monthly)} if budget else None
