"""The periodic jobs of usage."""

from django.utils import timezone

from config.platform.db.connections import database_now
from config.platform.jobs.queue import URGENT, periodic
from usage import alerts, refusal_log
from usage.latency import hours
from usage.settlement import settle_abandoned
from usage.spending import budgets, daily, spend_limits


@periodic(
    "* * * * *",
    name="usage.settle_abandoned",
    title="Settle the calls of dead processes",
    queue="usage",
    priority=URGENT,
)
def settle_abandoned_calls(timestamp: int) -> None:
    """Settles the calls of dead processes, every minute."""
    settle_abandoned(now=database_now())


@periodic("* * * * *", name="usage.tell", title="Email usage alerts", queue="usage")
def tell(timestamp: int) -> None:
    """Looks for abandoned calls and mails the waiting usage alerts to operators, every minute."""
    now = timezone.now()
    alerts.notice_unusual(now=now)
    alerts.mail_waiting(now=now)


@periodic(
    "* * * * *",
    name="usage.watch_budgets",
    title="Sum what budgeted clients have spent",
    queue="usage",
    priority=URGENT,
)
def watch_budgets(timestamp: int) -> None:
    """Sums what budgeted clients have spent, every minute."""
    budgets.watch(now=database_now())


@periodic(
    "* * * * *",
    name="usage.count_days",
    title="Count daily usage",
    queue="usage",
    priority=URGENT,
)
def count_days(timestamp: int) -> None:
    """Counts the ledger into daily usage, and this towards spending limits, every minute."""
    try:
        daily.count_days(now=database_now())
    finally:
        spend_limits.watch(now=database_now())


@periodic("* * * * *", name="usage.count_latency", title="Count latency and errors", queue="usage")
def count_latency(timestamp: int) -> None:
    """Counts the latency and errors of the latest hours, every minute."""
    hours.count_hours(now=database_now())


@periodic("41 * * * *", name="usage.prune_refusals", title="Remove old refusals", queue="usage")
def prune_refusals(timestamp: int) -> None:
    """Keeps to the bound of refusals, every hour: within a day shells that are refused each minute go far beyond it."""
    refusal_log.prune(now=database_now())
