"""What the worker does for usage."""

from django.utils import timezone

from config.queue import URGENT, periodic, task
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
    """Every minute: closes what died with its worker."""
    settle_abandoned(now=timezone.now())
