"""The nightly jobs for licences: first the billing status, then expired graces."""

from datetime import datetime
from importlib import import_module
from types import ModuleType

from django.conf import settings

from accounts.audit import Actor
from accounts.jobs import Job
from licensing import billing


def _stripe() -> ModuleType:
    """The module of Stripe's subscriptions, loaded when a job runs: web processes do not need its large library."""
    return import_module("licensing.subscriptions")


def _sync(*, by: Actor, now: datetime, dry_run: bool) -> str:
    if not settings.STRIPE_API_KEY():
        return "nothing to synchronise, because STRIPE_API_KEY is not set"
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
