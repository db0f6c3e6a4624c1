"""Rules for licences. Every change has a reason, and its audit event contains the effective status before and after."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, TypedDict, Unpack, cast
from uuid import UUID

from django.db import transaction
from django.db.models import Exists, OuterRef

from accounts.audit import Actor, check_reason, reason_faults, record
from accounts.models import AuditEvent, Client
from accounts.people.clients import new_name
from config.platform.problems.constraints import refused_as
from config.platform.problems.edit_conflicts import change
from config.platform.problems.problem import Fault, InvalidRequest, instant
from licensing.entitlements import entitlements_of
from licensing.models import Licence, Plan, Standing

CUSTOMER_TAKEN = Fault(
    "/stripe_customer_id", "unique", "This customer already pays for another client's licence."
)
NO_DECISION = Fault("/status", "unchanged", "The billing status already applies.")


class LicenceTerms(TypedDict, total=False):
    """The terms of a licence, which are columns of its row. One that is absent is unchanged."""

    plan: Plan
    entitlements: list[str]
    seats: int | None
    devices: int | None
    devices_full: str


def terms_of(licence: Licence) -> LicenceTerms:
    """All terms of a licence."""
    return cast(
        "LicenceTerms", {name: getattr(licence, name) for name in LicenceTerms.__annotations__}
    )


def licensed(client: str) -> Exists:
    """Returns the condition that the client in this column has a licence."""
    return Exists(Licence.objects.filter(client=OuterRef(client)))


def seats_of(client_id: UUID) -> int | None:
    """Returns the number of people of a client that may be enabled; None for any number."""
    return Licence.objects.filter(client=client_id).values_list("seats", flat=True).first()


def create_client(*, name: str, plan: Plan, by: Actor, now: datetime) -> Client:
    """Creates a client together with its licence. Raises ``InvalidRequest`` for a name that cannot be."""
    with transaction.atomic():
        client = Client.objects.create(name=new_name(name), created_at=now)
        Licence.objects.create(client=client, plan=plan, changed_at=now)
        record("client:created", client, by=by, now=now, after={"plan": plan.name})
    return client


def set_operator_status(
    *,
    licence_id: int,
    status: Standing | None,
    reason: str,
    by: Actor,
    now: datetime,
    grace_until: datetime | None = None,
    ends_at: datetime | None = None,
) -> Licence:
    """Sets an operator's status until ``ends_at`` or for good; None removes it, so that the billing status applies.

    Raises ``InvalidRequest`` without a reason, for a grace without an end in the future, and for None without an
    operator's status.
    """
    faults = reason_faults(reason)
    if status == Standing.GRACE and (grace_until is None or grace_until <= now):
        faults.append(
            Fault("/grace_until", "invalid", "A grace period needs an end in the future.")
        )
    if ends_at is not None and ends_at <= now:
        faults.append(Fault("/ends_at", "invalid", "This date has passed."))
    if faults:
        raise InvalidRequest(errors=faults)
    with transaction.atomic():
        licence = _locked(licence_id)
        if status is None and licence.operator_status is None:
            raise InvalidRequest(errors=[NO_DECISION])
        before = _audited_decision(licence)
        licence.operator_status = status
        licence.operator_grace_until = grace_until if status == Standing.GRACE else None
        licence.operator_reason = reason if status else ""
        licence.operator_until = ends_at if status else None
        _save_decision(licence, before, reason=reason, by=by, now=now)
    return licence


def expire_operator_decisions(*, by: Actor, now: datetime) -> int:
    """Removes expired operators' statuses, so that the billing status applies again; returns their number."""
    over = Licence.objects.filter(operator_until__lte=now).values_list("pk", flat=True)
    return sum(_expire_decision(licence_id, by=by, now=now) for licence_id in over)


def end_operator_grace(*, licence_id: int, reason: str, by: Actor, now: datetime) -> bool:
    """Turns an operator's expired grace into an operator's suspension.

    Returns False if an operator has changed the status meanwhile.
    """
    with transaction.atomic():
        licence = _locked(licence_id)
        if not licence.operator_grace_has_run_out(at=now):
            return False
        before = _audited_decision(licence)
        licence.operator_status, licence.operator_grace_until = Standing.SUSPENDED, None
        _save_decision(licence, before, reason=reason, by=by, now=now)
    return True


def set_billing_status(
    *,
    known: Licence,
    status: Standing,
    grace_until: datetime | None,
    reason: str,
    by: Actor,
    now: datetime,
) -> bool:
    """Sets the billing status of a licence and leaves an operator's status alone; returns whether it changed.

    ``known`` is the licence at the time of the decision: if the billing status or the customer has changed since,
    nothing is changed, and the next run decides again.
    """
    with transaction.atomic():
        licence = _locked(known.pk)
        present = _billing_state(licence)
        if present != _billing_state(known) or present[:2] == (status, grace_until):
            return False
        before = _audited_billing(licence)
        licence.billing_status, licence.billing_grace_until = status, grace_until
        licence.changed_at = now
        licence.save()
        licence.refresh_from_db()
        client, after = licence.client, _audited_billing(licence)
        record(
            "licence:billing_set", client, by=by, now=now, reason=reason, before=before, after=after
        )
    return True


