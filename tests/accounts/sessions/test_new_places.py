"""A person hears of a sign-in from a device and a network that were never used before, and of no other."""

from datetime import datetime, timedelta

import pytest
from procrastinate.contrib.django.models import ProcrastinateJob

from accounts.models import Session, User
from accounts.sessions.rotation import rotate
from accounts.sessions.sign_in import Device, TokenPair, sign_in
from tests.conftest import PASSWORD

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("signing_key")]
HOME = Device(fingerprint="desk-7", address="203.0.113.7")


def enter(user: User, device: Device, now: datetime) -> TokenPair:
    return sign_in(email=user.email, password=PASSWORD, device=device, now=now)


def mails() -> list[dict[str, str]]:
    jobs = ProcrastinateJob.objects.filter(task_name="mail.send").order_by("id")
    return [job.args for job in jobs]


def test_the_first_sign_in_of_all_is_no_news(user: User, now: datetime) -> None:
    enter(user, HOME, now)
    assert mails() == []


@pytest.mark.parametrize(
    "device",
    [
        HOME,
        Device(fingerprint="desk-7", address="198.51.100.9"),
        Device(fingerprint="desk-8", address="203.0.113.7"),
        Device(fingerprint="desk-8", address="203.0.113.250"),
        Device(fingerprint="", address="203.0.113.8"),
        Device(),
    ],
)
def test_a_device_or_a_network_of_before_is_not_new(
    user: User, now: datetime, device: Device
) -> None:
    enter(user, HOME, now)
    enter(user, device, now + timedelta(days=1))
    assert mails() == []


@pytest.mark.parametrize(
    "device",
    [
        Device(fingerprint="desk-8", address="198.51.100.9"),
        Device(fingerprint="", address="203.0.114.7"),
        Device(fingerprint="desk-8", address="2001:db8::1"),
    ],
)
def test_the_person_is_informed_of_another_device_elsewhere(
    user: User, now: datetime, device: Device
) -> None:
    enter(user, HOME, now)
    at = now + timedelta(days=1)
    enter(user, device, at)
    (mail,) = mails()
    assert mail["to"] == [user.email]
    assert mail["subject"] == "Sign-in from a new device and network"
    for body in (mail["text"], mail["html"]):
        assert str(device.address) in body
        assert (device.fingerprint or "no name given") in body
        assert at.strftime("%H:%M UTC") in body
        assert "Change your password" in " ".join(body.split())
    enter(user, device, at)
    assert len(mails()) == 1


def test_a_neighbour_in_an_ipv6_network_of_before_is_known(user: User, now: datetime) -> None:
    enter(user, Device(fingerprint="a", address="2001:db8:7:1::1"), now)
    enter(user, Device(fingerprint="b", address="2001:db8:7:ffff::9"), now)
    assert mails() == []
    enter(user, Device(fingerprint="c", address="2001:db8:8::1"), now)
    assert len(mails()) == 1


def test_a_network_that_a_laptop_has_moved_to_is_known(user: User, now: datetime) -> None:
    pair = enter(user, HOME, now)
    train = Device(fingerprint="desk-7", address="198.51.100.9")
    rotate(presented=pair.refresh, device=train, now=now)
    assert mails() == []
    enter(user, Device(fingerprint="desk-8", address="198.51.100.77"), now)
    assert mails() == []


def test_anothers_places_are_not_ones_own(user: User, now: datetime) -> None:
    enter(user, HOME, now)
    other = User.objects.create_user("bob@acme.test", PASSWORD, client=user.client)
    enter(other, Device(fingerprint="x", address="192.0.2.1"), now)
    enter(other, HOME, now)
    assert [mail["to"] for mail in mails()] == [["bob@acme.test"]]


def test_everything_is_new_where_the_sessions_are_long_gone(user: User, now: datetime) -> None:
    enter(user, HOME, now)
    Session.objects.all().delete()
    enter(user, HOME, now + timedelta(days=400))
    assert len(mails()) == 1
