"""Tiers: what a plan gives and what its people may spend. A change counts for every licence on it at once."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from django.db import IntegrityError, transaction

from accounts.audit import Actor, record
from config.api.problems import Fault, InvalidRequest
from config.console.edit_conflicts import change
from licensing.entitlements import entitlements_of
from licensing.models import Plan

NAME_TAKEN = Fault("/name", "unique", "There is a plan of this name already.")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanTerms:
    """All there is to say of a plan. Tokens; None: no cap, and for ``daily_tokens`` derived from the monthly ones."""

    name: str
    entitlements: list[str]
    monthly_input_tokens: int | None
    monthly_output_tokens: int | None
    daily_tokens: int | None

    @classmethod
    def of(cls, plan: Plan) -> "PlanTerms":
        return cls(
            name=plan.name,
            entitlements=plan.entitlements,
            monthly_input_tokens=plan.monthly_input_tokens,
            monthly_output_tokens=plan.monthly_output_tokens,
            daily_tokens=plan.daily_tokens,
        )


def add_plan(*, terms: PlanTerms, by: Actor, now: datetime) -> Plan:
    """A new tier. Raises ``InvalidRequest`` for a name that is taken, and for what can be no app."""
    with transaction.atomic():
        plan = _written(Plan(), terms)
        record("plan:added", by=by, now=now, target=plan, after=asdict(PlanTerms.of(plan)))
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
    """Other terms for everybody on this plan.

    Raises ``InvalidRequest`` without a reason, for a taken name or for what can be no app, and ``ChangedMeanwhile``
    where a term that was changed is not as it was ``shown``.
    """
    if not reason.strip():
        raise InvalidRequest(errors=[Fault("/reason", "required", "Say why.")])
    with transaction.atomic():
        plan = Plan.objects.select_for_update(no_key=True).get(pk=plan_id)
        before = asdict(PlanTerms.of(plan))
        plan = _written(plan, PlanTerms(**change(present=before, shown=shown, given=asdict(terms))))
        record(
            "plan:changed",
            by=by,
            now=now,
            target=plan,
            reason=reason,
            before=before,
            after=asdict(PlanTerms.of(plan)),
        )
    return plan


def _written(plan: Plan, terms: PlanTerms) -> Plan:
    entitlements = entitlements_of(terms.entitlements, before=plan.entitlements)
    for name, value in {**asdict(terms), "entitlements": entitlements}.items():
        setattr(plan, name, value)
    try:
        with transaction.atomic():
            plan.save()
    except IntegrityError:
        raise InvalidRequest(errors=[NAME_TAKEN]) from None
    return plan