def billing_reason(licence: Licence) -> str:
    """The reason of a billing status that is not active, as the audit log has it; "" for none."""
    if licence.billing_status == Standing.ACTIVE:
        return ""
    events = AuditEvent.objects.filter(
        action="licence:billing_set", target_id=str(licence.client_id)
    )
    return events.values_list("reason", flat=True).first() or ""


def set_customer(
    *, licence_id: int, customer_id: str, reason: str, by: Actor, now: datetime
) -> Licence:
    """Sets the payment processor's customer who pays for a licence, or "" for none.

    Raises ``InvalidRequest`` for a customer who pays for another licence.
    """
    check_reason(reason)
    with transaction.atomic():
        licence = _locked(licence_id)
        before = {"stripe_customer_id": licence.stripe_customer_id}
        licence.stripe_customer_id = customer_id
        with refused_as(CUSTOMER_TAKEN):
            licence.save(update_fields=["stripe_customer_id"])
        client, after = licence.client, {"stripe_customer_id": customer_id}
        record(
            "licence:customer_set",
            client,
            by=by,
            now=now,
            reason=reason,
            before=before,
            after=after,
        )
    return licence


def set_terms(
    *,
    licence_id: int,
    shown: Mapping[str, Any] | None = None,
    reason: str,
    by: Actor,
    now: datetime,
    **terms: Unpack[LicenceTerms],
) -> Licence:
    """Changes the terms of a licence that are given.

    Raises ``InvalidRequest`` without a reason or for an invalid slug, and ``ChangedMeanwhile`` if a changed value is
    not as it was ``shown``.
    """
    check_reason(reason)
    if "entitlements" in terms:
        terms["entitlements"] = sorted(set(terms["entitlements"]))
    with transaction.atomic():
        licence = _locked(licence_id)
        present = terms_of(licence)
        changed = change(present=present, shown=shown, given=terms)
        changed["entitlements"] = entitlements_of(
            changed["entitlements"], before=licence.entitlements
        )
        for name, value in changed.items():
            setattr(licence, name, value)
        licence.changed_at = now
        licence.save()
        record(
            "licence:terms_set",
            licence.client,
            by=by,
            now=now,
            reason=reason,
            before=_audited_terms(present),
            after=_audited_terms(changed),
        )
    return licence


def _expire_decision(licence_id: int, *, by: Actor, now: datetime) -> bool:
    with transaction.atomic():
        licence = _locked(licence_id)
        if not licence.operator_decision_has_expired(at=now):
            return False
        before = _audited_decision(licence)
        licence.operator_status = licence.operator_grace_until = licence.operator_until = None
        licence.operator_reason = ""
        _save_decision(licence, before, reason="The operator's decision expired.", by=by, now=now)
    return True


def _save_decision(
    licence: Licence, before: dict[str, Any], *, reason: str, by: Actor, now: datetime
) -> None:
    """Saves and audits a change of the operator's status."""
    licence.changed_at = now
    licence.save()
    licence.refresh_from_db()
    record(
        "licence:operator_set" if licence.operator_status else "licence:operator_cleared",
        licence.client,
        by=by,
        now=now,
        reason=reason,
        before=before,
        after=_audited_decision(licence),
    )


def _billing_state(licence: Licence) -> tuple[str, datetime | None, str]:
    """The billing status, the end of its grace period, and the customer."""
    return licence.billing_status, licence.billing_grace_until, licence.stripe_customer_id


def _locked(licence_id: int) -> Licence:
    licences = Licence.objects.select_related("client", "plan")
    return licences.select_for_update(no_key=True, of=("self",)).get(pk=licence_id)


def _audited_decision(licence: Licence) -> dict[str, Any]:
    """The effective and the operator's status, for the audit log."""
    audited: dict[str, Any] = {"status": licence.status, "operator_status": licence.operator_status}
    if licence.grace_until:
        audited["grace_until"] = instant(licence.grace_until)
    if licence.operator_until:
        audited["operator_until"] = instant(licence.operator_until)
    return audited


def _audited_billing(licence: Licence) -> dict[str, Any]:
    """The effective and the billing status, for the audit log."""
    audited = {"status": licence.status, "billing_status": licence.billing_status}
    if licence.billing_grace_until:
        audited["billing_grace_until"] = instant(licence.billing_grace_until)
    return audited


def _audited_terms(terms: Mapping[str, Any]) -> dict[str, Any]:
    """Terms in the audit log, where a plan has its name."""
    return {name: value.name if isinstance(value, Plan) else value for name, value in terms.items()}
