"""Wrong credentials of publishers: seen in the audit log, and never enough of them to fill it."""

import json
from datetime import timedelta

import pytest

from accounts.audit import Actor
from accounts.models import AuditEvent
from releases.pipeline import refused_credentials
from releases.pipeline.authentication import InvalidPublishSecret
from tests.races import race
from tests.releases.conftest import NOW, Pipeline


def noted(address: str, minutes: int = 0) -> None:
    by = Actor(name="", address=address, request_id="r")
    refused_credentials.note(InvalidPublishSecret(), by=by, now=NOW + timedelta(minutes=minutes))


def addresses() -> list[str | None]:
    events = AuditEvent.objects.filter(action="release:credential_refused").order_by("id")
    return list(events.values_list("address", flat=True))


@pytest.mark.django_db
@pytest.mark.parametrize("secret", ["guessed-secret", ""])
def test_a_wrong_secret_is_written_down_without_it(pipeline: Pipeline, secret: str) -> None:
    release = pipeline.release()
    assert [pipeline.post(release, secret=secret).status_code for _ in range(3)] == [401] * 3
    event = AuditEvent.objects.get()
    assert (event.action, event.actor, event.address) == (
        "release:credential_refused",
        "",
        "127.0.0.1",
    )
    assert event.after == {"code": "invalid_access_token", "errors": []}
    assert "guessed" not in json.dumps([event.before, event.after, event.reason, event.target])


@pytest.mark.django_db
def test_each_address_is_written_down_once_an_hour() -> None:
    for address, minutes in (("192.0.2.1", 0), ("192.0.2.1", 59), ("2001:db8::1", 59)):
        noted(address, minutes)
    assert addresses() == ["192.0.2.1", "2001:db8::1"]
    noted("192.0.2.1", 60)
    assert addresses() == ["192.0.2.1", "2001:db8::1", "192.0.2.1"]


@pytest.mark.django_db
def test_many_addresses_do_not_fill_the_log() -> None:
    for number in range(refused_credentials.IN_ALL + 5):
        noted(f"192.0.2.{number}")
    assert len(addresses()) == refused_credentials.IN_ALL


@pytest.mark.django_db(transaction=True)
def test_refusals_of_one_moment_leave_one_event() -> None:
    race(*[lambda: noted("192.0.2.1")] * 4)
    assert addresses() == ["192.0.2.1"]
