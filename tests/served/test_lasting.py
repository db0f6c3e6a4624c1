"""Jobs, mails, tokens and sessions that release 213cb5a1 left behind are understood after an upgrade.

The code of that release made ``upgrade/213cb5a1.sql.gz`` and ``213cb5a1.json`` (``tests/drills/recording.py``): a job
of each of its tasks, an operator's session with a proved second factor, a link of each kind, tokens, a connection, an
event and a published release.
"""

import json
import time
from base64 import b64decode
from collections.abc import Iterator
from functools import partial
from uuid import uuid4

import jwt
import psycopg
import pytest
import requests
from procrastinate.contrib.django.models import ProcrastinateJob
from pytest_django.plugin import DjangoDbBlocker

from accounts.models import AuditEvent, ConnectionRevocation, PasswordLink, RefreshToken, SigningKey
from config.models import Notification
from config.platform.jobs.queue import RESETS
from telemetry.models import Event
from tests.lasting.files import listed
from tests.served.browser import Browser, hidden_fields
from tests.served.service import is_worked_off, working_off
from tests.served.shell import PATIENCE, Shell
from tests.served.test_upgrade import BEFORE, Upgraded, upgraded_from
from tests.waiting import eventually

pytestmark = pytest.mark.full

RELEASE = "213cb5a1"
ADA = "ada@demo.test"
NEW = "seven unlikely lanterns over Kyoto"
MAILED = json.loads((BEFORE / f"{RELEASE}.json").read_text())["mailed"]


@pytest.fixture(scope="module")
def upgraded(
    django_db_blocker: DjangoDbBlocker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Upgraded]:
    more = {"OPERATOR_SECOND_FACTOR": "required", "NIGHTLY_AT": "00:00"}
    with upgraded_from(RELEASE, django_db_blocker, tmp_path_factory, **more) as found:
        yield found


@pytest.fixture(scope="module")
def console(upgraded: Upgraded) -> requests.Session:
    """The browser in which an operator of that release was signed in."""
    session = requests.Session()
    session.trust_env = False
    session.headers["Accept"] = "text/html"
    session.cookies.set("sessionid", upgraded.before["console_cookie"])
    return session


def test_a_console_session_goes_on_with_its_second_factor(
    upgraded: Upgraded, console: requests.Session
) -> None:
    answer = console.get(f"{upgraded.service.url}/admin/", timeout=PATIENCE)
    assert (answer.status_code, answer.history) == (200, [])
    assert upgraded.before["demo"]["operator_email"] in answer.text


@pytest.mark.parametrize("path", MAILED)
def test_an_address_of_a_mail_leads_to_its_page(
    path: str, upgraded: Upgraded, console: requests.Session
) -> None:
    answer = console.get(f"{upgraded.service.url}{path}", timeout=PATIENCE)
    assert answer.status_code == 200, answer.url
    assert path == "/admin/login/" or "/login/" not in answer.url
    _, _, anchor = path.partition("#")
    assert f'id="{anchor}"' in answer.text or not anchor


@pytest.mark.parametrize("kind", ["reset", "invitation"])
def test_a_mailed_link_sets_a_password(kind: str, upgraded: Upgraded) -> None:
    email = {"reset": "reset@demo.test", "invitation": "invited@demo.test"}[kind]
    fields = {"password": NEW, "again": NEW}
    posted(upgraded, upgraded.before["links"][kind], fields)
    assert Shell(upgraded.service.url).login(email, NEW).status_code == 200


def test_a_one_time_password_sets_a_password(upgraded: Upgraded) -> None:
    given = upgraded.before["one_time"]
    fields = {
        "email": given["email"],
        "one_time": given["password"],
        "password": NEW,
        "again": NEW,
    }
    posted(upgraded, upgraded.before["links"]["one_time"], fields)
    assert Shell(upgraded.service.url).login(given["email"], NEW).status_code == 200


def posted(upgraded: Upgraded, path: str, fields: dict[str, str]) -> None:
    browser = Browser(upgraded.service.url)
    page = browser.get(path)
    assert page.status_code == 200, page.text
    answer = requests.post(page.url, data={**hidden_fields(page.text), **fields}, timeout=PATIENCE)
    assert answer.status_code == 200, answer.text
    assert "Your password is set" in answer.text


def test_an_access_token_of_that_release_goes_on_for_its_hour(upgraded: Upgraded) -> None:
    """Its hour is over since: it is signed again, with its own header and claims, by the key that it names."""
    access = upgraded.before["unused"]["access"]
    header = jwt.get_unverified_header(access)
    claims = jwt.decode(access, options={"verify_signature": False})
    with upgraded.database.rows():
        key = SigningKey.objects.get(kid=header["kid"])
    pem = unsealed(upgraded, key)
    now = int(time.time())
    again = {**claims, "iss": upgraded.service.url, "iat": now, "exp": now + 3600}
    again["jti"] = str(uuid4())
    shell = Shell(upgraded.service.url)
    shell.access = jwt.encode(again, pem, header["alg"], headers=header)
    answer = shell.get("/v1/auth/me")
    assert answer.status_code == 200, answer.text
    assert answer.json()["id"] == claims["sub"]


