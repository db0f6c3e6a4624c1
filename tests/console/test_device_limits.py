"""The limit of devices in the console: the form that sets it, and the pages of a client and a person."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.urls import reverse

from accounts.models import AuditEvent, User
from accounts.sessions.devices import DeviceLimitReached
from accounts.sessions.sign_in import Device, sign_in
from licensing.models import DevicesFull, Licence
from tests.conftest import PASSWORD, Browser

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("signing_key")]


def enter(user: User, *names: str, at: datetime) -> None:
    for name in names:
        device = Device(fingerprint=name)
        sign_in(email=user.email, password=PASSWORD, device=device, now=at)


def terms(licence: Licence, **changed: str) -> dict[str, str]:
    plan = str(licence.plan_id)
    form = {"plan": plan, "entitlements": "", "seats": "", "devices": "", "devices_full": "refuse"}
    return {**form, "reason": "As agreed.", **changed}


def text_of(answer: Any) -> str:
    return " ".join(answer.content.decode().split())


def test_a_limit_that_changes_nothing_for_anybody_is_set_at_once(
    console: Browser, user: User, now: datetime
) -> None:
    enter(user, "a", "b", at=now)
    licence = Licence.objects.get()
    page = reverse("admin:licensing_licence_terms", args=[licence.pk])
    assert "signs nobody out" in text_of(console.get(page))
    done = console.post(page, terms(licence, devices="2", devices_full="oldest"), follow=True)
    assert "Devices per person: none → 2." in text_of(done)
    said = "When all are in use: Refuse the sign-in → Sign out the least recently used device."
    assert said in text_of(done)
    licence.refresh_from_db()
    assert (licence.devices, licence.devices_full) == (2, DevicesFull.OLDEST)
    event = AuditEvent.objects.get(action="licence:terms_set")
    assert isinstance(event.before, dict)
    assert isinstance(event.after, dict)
    assert (event.before["devices"], event.after["devices"]) == (None, 2)
    assert (event.before["devices_full"], event.after["devices_full"]) == ("refuse", "oldest")


def test_a_limit_says_who_is_over_it_before_it_is_set(
    console: Browser, user: User, now: datetime
) -> None:
    enter(user, "a", "b", "", at=now)
    other = User.objects.create_user("ben@acme.test", PASSWORD, client=user.client)
    enter(other, "a", at=now)
    licence = Licence.objects.get()
    page = reverse("admin:licensing_licence_terms", args=[licence.pk])
    asked = console.post(page, terms(licence, devices="2"))
    (said,) = asked.context["form"].errors["devices"]
    assert said == (
        "1 person is signed in on more than 2 devices, and stays signed in. "
        "1 shell sends no device fingerprint. Submit again to set it."
    )
    licence.refresh_from_db()
    assert licence.devices is None
    # Another number is asked about anew, and the same one is set.
    again = console.post(page, terms(licence, devices="1", limited="2"))
    assert "more than 1 device," in again.context["form"].errors["devices"][0]
    assert console.post(page, terms(licence, devices="1", limited="1")).status_code == 302
    licence.refresh_from_db()
    assert licence.devices == 1
    # Nobody is asked about a number that stays.
    assert console.post(page, terms(licence, devices="1", seats="9")).status_code == 302
    assert user.sessions.filter(ended_at=None).count() == 3


@pytest.mark.parametrize("wrong", ["0", "-1", "many"])
def test_a_limit_is_at_least_one_device(console: Browser, user: User, wrong: str) -> None:
    licence = Licence.objects.get()
    page = reverse("admin:licensing_licence_terms", args=[licence.pk])
    refused = console.post(page, terms(licence, devices=wrong))
    assert [*refused.context["form"].errors] == ["devices"]


def test_pages_say_how_many_devices_are_used_of_how_many_and_who_was_refused(
    console: Browser, user: User, now: datetime
) -> None:
    client = reverse("admin:accounts_client_change", args=[user.client_id])
    person = reverse("admin:accounts_user_change", args=[user.pk])
    explained = reverse("admin:accounts_user_explain", args=[user.pk])
    enter(user, "a", "b", at=now - timedelta(hours=1))
    assert "Devices per person" not in text_of(console.get(client))
    Licence.objects.update(devices=2)
    assert "2 of 2 devices" in text_of(console.get(person))
    assert "a sign-in on another one is refused" in text_of(console.get(explained))
    with pytest.raises(DeviceLimitReached):
        enter(user, "c", at=now)
    assert "The latest refusal was" in text_of(console.get(explained))
    # The person's and the client's activity, and what needs attention.
    assert "was refused a sign-in on another device" in text_of(console.get(person))
    for page in (client, "/admin/"):
        assert "could not sign in on another device" in text_of(console.get(page))
    Licence.objects.update(devices=1, devices_full="oldest")
    assert "<dd> 1; 1 person is over </dd>" in text_of(console.get(client))
    assert "signs out the least recently used" in text_of(console.get(explained))
    licence = reverse("admin:licensing_licence_change", args=[Licence.objects.get().pk])
    said = "1; when all are in use: sign out the least recently used device"
    assert said in text_of(console.get(licence))
