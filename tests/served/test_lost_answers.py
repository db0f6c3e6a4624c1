"""A refresh whose answer is lost at the worst of moments: it is committed, and the process dies before it says so."""

import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import requests

from accounts.models import RefreshToken, Session
from accounts.sessions.refresh_tokens import RefreshSecret
from tests.served.commits import Wire, wire_to
from tests.served.conftest import Ground, SignIn
from tests.served.database import Database
from tests.served.people import Person
from tests.served.service import WORKERS, Service, running_service
from tests.served.shell import Shell
from tests.waiting import eventually

KEY = "chosen-before-the-call-0001"


@pytest.fixture
def wire(ground: Ground) -> Iterator[Wire]:
    with wire_to(ground.environ["DATABASE_URL"]) as wire:
        yield wire


@pytest.fixture
def mortal(ground: Ground, wire: Wire) -> Iterator[Service]:
    """A service of the test's own, at the far end of the wire."""
    with running_service(ground.folder, {**ground.environ, "DATABASE_URL": wire.url}) as service:
        yield service


def test_killed_between_commit_and_answer_a_keyed_retry_loses_nothing(
    mortal: Service, wire: Wire, database: Database, person: Person, sign_in: SignIn
) -> None:
    shell = sign_in(mortal, person)
    presented = shell.refresh_token
    _lose_the_answer(mortal, wire, database, shell)

    assert shell.refresh(key=KEY).status_code == 200
    assert shell.get("/v1/auth/me").status_code == 200
    assert shell.refresh_token != presented
    successor = shell.refresh_token
    # And once more, as from a laptop that went to sleep again.
    assert shell.refresh(presented, key=KEY).status_code == 200
    assert shell.refresh_token == successor
    assert shell.refresh().status_code == 200
    assert shell.get("/v1/auth/me").status_code == 200
    with database.rows():
        (session,) = Session.objects.filter(user_id=person.id)
        assert session.ended_at is None
        tokens = RefreshToken.objects.filter(user_id=person.id)
        assert tokens.count() == 3, "the retries made no second chain"
        assert not tokens.filter(retry_box__isnull=False).exists()


def test_the_same_without_a_key_looks_like_theft(
    mortal: Service, wire: Wire, database: Database, person: Person, sign_in: SignIn
) -> None:
    shell = sign_in(mortal, person)
    _lose_the_answer(mortal, wire, database, shell, key=None)
    assert shell.refresh().json()["code"] == "invalid_refresh_token"
    with database.rows():
        assert Session.objects.get(user_id=person.id).ended_by == Session.Ended.REUSE


def _lose_the_answer(
    service: Service, wire: Wire, database: Database, shell: Shell, key: str | None = KEY
) -> None:
    """A refresh that everybody can see in the database, and of which its caller never hears."""
    before = service.workers()
    secret = RefreshSecret.parse(shell.refresh_token)
    assert secret is not None
    wire.hold()
    with ThreadPoolExecutor(1) as caller:
        call = caller.submit(shell.refresh, key=key)
        wire.wait_until_held()
        # Its own commit: what the process does beside requests may have been held before it.
        eventually(lambda: _is_replaced(database, secret))
        assert not call.done()
        for worker in before:
            os.kill(worker, signal.SIGKILL)
        with pytest.raises(requests.ConnectionError):
            call.result()
    wire.release()
    eventually(lambda: len(service.workers()) == WORKERS and not {*before} & {*service.workers()})


def _is_replaced(database: Database, secret: RefreshSecret) -> bool:
    with database.rows():
        return RefreshToken.objects.get(pk=secret.id).replaced_at is not None
