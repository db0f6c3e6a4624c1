"""The caller of a request holds what its rows hold, each field by its name."""

from dataclasses import asdict
from datetime import UTC, datetime

import pytest

from accounts.models import Session, User
from accounts.sessions.sign_in import TokenPair
from licensing.callers import load_caller, load_signed_out
from licensing.models import Licence, Plan

pytestmark = pytest.mark.django_db
GRACE = datetime(2030, 1, 31, tzinfo=UTC)


@pytest.fixture
def told(user: User) -> dict[str, object]:
    """The fields of the caller but those of its session, from rows whose values all differ."""
    Plan.objects.update(
        entitlements=["notes"],
        monthly_input_tokens=1_001,
        monthly_output_tokens=1_002,
        daily_tokens=1_003,
        cached_input_percent=14,
    )
    Licence.objects.update(
        entitlements=["mail"],
        billing_status="grace",
        billing_grace_until=GRACE,
        seats=21,
        devices=22,
        minimum_version="1.2.0",
    )
    User.objects.update(epoch=3)
    plan, client = Plan.objects.get(), user.client
    assert client is not None
    return {
        "user_id": user.pk,
        "email": user.email,
        "epoch": 3,
        "is_active": True,
        "client_id": client.pk,
        "client_name": client.name,
        "status": "grace",
        "grace_until": GRACE,
        "plan_id": plan.pk,
        "plan": plan.name,
        "plan_entitlements": ["notes"],
        "own_entitlements": ["mail"],
        "monthly_input_tokens": 1_001,
        "monthly_output_tokens": 1_002,
        "daily_tokens": 1_003,
        "cached_input_percent": 14,
        "seats": 21,
        "devices": 22,
        "notice": '{"minimum_version": "1.2.0"}',
        "catalogue_version": plan.catalogue_version,
        "key": None,
    }


def test_a_caller_has_the_fields_of_its_rows(
    told: dict[str, object], user: User, pair: TokenPair
) -> None:
    session = Session.objects.get()
    caller = load_caller(user_id=user.pk, session_id=session.pk)
    assert caller is not None
    assert asdict(caller) == told | {"session_id": session.pk, "session_lasts": True}


def test_somebody_signed_out_has_them_without_a_session(
    told: dict[str, object], user: User
) -> None:
    caller = load_signed_out(user_id=user.pk)
    assert asdict(caller) == told | {"session_id": None, "session_lasts": False}
