"""The nightly jobs of usage."""

from datetime import datetime

from accounts.audit import Actor
from accounts.jobs import Job
from usage import alerts, refusal_log


def _check(*, by: Actor, now: datetime, dry_run: bool) -> str:
    checked = alerts.check(now=now, dry_run=dry_run)
    percentile = "-" if checked.percentile is None else f"{checked.percentile:.0f} %"
    looked = f"{checked.people} people, 95th percentile {percentile}"
    return looked if dry_run else f"{looked}, {checked.noticed} noticed, {checked.mailed} emailed"


def _prune(*, by: Actor, now: datetime, dry_run: bool) -> str:
    removed = refusal_log.prune(now=now, dry_run=dry_run)
    return f"{removed} refusals {'would be removed' if dry_run else 'removed'}"


CHECK_USAGE_ALERTS = Job("check_usage_alerts", _check, "Check shares of caps")
PRUNE_REFUSALS = Job("prune_refusals", _prune, "Remove old refusals")
