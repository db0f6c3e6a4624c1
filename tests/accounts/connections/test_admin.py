"""Connections in the console: what is there to see, and what can be done."""

from datetime import datetime

import pytest

from accounts.models import AuditEvent, Connection, ConnectionRevocation
from tests.conftest import Browser

pytestmark = pytest.mark.django_db
BASE = "/admin/accounts/connection"


def test_an_operator_removes_a_connection_for_a_reason(
    console: Browser, connection: Connection
) -> None:
    page = console.get(f"{BASE}/{connection.pk}/change/").content.decode()
    assert "Disconnect" in page
    assert connection.user.email in page
    address = f"{BASE}/{connection.pk}/disconnect/"
    assert console.get(address).status_code == 200
    assert Connection.objects.exists()
    assert console.post(address, {"reason": "They asked."}).status_code == 302
    assert not Connection.objects.exists()
    event = AuditEvent.objects.get(action="connection:removed")
    assert (event.actor, event.reason) == ("operator@shell.test", "They asked.")


def test_operators_see_how_a_connection_is_and_no_token(
    console: Browser, connection: Connection, now: datetime
) -> None:
    Connection.objects.update(failure="timed_out", failed_at=now)
    for address in (f"{BASE}/", f"{BASE}/?state=failing", f"{BASE}/{connection.pk}/change/"):
        page = console.get(address).content.decode()
        assert "took too long" in page
        assert not [each for each in ("access-1", "refresh-1", "gAAAA") if each in page]
    assert connection.user.email not in console.get(f"{BASE}/?state=lapsed").content.decode()
    person = console.get(f"/admin/accounts/user/{connection.user_id}/change/").content.decode()
    listed = f"{BASE}/?user__id__exact={connection.user_id}"
    assert listed in person
    assert console.get(listed).status_code == 200


def test_operators_retry_or_discard_a_revocation_that_was_given_up(
    console: Browser, connection: Connection, now: datetime
) -> None:
    console.post(f"{BASE}/{connection.pk}/disconnect/", {"reason": "They asked."})
    row = ConnectionRevocation.objects.get()
    address = f"/admin/accounts/connectionrevocation/{row.pk}"
    assert "Try again" not in console.get(f"{address}/change/").content.decode()
    ConnectionRevocation.objects.update(gave_up_at=now)
    assert console.post(f"{address}/retry/", {"reason": "It is back."}).status_code == 302
    row.refresh_from_db()
    assert row.gave_up_at is None
    assert console.post(f"{address}/dismiss/", {"reason": "Ended by hand."}).status_code == 302
    assert not ConnectionRevocation.objects.exists()
