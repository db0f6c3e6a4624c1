"""What is done for licences every night: first what billing says, then what has run out."""

from datetime import datetime

from django.conf import settings

from accounts.audit import Actor
from accounts.jobs import Job
from licensing import billing
from licensing.subscriptions import statuses_by_customer


def _sync(*, by: Actor, now: datetime, dry_run: bool) -> str:
    if not settings.STRIPE_API_KEY():
        return "nobody to ask, because STRIPE_API_KEY has not been set"
    subscriptions = statuses_by_customer()
    return str(billing.sync(subscriptions=subscriptions, by=by, now=now, dry_run=dry_run))


def _expire(*, by: Actor, now: datetime, dry_run: bool) -> str:
    return str(billing.expire_grace(by=by, now=now, dry_run=dry_run))


SYNC_SUBSCRIPTIONS = Job(billing.SYNC, _sync)
EXPIRE_GRACE = Job(billing.EXPIRE, _expire)
