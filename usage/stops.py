"""Stops: an operator stops all model calls of a person, or ends one running call.

Admission checks for a stop in its statement; the watch over running calls ends those under way.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import Exists, OuterRef, Q

from accounts.audit import Actor, check_reason, reason_faults, record
from accounts.models import User
from accounts.sessions.revocation import lock_user
from config.platform.problems.problem import Fault, InvalidRequest, Problem, instant
from usage.models import Stop, UsageRecord


class ModelCallsStopped(Problem):
    code = "model_calls_stopped"
    status = 403
    title = "Model calls stopped"
    default_detail = "An operator has stopped your model calls. Please talk to your administrator."


def stop_model_calls(
    *, user_id: UUID, reason: str, ends_at: datetime | None, by: Actor, now: datetime
) -> int:
    """Refuses a person's new model calls, and ends running ones within seconds; returns the number of those.

    Until ``ends_at``; None means until an operator restarts them. A stop in force is replaced. Raises
    ``InvalidRequest`` without a reason, or for an end that has passed.
    """
    faults = reason_faults(reason)
    if ends_at is not None and ends_at <= now:
        faults.append(Fault("/ends_at", "invalid", "This date has passed."))
    if faults:
        raise InvalidRequest(errors=faults)
    with transaction.atomic():
        user = lock_user(user_id)
        before = Stop.objects.in_force(at=now).filter(user=user).first()
        Stop.objects.update_or_create(
            user=user, defaults={"stopped_at": now, "ends_at": ends_at, "reason": reason}
        )
        seen = {
            "before": _seen(before) if before else None,
            "after": _seen(Stop(user=user, ends_at=ends_at)),
        }
        record("user:model_calls_stopped", user, reason=reason, by=by, now=now, **seen)
        return UsageRecord.objects.open().filter(user=user, expires_at__gt=now).count()


def restart_model_calls(*, user_id: UUID, reason: str, by: Actor, now: datetime) -> bool:
    """Allows a person's model calls again; returns False if they were not stopped.

    Raises ``InvalidRequest`` without a reason.
    """
    check_reason(reason)
    with transaction.atomic():
        user = lock_user(user_id)
        stop = Stop.objects.in_force(at=now).filter(user=user).first()
        if stop is None:
            return False
        stop.delete()
        before = _seen(stop) | {"since": instant(stop.stopped_at)}
        record("user:model_calls_restarted", user, reason=reason, by=by, now=now, before=before)
    return True


def end_call(*, record_id: UUID, reason: str, by: Actor, now: datetime) -> bool:
    """Ends one running call within seconds; returns False if it has ended or is ending already.

    Raises ``InvalidRequest`` without a reason.
    """
    check_reason(reason)
    with transaction.atomic():
        running = UsageRecord.objects.open().filter(pk=record_id, told_to_end_at=None)
        if not running.update(told_to_end_at=now):
            return False
        call = UsageRecord.objects.select_related("user").get(pk=record_id)
        after = {"call": str(call.pk), "model": call.model}
        record("user:model_call_ended", call.user, reason=reason, by=by, now=now, after=after)
    return True


def stop_of(user: User, *, now: datetime) -> Stop | None:
    """The stop of a person's model calls, if one is in force."""
    stop: Stop | None = getattr(user, "model_calls_stop", None)
    return stop if stop and (stop.ends_at is None or stop.ends_at > now) else None


def ended_by_operators(*, record_ids: Iterable[UUID], now: datetime) -> set[UUID]:
    """The calls among these that an operator has ended, alone or with all of their person's. One query."""
    stopped = Exists(Stop.objects.in_force(at=now).filter(user_id=OuterRef("user_id")))
    calls = UsageRecord.objects.filter(pk__in=record_ids).order_by()
    ended = calls.filter(Q(told_to_end_at__isnull=False) | stopped)
    return set(ended.values_list("pk", flat=True))


def _seen(stop: Stop) -> dict[str, Any]:
    """The representation in the audit log."""
    return {"model_calls": "stopped", "until": instant(stop.ends_at) if stop.ends_at else None}
