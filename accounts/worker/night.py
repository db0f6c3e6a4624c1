"""The nightly jobs of this app."""

from datetime import datetime

from django.conf import settings

from accounts.audit import Actor
from accounts.jobs import Job
from accounts.sessions.lifetime import set_missing_ends
from accounts.worker import pruning


def _prune_audit_log(*, by: Actor, now: datetime, dry_run: bool) -> str:
    events = pruning.prune_audit_log(by=by, now=now, dry_run=dry_run)
    done = "would be removed" if dry_run else "removed"
    return f"{events} events older than {settings.AUDIT_RETENTION_DAYS} days {done}"


def _prune_refresh_tokens(*, by: Actor, now: datetime, dry_run: bool) -> str:
    bounded = set_missing_ends(now=now, dry_run=dry_run)
    sessions, tokens = pruning.prune_refresh_tokens(now=now, dry_run=dry_run)
    of_console = pruning.prune_console_sessions(now=now, dry_run=dry_run)
    done = "would be removed" if dry_run else "removed"
    endless = f"; {bounded} sessions without an end end in {settings.SESSION_DAYS} days"
    return (
        f"{sessions} sessions that ended {pruning.OVER_KEPT.days} days ago {done}, with {tokens} tokens; "
        f"{of_console} expired sessions of the console {done}"
        f"{endless if bounded else ''}"
    )


PRUNE_AUDIT_LOG = Job("prune_audit_log", _prune_audit_log, "Remove old audit events")
PRUNE_REFRESH_TOKENS = Job("prune_refresh_tokens", _prune_refresh_tokens, "Remove ended sessions")
