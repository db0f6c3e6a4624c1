"""The worker's tasks for licences."""

from contextlib import suppress

from accounts.audit import Actor
from config.platform.db.connections import database_now
from config.platform.jobs.queue import periodic
from licensing.billing import end_operator_graces
from licensing.licences import expire_operator_decisions
from licensing.suspension_guard import SuspensionsHeld


@periodic(
    "* * * * *",
    name="licensing.end_words",
    title="End expired decisions and grace periods",
    queue="licensing",
)
def expire_decisions(timestamp: int) -> None:
    """Every minute: ends operators' statuses and graces whose time is over."""
    now, by = database_now(), Actor(name="the worker, every minute")
    expire_operator_decisions(by=by, now=now)
    with suppress(SuspensionsHeld):
        # An operator confirms it, who was mailed.
        end_operator_graces(by=by, now=now)
