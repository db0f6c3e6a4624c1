"""Access tokens as jose (npm) verifies them, throughout two rotations, with a cold and with a stale list."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from datetime import timedelta

import jwt
import pytest
from django.db.models import F

from accounts.models import SigningKey
from tests.forgeries import JUNK, claims_of
from tests.served.database import Database
from tests.served.node import Say, running_script
from tests.served.people import Person
from tests.served.service import Service
from tests.served.shell import Shell
from tests.waiting import eventually

pytestmark = pytest.mark.wire


class Jose:
    """The script beside the packages; `tests/wire/keys.mjs` says what it takes."""

    def __init__(self, say: Say) -> None:
        self.ask = say

    def verify(self, token: str, *lists: str) -> None:
        for each in lists:
            answer = self.ask(verify=token, **{"with": each})
            assert answer.get("sub") == claims_of(token)["sub"], (each, answer)


@pytest.fixture
def jose(service: Service) -> Iterator[Jose]:
    with running_script("keys.mjs", f"{service.url}/.well-known/jwks.json", service.url) as say:
        yield Jose(say)


def hour_goes_by(database: Database) -> None:
    """As if all keys had been made an hour earlier."""
    hour = timedelta(hours=1)
    with database.rows():
        SigningKey.objects.update(
            published_at=F("published_at") - hour,
            signs_from=F("signs_from") - hour,
            superseded_at=F("superseded_at") - hour,
        )


def eventually_signed_by_another(shell: Shell, kid: str) -> str:
    """A token of another key, which every process of the service signs with by now."""

    def is_new() -> bool:
        assert shell.refresh().status_code == 200
        return str(jwt.get_unverified_header(shell.access)["kid"]) != kid

    eventually(lambda: all(is_new() for _ in range(8)))
    return str(jwt.get_unverified_header(shell.access)["kid"])


def test_every_token_verifies_throughout_two_rotations(
    service: Service, database: Database, person: Person, shell: Shell, jose: Jose
) -> None:
    first, kid = shell.access, str(jwt.get_unverified_header(shell.access)["kid"])
    jose.ask(fetch="at first")
    listed = _keys(shell)
    jose.verify(first, "remote", "cold", "at first")

    # Published an hour ahead: whoever fetched the list since then needs no other.
    service.manage("rotate_signing_key", "--publish-first", "1")
    eventually(lambda: all(_keys(shell) != listed for _ in range(8)))
    jose.ask(fetch="before it signs")
    assert shell.refresh().status_code == 200
    jose.verify(shell.access, "remote", "cold", "at first", "before it signs")
    hour_goes_by(database)
    jose.ask(**{"pass": 3600})
    kid = eventually_signed_by_another(shell, kid)
    second = shell.access
    jose.verify(second, "before it signs", "remote", "cold")

    # Plain: jose has fetched its list just now, and may ask again when it meets the first token of the new kid.
    with ThreadPoolExecutor(1) as pool:
        rotation = pool.submit(service.manage, "rotate_signing_key")
        while not rotation.done():
            assert shell.refresh().status_code == 200
            jose.verify(shell.access, "remote")
            wait([rotation], timeout=0.1)
    assert "waiting" in rotation.result()
    assert shell.refresh().status_code == 200
    assert jwt.get_unverified_header(shell.access)["kid"] != kid
    for token in (first, second, shell.access):
        jose.verify(token, "remote", "cold")


def test_jose_refuses_tokens_that_are_not_ours(shell: Shell, jose: Jose) -> None:
    head, payload, _ = shell.access.split(".")
    assert "error" in jose.ask(verify=f"{head}.{payload}.{JUNK}", **{"with": "cold"})


def _keys(shell: Shell) -> list[str]:
    return [each["kid"] for each in shell.get("/.well-known/jwks.json").json()["keys"]]
