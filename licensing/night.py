"""What is done for licences every night: first what billing says, then what has run out."""

from datetime import datetime
from importlib import import_module
from types import ModuleType

from django.conf import settings

from accounts.audit import Actor
from accounts.jobs import Job
from licensing import billing


def _stripe() -> ModuleType:
    """Where subscriptions are asked for. Loaded with its library in the night, and not by every web process."""
    return import_module("licensing.subscriptions")


def _sync(*, by: Actor, now: datetime, dry_run: bool) -> str:
    if not settings.STRIPE_API_KEY():
        return "nobody to ask, because STRIPE_API_KEY has not been set"
    asked = _stripe()
    report = billing.sync(
        subscriptions=asked.statuses_by_customer(),
        again=asked.statuses_of,
        control=asked.answers,
        by=by,
        now=now,
        dry_run=dry_run,
    )
    return str(report)


def _expire(*, by: Actor, now: datetime, dry_run: bool) -> str:
    asked = _stripe() if settings.STRIPE_API_KEY() else None
    report = billing.expire_grace(
        again=asked.statuses_of if asked else None,
        control=asked.answers if asked else None,
        by=by,
        now=now,
        dry_run=dry_run,
    )
    return str(report)


SYNC_SUBSCRIPTIONS = Job(billing.SYNC, _sync)
EXPIRE_GRACE = Job(billing.EXPIRE, _expire)
