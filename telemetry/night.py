"""Nightly jobs of telemetry."""

from datetime import datetime

from accounts.audit import Actor
from accounts.jobs import Job
from config.platform.problems.problem import instant
from telemetry import pruning
from telemetry.volumes import count_days


def _prune_telemetry(*, by: Actor, now: datetime, dry_run: bool) -> str:
    done = pruning.prune(now=now, dry_run=dry_run)
    what = "would be removed" if dry_run else "removed"
    return f"{done.events} events {what}, kept from {instant(done.kept_from)}"


def _count_telemetry(*, by: Actor, now: datetime, dry_run: bool) -> str:
    done = count_days(now=now, dry_run=dry_run)
    what = "would be counted" if dry_run else "counted"
    return f"{done.events} events of {done.days} days {what}"


COUNT_TELEMETRY = Job("count_telemetry", _count_telemetry, "Count telemetry by version")
PRUNE_TELEMETRY = Job("prune_telemetry", _prune_telemetry, "Remove old telemetry")
