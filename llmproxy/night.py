"""The nightly job of the model proxy."""

from datetime import datetime

from accounts.audit import Actor
from accounts.jobs import Job
from llmproxy.tokens import factors


def _learn(*, by: Actor, now: datetime, dry_run: bool) -> str:
    learned = factors.learn(by=by, now=now, dry_run=dry_run)
    changed = "would change" if dry_run else "changed"
    return f"{learned.routes} routes with a factor, {learned.changed} {changed}"


LEARN_TOKEN_FACTORS = Job("learn_token_factors", _learn)
