"""The list of attempts that providers left without an answer, as operators search it."""

import re
from datetime import datetime, timedelta
from uuid import uuid4

import pytest
from django.urls import reverse

from accounts.models import Client, User
from tests.conftest import Browser
from tests.usage.test_admin import opened
from usage.models import LeftAttempt, UsageRecord

pytestmark = pytest.mark.django_db
LIST = "/admin/usage/leftattempt/"


@pytest.fixture
def attempts(user: User, organisation: Client, now: datetime) -> list[LeftAttempt]:
    """Two attempts at a call of one person, today, and one at a call of another, two days ago."""
    bob = User.objects.create(email="bob@acme.test", client=organisation)
    calls = []
    for person, asked_at in ((user, now), (bob, now - timedelta(days=2))):
        call = opened(person, asked_at)
        call.request_id = f"req-{len(calls)}"
        call.save()
        calls.append(call)
    UsageRecord.objects.filter(pk=calls[0].pk).update(
        state="settled", settled_at=now, source="provider", end="done", provider="third"
    )
    return [
        LeftAttempt.objects.create(
            record=calls[number],
            provider=provider,
            input_tokens=1_234,
            output_tokens=20,
            cost=cost,
            asked_at=calls[number].opened_at,
            left_at=calls[number].opened_at + timedelta(seconds=7),
        )
        for number, provider, cost in ((0, "first", 50), (0, "second", None), (1, "first", 7))
    ]


def listed(console: Browser, **query: object) -> set[str]:
    page = console.get(LIST, query)
    assert page.status_code == 200
    return set(re.findall(rf"{LIST}([0-9a-f-]{{36}})/change/", page.content.decode()))


def ids(*attempts: LeftAttempt) -> set[str]:
    return {str(each.pk) for each in attempts}


def test_an_attempt_is_found_by_day_provider_person_and_request(
    console: Browser, attempts: list[LeftAttempt], user: User
) -> None:
    first, second, others = attempts
    day = others.left_at
    assert listed(console) == ids(*attempts)
    days = {"left_at__year": day.year, "left_at__month": day.month, "left_at__day": day.day}
    assert listed(console, **days) == ids(others)
    assert listed(console, provider="second") == ids(second)
    for theirs in ("ada@", user.email, user.pk, "req-0", first.record_id):
        assert listed(console, q=theirs) == ids(first, second), theirs
    assert listed(console, q="req-1") == ids(others)
    assert listed(console, q=first.pk) == ids(first)
    UsageRecord.objects.filter(pk=others.record_id).update(request_id=(made := str(uuid4())))
    assert listed(console, q=made) == ids(others)


def test_an_attempt_and_its_call_lead_to_each_other(
    console: Browser, attempts: list[LeftAttempt]
) -> None:
    attempt = attempts[0]
    page = console.get(f"{LIST}{attempt.pk}/change/").content.decode()
    call = reverse("admin:usage_usagerecord_change", args=[attempt.record_id])
    assert f'<a href="{call}">third: done</a>' in page
    for said in ("$0.000050", "1,234", "7 s", "req-0"):
        assert said in page
    assert f"{LIST}{attempt.pk}/change/" in console.get(call).content.decode()