def unsealed(upgraded: Upgraded, key: SigningKey) -> bytes:
    script = (
        "from accounts.models import SigningKey; import sys;"
        f"sys.stdout.write(SigningKey.objects.get(kid={key.kid!r}).unseal('private_key').decode())"
    )
    _, begin, rest = upgraded.service.manage("shell", "-c", script).partition("-----BEGIN")
    return f"{begin}{rest}".encode()


def test_refresh_tokens_and_keyed_retries_go_on(upgraded: Upgraded) -> None:
    shell, keyed = Shell(upgraded.service.url), upgraded.before["keyed"]
    unused = {"refresh": upgraded.before["unused"]["refresh"], "device_fp": "upgrade"}
    assert shell.post("/v1/auth/refresh", unused).status_code == 200
    answer = shell.refresh(keyed["refresh"], key=keyed["key"])
    assert (answer.status_code, answer.json()["refresh"]) == (200, keyed["successor"])


def test_a_token_that_was_replaced_before_the_upgrade_is_reuse(upgraded: Upgraded) -> None:
    replaced, shell = upgraded.before["replaced"], Shell(upgraded.service.url)
    assert shell.refresh(replaced["refresh"]).status_code == 401
    assert shell.refresh(replaced["successor"]).status_code == 401
    with upgraded.database.rows():
        assert RefreshToken.objects.filter(revoked_at__isnull=False).exists()


def test_a_connection_is_decrypted(upgraded: Upgraded) -> None:
    answer = upgraded.signed_in().post("/v1/connections/local/token", {})
    assert answer.status_code == 200, answer.text
    assert answer.json()["access_token"] == "a" * 20


def test_a_published_release_is_served_with_its_signature(upgraded: Upgraded) -> None:
    address = f"{upgraded.service.url}/v1/updates/manifest?ch=stable&os=darwin"
    answer = requests.get(address, timeout=PATIENCE)
    assert (answer.status_code, answer.json()["version"]) == (200, "1.0.0")
    assert b64decode(answer.headers["X-Manifest-Signature"]) == b"as it was signed"


def test_telemetry_and_the_audit_log_are_kept(upgraded: Upgraded) -> None:
    with upgraded.database.rows():
        assert str(Event.objects.get().event_id) == upgraded.before["event"]
        assert AuditEvent.objects.filter(actor="manage.py seed_demo").exists()


def test_a_personal_key_goes_on(upgraded: Upgraded) -> None:
    by_key = {"Authorization": f"Bearer {upgraded.before['personal_key']}"}
    address = f"{upgraded.service.url}/v1/llm/models"
    answer = requests.get(address, headers=by_key, timeout=PATIENCE)
    assert answer.status_code == 200, answer.text
    assert answer.json()["data"]


def test_the_worker_runs_a_job_of_each_task(upgraded: Upgraded) -> None:
    """Last of all: its mails and its night change what the others use."""
    with psycopg.connect(upgraded.database.url) as connection:
        rows = connection.execute(
            "SELECT id, task_name FROM procrastinate_jobs WHERE status = 'todo' AND attempts = 0"
        ).fetchall()
    waiting = dict(rows)
    # A task that is newer has no job there.
    tasks = {name for kind, name, _ in listed() if kind == "task"}
    assert tasks - {*waiting.values()} == {"accounts.fill_email_forms", "usage.count_latency"}
    with working_off(upgraded.service):
        eventually(partial(is_worked_off, upgraded.database), seconds=120)
    with upgraded.database.rows():
        there = ProcrastinateJob.objects.filter(pk__in=waiting)
        assert list(there.exclude(status="succeeded").values_list("task_name", "status")) == []
        # Those that strangers can cause are deleted once they have succeeded.
        strangers = {"accounts.send_reset", "accounts.record_refusal"}
        assert {*there.values_list("task_name", flat=True)} | strangers == {*waiting.values()}
        assert not ProcrastinateJob.objects.filter(queue_name=RESETS, status="failed").exists()
        # Jobs have done what they were queued for, and did not only end.
        assert not ConnectionRevocation.objects.exists()
        # Without an address of a webhook its alert is notified of nowhere, and is found anew once there is one.
        assert not Notification.objects.filter(name="worker").exists()
        assert PasswordLink.objects.filter(user__email=ADA).count() == 2
        assert AuditEvent.objects.filter(action="nightly:done").exists()
    mails = [each.read_text() for each in (upgraded.folder / "mail").iterdir()]
    assert sum("Message-ID: <one@demo.test>" in mail for mail in mails) == 1
