"""Rules for plans. A change applies to every licence on the plan at once."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from datetime import datetime
from typing import Any

from django.db import transaction

from accounts.audit import Actor, check_reason, record
from config.platform.db.advisory_locks import lock_until_commit
from config.platform.problems.constraints import refused_as
from config.platform.problems.edit_conflicts import change
from config.platform.problems.problem import Fault
from licensing.entitlements import entitlements_of
from licensing.models import Plan

NAME_TAKEN = Fault("/name", "unique", "A plan with this name already exists.")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanTerms:
    """The terms of a plan. A cap of None is no cap; ``daily_tokens`` of None is derived from the monthly caps."""

    name: str
    entitlements: list[str]
    monthly_input_tokens: int | None
    monthly_output_tokens: int | None
    daily_tokens: int | None
    allows_keys: bool = False
    cached_input_percent: int = 100
    is_default: bool = False

    @classmethod
    def of(cls, plan: Plan) -> "PlanTerms":
        return cls(**{each.name: getattr(plan, each.name) for each in fields(cls)})


def add_plan(*, terms: PlanTerms, by: Actor, now: datetime) -> Plan:
    """Adds a plan. Raises ``InvalidRequest`` for a taken name or an invalid slug."""
    with transaction.atomic():
        plan = _written(Plan(), terms, by=by, now=now)
        record("plan:added", plan, by=by, now=now, after=asdict(PlanTerms.of(plan)))
    return plan


def change_plan(
    *,
    plan_id: int,
    terms: PlanTerms,
    shown: Mapping[str, Any] | None = None,
    reason: str,
    by: Actor,
    now: datetime,
) -> Plan:
    """Changes the terms of a plan.

    Raises ``InvalidRequest`` without a reason, for a taken name or an invalid slug, and ``ChangedMeanwhile`` if a
    changed term is not as it was ``shown``.
    """
    check_reason(reason)
    with transaction.atomic():
        plan = Plan.objects.select_for_update(no_key=True).get(pk=plan_id)
        before = asdict(PlanTerms.of(plan))
        terms = PlanTerms(**change(present=before, shown=shown, given=asdict(terms)))
        plan = _written(plan, terms, by=by, now=now)
        after = asdict(PlanTerms.of(plan))
        record("plan:changed", plan, by=by, now=now, reason=reason, before=before, after=after)
    return plan


def _written(plan: Plan, terms: PlanTerms, *, by: Actor, now: datetime) -> Plan:
    if terms.is_default and not plan.is_default:
        _end_default(by=by, now=now)
    entitlements = entitlements_of(terms.entitlements, before=plan.entitlements)
    for name, value in {**asdict(terms), "entitlements": entitlements}.items():
        setattr(plan, name, value)
    with refused_as(NAME_TAKEN):
        plan.save()
    return plan


def _end_default(*, by: Actor, now: datetime) -> None:
    """Makes way for another plan of new clients. Of two at once the later waits and ends the earlier."""
    lock_until_commit("the plan of new clients")
    for plan in Plan.objects.filter(is_default=True):
        Plan.objects.filter(pk=plan.pk).update(is_default=False)
        before, after = {"is_default": True}, {"is_default": False}
        record("plan:changed", plan, by=by, now=now, before=before, after=after)
