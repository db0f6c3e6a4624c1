"""The nightly jobs for licences: first the billing status, then expired graces."""

from datetime import datetime
from importlib import import_module
from types import ModuleType

from django.conf import settings

from accounts.audit import Actor
from accounts.jobs import Job
from licensing import billing
from licensing.customer_queries import CustomerQueries


def _stripe() -> ModuleType:
    """The module of Stripe's subscriptions, loaded when a job runs: web processes do not need its large library."""
    return import_module("licensing.subscriptions")


def _queries() -> CustomerQueries | None:
    if not settings.STRIPE_API_KEY():
        return None
    return CustomerQueries(_stripe().statuses_of, _stripe().answers)


def _sync(*, by: Actor, now: datetime, dry_run: bool) -> str:
    queries = _queries()
    if queries is None:
        return "nothing to synchronise, because STRIPE_API_KEY is not set"
    listed = _stripe().statuses_by_customer()
    report = billing.sync(subscriptions=listed, queries=queries, by=by, now=now, dry_run=dry_run)
    return str(report)


def _expire(*, by: Actor, now: datetime, dry_run: bool) -> str:
    return str(billing.expire_grace(queries=_queries(), by=by, now=now, dry_run=dry_run))


SYNC_SUBSCRIPTIONS = Job(billing.SYNC, _sync, "Read licences from Stripe")
EXPIRE_GRACE = Job(billing.EXPIRE, _expire, "Suspend clients whose grace period is over")
