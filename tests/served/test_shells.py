"""The files of docs/shells.md, run as they stand there: licence and offline, device and password."""

import runpy
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import formatdate
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from licensing.licences import set_operator_status
from licensing.models import Standing
from tests.forgeries import JUNK
from tests.served.conftest import SignIn
from tests.served.database import Database
from tests.served.people import BY, PASSWORD, Person, suspend
from tests.served.service import Service
from tests.served.shell import Shell
from tests.tools.folders import ROOT

PYTHON = ROOT / "docs" / "examples" / "python"
HOUR = 3600.0


def documented(name: str) -> dict[str, Any]:
    """Returns the definitions of a file of the docs."""
    return runpy.run_path(str(PYTHON / name))


@pytest.fixture
def licence(service: Service, shell: Shell, tmp_path: Path) -> Callable[..., str]:
    """Returns the documented shell's display so many seconds after a first failure; None: the last was answered."""
    service.manage("export_public_keys", "--output", str(tmp_path))
    shown = documented("licence.py")["shown"]

    def shows(silent: float | None, **changes: Any) -> str:
        began = time.time()
        known = {
            "is_outdated": False,
            "keys": tmp_path,
            "base_url": service.url,
            "access": shell.access,
            **changes,
        }
        last = known.pop("last", None) or shell.get("/v1/license/status").json()
        failing_since = None if silent is None else began
        return str(shown(last, failing_since=failing_since, now=began + (silent or 0), **known))

    return shows


def test_a_shell_goes_on_for_three_days_without_the_service(licence: Any) -> None:
    # Questions are rarer than every 60 seconds: that none was asked is no silence.
    assert licence(None, access="") == licence(30) == "working"
    assert licence(61) == licence(71 * HOUR) == "banner"
    # In the end the window is over, or the clock was set back.
    assert licence(73 * HOUR) == licence(-2 * HOUR) == "locked"


def test_offline_only_a_token_of_this_service_by_a_shipped_key_counts(
    licence: Any, shell: Shell, tmp_path: Path
) -> None:
    head, payload, _ = shell.access.split(".")
    for changes in (
        {"access": ""},
        {"access": f"{head}.{payload}.{JUNK}"},
        {"base_url": "https://another.example"},
        {"keys": tmp_path / "of-another-build"},
    ):
        assert licence(61, **changes) == "locked"


def test_a_suspension_locks_at_once_and_a_grace_ends_offline_too(
    licence: Any, database: Database, person: Person, shell: Shell
) -> None:
    now = datetime.now(UTC)
    with database.rows():
        set_operator_status(
            licence_id=person.licence_id,
            status=Standing.GRACE,
            grace_until=now + timedelta(hours=5),
            reason="The test says so.",
            by=BY,
            now=now,
        )
    assert shell.get("/v1/license/status").json()["status"] == "grace"
    assert (licence(30), licence(4 * HOUR), licence(6 * HOUR)) == ("working", "banner", "locked")
    suspend(database, person)
    assert licence(None) == licence(0) == "locked"


def test_a_shell_below_the_minimum_shows_its_update_screen_while_it_can_ask(
    licence: Any, database: Database, person: Person
) -> None:
    is_below = documented("shell.py")["is_below"]
    assert is_below("1.3.9", "1.4.0")
    assert is_below("1.4.0-rc.2", "1.4.0-rc.10")
    assert is_below("1.4.0-rc.1+a", "1.4.0")
    assert not any(is_below(*each) for each in (("1.4.0", "1.4.0"), ("1.10.0", "1.4.0"), ("1", "")))
    assert licence(None, is_outdated=True) == "update"
    # A shell that cannot ask goes on.
    assert licence(30, is_outdated=True) == "working"
    assert licence(61, is_outdated=True) == "banner"
    suspend(database, person)
    assert licence(None, is_outdated=True) == "locked"


def test_a_shell_shows_a_message_until_it_is_closed_or_over_and_asks_for_its_pin() -> None:
    example = documented("licence.py")
    until = datetime.fromtimestamp(1_000, UTC).isoformat()
    told = {"message": {"id": "a", "level": "info", "text": "Hello.", "until": until}}
    shown = {
        now: example["message"](told, closed=closed, now=now)
        for now, closed in ((999, set()), (998, {"a"}), (1_001, set()))
    }
    assert shown == {999: told["message"], 998: None, 1_001: None}
    assert example["message"]({}, closed=set(), now=0) is None
    check = example["update_check"]
    built = {"built_for": "stable", "version": "1.2.0"}
    assert check({}, **built) == {"ch": "stable", "current_version": "1.2.0"}
    pinned = {"shell": {"channel": "beta", "version": "1.3.0"}}
    assert check(pinned, **built) == {"ch": "beta", "current_version": "1.2.0", "version": "1.3.0"}


def test_a_shell_asks_as_often_as_it_should_and_later_when_it_is_told() -> None:
    pause = documented("licence.py")["pause"]
    for _ in range(100):
        assert 60 <= pause(in_front=True) <= 66
        assert 6 * HOUR <= pause(in_front=False) <= 6.6 * HOUR
        assert 90 <= pause(in_front=True, retry_after="90") <= 99
    # Proxies before the service may name a date, or anything.
    soon, past, far = (formatdate(time.time() + wait, usegmt=True) for wait in (900, -900, 1e9))
    assert 890 < pause(in_front=True, retry_after=soon) <= 990
    for said in (past, "soon", "-1", "", "³", "Mon, 99 Foo 2026 00:00:00 GMT"):
        assert 60 <= pause(in_front=True, retry_after=said) <= 66, said
    for said in (far, "9" * 30):
        assert pause(in_front=True, retry_after=said) <= 6.6 * HOUR, said


def test_a_lost_device_is_known_by_its_name_and_ended(
    service: Service, person: Person, tmp_path: Path, sign_in: SignIn
) -> None:
    account = documented("account.py")
    name = account["device_fp"](tmp_path)
    assert account["device_fp"](tmp_path) == name == str(UUID(name))
    lost, shell = Shell(service.url), sign_in(service, person)
    credentials = {"email": person.email, "password": person.password, "device_fp": name}
    lost.access = lost.post("/v1/auth/login", credentials).json()["access"]
    (found,) = [each for each in account["devices"](shell.call) if each["device_fp"] == name]
    assert not found["current"]
    account["end"](shell.call, found)
    answer = lost.get("/v1/license/status")
    assert (answer.status_code, answer.json()["code"]) == (401, "access_revoked")
    assert shell.get("/v1/license/status").status_code == 200


def test_a_password_is_changed_and_a_forgotten_one_reset_without_telling_who_is_known(
    service: Service, person: Person, shell: Shell
) -> None:
    account = documented("account.py")
    assert account["change_password"](shell.call, PASSWORD, "too short") != []
    assert shell.get("/v1/license/status").status_code == 200
    assert account["change_password"](shell.call, PASSWORD, "staple battery horse 71 umbra") == []
    assert shell.get("/v1/license/status").json()["code"] == "access_revoked"
    said = {
        account["forgot_password"](service.url, email)
        for email in (person.email, "nobody@served.test")
    }
    assert len(said) == 1
