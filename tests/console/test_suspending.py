"""A client is suspended and resumed by acts of their own."""

from datetime import datetime, timedelta

import pytest
from django.urls import reverse

from accounts.audit import Actor
from accounts.models import AuditEvent
from licensing.licences import set_billing_status, set_operator_status
from licensing.models import Licence, Standing
from tests.conftest import Browser
from tests.console.conftest import World

pytestmark = pytest.mark.django_db


def page(licence: Licence, act: str) -> str:
    return reverse(f"admin:licensing_licence_{act}", args=[licence.pk])


def words(content: bytes) -> str:
    return " ".join(content.decode().split())


@pytest.fixture
def licence(world: World) -> Licence:
    return world.client.licence


def test_the_page_asks_about_the_client_by_name(console: Browser, licence: Licence) -> None:
    shown = words(console.get(page(licence, "suspend")).content)
    assert "<h1>Suspend Acme?</h1>" in shown
    assert 'class="grave">Suspend Acme</button>' in shown
    assert "8 people lose model calls and apps. Signing in still works." in shown


def test_choice_effects_reason_and_button_come_in_that_order(
    console: Browser, licence: Licence
) -> None:
    shown = words(console.get(page(licence, "suspend")).content)
    parts = (
        'name="how_long"',
        "Who is affected",
        "What happens when",
        'name="reason"',
        "</button>",
    )
    main = shown[shown.index("<main") :]
    places = [main.index(part) for part in parts]
    assert places == sorted(places)


def test_a_client_is_suspended_and_resumed_by_billing(console: Browser, licence: Licence) -> None:
    done = console.post(
        page(licence, "suspend"), {"how_long": "for_good", "reason": "Unpaid."}, follow=True
    )
    text = words(done.content)
    assert "<strong>Acme is suspended.</strong> 8 people cannot call models" in text
    assert f'href="{page(licence, "resume")}"' in text
    licence.refresh_from_db()
    assert (licence.status, licence.operator_until) == (Standing.SUSPENDED, None)
    assert AuditEvent.objects.latest("pk").action == "licence:operator_set"
    done = console.post(
        page(licence, "resume"), {"then": "billing", "reason": "Paid."}, follow=True
    )
    assert "<strong>Acme is active.</strong>" in words(done.content)
    licence.refresh_from_db()
    assert (licence.status, licence.operator_status) == (Standing.ACTIVE, None)
    assert AuditEvent.objects.latest("pk").action == "licence:operator_cleared"


def test_a_suspension_until_a_date_needs_the_date(
    console: Browser, licence: Licence, now: datetime
) -> None:
    form = {"how_long": "until", "reason": "A week."}
    refused = console.post(page(licence, "suspend"), form)
    assert list(refused.context["form"].errors) == ["ends_at"]
    until = (now + timedelta(days=7)).replace(second=0, microsecond=0)
    console.post(page(licence, "suspend"), {**form, "ends_at": f"{until:%Y-%m-%dT%H:%M}"})
    licence.refresh_from_db()
    assert (licence.status, licence.operator_until) == (Standing.SUSPENDED, until)


def test_a_date_left_in_the_field_counts_only_where_it_is_chosen(
    console: Browser, licence: Licence, now: datetime
) -> None:
    form = {"how_long": "for_good", "ends_at": "2100-01-01T00:00", "reason": "For good."}
    console.post(page(licence, "suspend"), form)
    licence.refresh_from_db()
    assert licence.operator_until is None


def test_a_suspension_of_billing_is_resumed_by_an_operators_decision_alone(
    console: Browser, licence: Licence, by: Actor, now: datetime
) -> None:
    set_operator_status(licence_id=licence.pk, status=None, reason="x", by=by, now=now)
    set_billing_status(
        known=Licence.objects.get(pk=licence.pk),
        status=Standing.SUSPENDED,
        grace_until=None,
        reason="unpaid",
        by=by,
        now=now,
    )
    form = console.get(page(licence, "resume")).context["form"]
    assert [key for key, _ in form.fields["then"].choices] == [Standing.ACTIVE]
    refused = console.post(page(licence, "resume"), {"then": "billing", "reason": "x"})
    assert list(refused.context["form"].errors) == ["then"]
    console.post(page(licence, "resume"), {"then": "active", "reason": "They have paid us."})
    licence.refresh_from_db()
    assert (licence.status, licence.billing_status) == (Standing.ACTIVE, Standing.SUSPENDED)


def test_each_is_offered_only_where_it_changes_something(
    console: Browser, licence: Licence, by: Actor, now: datetime
) -> None:
    def offered() -> set[str]:
        shown = console.get(reverse("admin:accounts_client_change", args=[licence.client_id]))
        return {
            act for act in ("suspend", "resume") if page(licence, act) in shown.content.decode()
        }

    assert offered() == {"suspend"}
    set_operator_status(
        licence_id=licence.pk, status=Standing.SUSPENDED, reason="x", by=by, now=now
    )
    assert offered() == {"resume"}


def test_no_status_is_chosen_before_an_operator_chooses(console: Browser, licence: Licence) -> None:
    shown = words(console.get(page(licence, "status")).content)
    assert "Choose a status to see what it means." in shown
    assert "checked" not in shown
