"""Audits refused credentials of publishing.

Anybody can send one, so each address is audited once an hour, and all together 60 times: guessing is seen and cannot
fill the audit log. Nothing of the credential is kept.
"""

from datetime import datetime, timedelta

from django.db import transaction

from accounts.audit import Actor, record
from accounts.models import AuditEvent
from config.platform.db.advisory_locks import lock_until_commit
from config.platform.problems.problem import Problem

ACTION = "release:credential_refused"
EVERY = timedelta(hours=1)
IN_ALL = 60


def note(refusal: Problem, *, by: Actor, now: datetime) -> None:
    """Records ``release:credential_refused``, unless the last hour has enough of them."""
    if _is_enough(by, now):
        return
    with transaction.atomic():
        # Refusals at the same moment wait here and then find the first one's event.
        lock_until_commit("releases.refused_credentials")
        if not _is_enough(by, now):
            faults = [f"{fault.pointer} {fault.code}" for fault in refusal.errors]
            after = {"code": refusal.code, "errors": faults}
            record("release:credential_refused", by=by, now=now, after=after)


def _is_enough(by: Actor, now: datetime) -> bool:
    recent = AuditEvent.objects.filter(action=ACTION, at__gt=now - EVERY)
    addresses = list(recent.values_list("address", flat=True)[:IN_ALL])
    return len(addresses) >= IN_ALL or by.address in addresses
