"""The nightly jobs of the model proxy."""

from datetime import datetime

from accounts.audit import Actor
from accounts.jobs import Job
from accounts.worker.pruning import OVER_KEPT
from llmproxy.catalogue import factors
from llmproxy.keys.personal_keys import prune_keys


def _learn(*, by: Actor, now: datetime, dry_run: bool) -> str:
    learned = factors.learn(by=by, now=now, dry_run=dry_run)
    changed = "would change" if dry_run else "changed"
    return f"{learned.routes} routes with a factor, {learned.changed} {changed}"


def _prune_keys(*, by: Actor, now: datetime, dry_run: bool) -> str:
    keys = prune_keys(now=now, dry_run=dry_run)
    done = "would be removed" if dry_run else "removed"
    return f"{keys} personal keys that ended {OVER_KEPT.days} days ago {done}"


LEARN_TOKEN_FACTORS = Job("learn_token_factors", _learn, "Learn token factors")
PRUNE_PERSONAL_KEYS = Job("prune_personal_keys", _prune_keys, "Remove ended personal keys")
