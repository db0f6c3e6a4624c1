"""The periodic jobs of usage."""

from django.utils import timezone

from config.db.connections import database_now
from config.jobs.queue import URGENT, periodic, task
from usage import alerts
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
    """Mails the waiting usage alerts to operators, every minute."""
    alerts.tell(now=timezone.now())
