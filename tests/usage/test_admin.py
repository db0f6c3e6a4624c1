"""Overrides and the ledger in the console."""

from datetime import datetime, timedelta

import pytest
from django.contrib import admin
from django.test import RequestFactory
from django.urls import reverse
from django.utils import timezone

from accounts.models import AuditEvent, User
from config.platform.periods import Period
from tests.conftest import Browser
from usage.admin.ledger import MonthFilter
from usage.models import MonthlyUsage, Override, UsageRecord

pytestmark = pytest.mark.django_db


def form(person: User, now: datetime, **change: object) -> dict[str, object]:
    ends_at = now + timedelta(days=7)
    return {
        "user": person.email,
        "monthly_input_tokens": "900000",
        "monthly_output_tokens": "",
        "daily_tokens": "",
        "ends_at": f"{ends_at:%Y-%m-%dT%H:%M}",
        "reason": "Quarter end.",
        **change,
    }


def opened(user: User, now: datetime) -> UsageRecord:
    period = Period.of(now)
    assert user.client_id is not None
    return UsageRecord.objects.create(
        user=user,
        client_id=user.client_id,
        period=period.month,
        day=period.day,
        model="small",
        provider="openai",
        streamed=False,
        reserved_input=1,
        reserved_output=1,
        opened_at=now,
        expires_at=now + timedelta(minutes=11),
    )


def test_an_override_is_granted_and_ended(
    console: Browser,
    operator: User,
    user: User,
    now: datetime,
) -> None:
    address = reverse("admin:usage_override_add")
    prefilled = console.get(f"{address}?user={user.pk}").content.decode()
    assert f'name="user" value="{user.email}"' in prefilled
    console.post(address, form(user, now))
    override = Override.objects.get()
    assert (override.monthly_input_tokens, override.daily_tokens) == (900_000, None)
    event = AuditEvent.objects.get(action="override:granted")
    assert (event.actor, event.address) == (operator.email, Browser.address)

    ending = reverse("admin:usage_override_end", args=[override.pk])
    console.get(ending)
    override.refresh_from_db()
    assert override.ends_at > now + timedelta(days=6)
    console.post(ending, {"reason": "Enough."})
    override.refresh_from_db()
    assert override.ends_at <= timezone.now()
    assert AuditEvent.objects.get(action="override:ended").reason == "Enough."


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"reason": ""}, "reason"),
        ({"ends_at": ""}, "ends_at"),
        ({"ends_at": "2020-01-01T00:00"}, "ends_at"),
        ({"monthly_input_tokens": ""}, "__all__"),
        ({"monthly_input_tokens": "-5"}, "monthly_input_tokens"),
        ({"user": ""}, "user"),
        ({"user": "nobody@acme.test"}, "user"),
        ({"user": "operator@shell.test"}, "user"),
    ],
)
def test_a_missing_value_is_told_beside_its_field(
    console: Browser,
    user: User,
    now: datetime,
    change: dict[str, str],
    field: str,
) -> None:
    response = console.post(reverse("admin:usage_override_add"), form(user, now, **change))
    assert list(response.context["form"].errors) == [field]
    assert not Override.objects.exists()


def test_somebody_is_named_by_email_or_id_and_without_any_script(
    console: Browser, user: User, now: datetime
) -> None:
    address = reverse("admin:usage_override_add")
    assert "select2" not in console.get(address).content.decode()
    for written in (f" {user.email.upper()} ", str(user.pk)):
        console.post(address, form(user, now, user=written))
    assert Override.objects.filter(user=user).count() == 2


def test_the_ledger_is_narrowed_by_person_client_month_and_state(
    console: Browser, user: User, now: datetime
) -> None:
    other = User.objects.create_user("bert@acme.test", client=user.client)
    opened(user, now)
    opened(other, now)

    def number(query: str) -> int:
        response = console.get(f"{reverse('admin:usage_usagerecord_changelist')}?{query}")
        return int(response.context["cl"].result_count)

    assert number("") == 2
    assert number(f"user__id__exact={user.pk}") == 1
    assert number(f"q={user.pk}") == 1
    assert number(f"q={user.client_id}") == 2
    assert number("q=bert@") == 1
    request_id = "4abb6e7b-19e5-4ce3-b265-8d6c126670f7"
    UsageRecord.objects.filter(user=other).update(request_id=request_id)
    assert number(f"q={request_id}") == number(f"q={request_id.upper()}") == 1
    assert (number("state__exact=open"), number("state__exact=settled")) == (2, 0)
    month = Period.of(now).month
    before = month - timedelta(days=1)
    assert (number(f"month={month:%Y-%m}"), number(f"month={before:%Y-%m}")) == (2, 0)


def test_a_ledger_is_counted_only_so_far(
    console: Browser, user: User, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("config.console.base.COUNTED_ROWS", 3)
    for _ in range(5):
        opened(user, now)
    listed = console.get(reverse("admin:usage_usagerecord_changelist")).context["cl"]
    assert listed.result_count == 3


def test_months_run_backwards_over_the_year(
    rf: RequestFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    january = datetime.fromisoformat("2026-01-31T23:59:59+00:00")
    monkeypatch.setattr("usage.admin.ledger.timezone.now", lambda: january)
    console = admin.site.get_model_admin(MonthlyUsage)
    offered = MonthFilter(rf.get("/"), {}, MonthlyUsage, console).lookup_choices
    assert [month for month, _ in offered[:3]] == ["2026-01", "2025-12", "2025-11"]
