"""The periodic jobs of usage."""

from django.utils import timezone

from config.db.connections import database_now
from config.jobs.queue import URGENT, periodic, task
from usage import alerts, budgets
from usage.settlement import settle_abandoned


@periodic(cron="* * * * *")
@task(
    name="usage.settle_abandoned",
    queue="usage",
    queueing_lock="usage.settle_abandoned",
    priority=URGENT,
    pass_context=False,
)
def settle_abandoned_calls(timestamp: int) -> None:
    """Settles the calls of dead processes, every minute."""
    settle_abandoned(now=database_now())


@periodic(cron="* * * * *")
@task(name="usage.tell", queue="usage", queueing_lock="usage.tell", pass_context=False)
def tell(timestamp: int) -> None:
    """Looks for abandoned calls and mails the waiting usage alerts to operators, every minute."""
    now = timezone.now()
    alerts.notice_abandoned(now=now)
    alerts.mail_waiting(now=now)


@periodic(cron="* * * * *")
@task(
    name="usage.watch_budgets",
    queue="usage",
    queueing_lock="usage.watch_budgets",
    priority=URGENT,
    pass_context=False,
)
def watch_budgets(timestamp: int) -> None:
    """Sums what budgeted clients have spent, every minute."""
    budgets.watch(now=database_now())
