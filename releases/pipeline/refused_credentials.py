"""What is written down of somebody who tries to publish with a credential that is none.

Anybody can send one, so it is written once an hour for each address, and no more than that often for all together: who
guesses is seen, and cannot fill the audit log. Nothing of what was presented is kept.
"""

from datetime import datetime, timedelta

from django.db import connection, transaction

from accounts.audit import Actor, record
from accounts.models import AuditEvent
from config.api.problems import Problem

ACTION = "release:credential_refused"
EVERY = timedelta(hours=1)
IN_ALL = 60


def note(refusal: Problem, *, by: Actor, now: datetime) -> None:
    """Writes ``release:credential_refused``, unless the last hour has enough of them."""
    if _is_enough(by, now):
        return
    with transaction.atomic():
        # Those that come at the same moment wait for each other here, and then find the first one's.
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT pg_advisory_xact_lock(hashtext('releases.pipeline.refused_credentials'))"
            )
        if not _is_enough(by, now):
            faults = [f"{fault.pointer} {fault.code}" for fault in refusal.errors]
            record(
                "release:credential_refused",
                by=by,
                now=now,
                after={"code": refusal.code, "errors": faults},
            )


def _is_enough(by: Actor, now: datetime) -> bool:
    recent = AuditEvent.objects.filter(action=ACTION, at__gt=now - EVERY)
    addresses = list(recent.values_list("address", flat=True)[:IN_ALL])
    return len(addresses) >= IN_ALL or by.address in addresses
