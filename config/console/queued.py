"""Questions about queued work, for the front page and for the watch."""

from datetime import datetime

from django.db.models import Q
from procrastinate.contrib.django.models import ProcrastinateJob


def waiting(*, since: datetime) -> int:
    """How many jobs should have begun before ``since`` and have not."""
    # What was queued to be done at once has no time of its own.
    at_once = Q(scheduled_at=None, procrastinateevent__at__lt=since)
    late = ProcrastinateJob.objects.filter(at_once | Q(scheduled_at__lt=since), status="todo")
    return late.distinct().count()


def failed() -> int:
    """How many have failed for good."""
    return ProcrastinateJob.objects.filter(status="failed").count()
