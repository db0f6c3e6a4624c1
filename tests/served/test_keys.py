"""Signing keys across hosts: a rotation that nobody notices, an emergency that everybody does, and no forgery."""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from threading import Event

import jwt
import pytest
from joserfc import jwt as joserfc_jwt
from joserfc.jwk import KeySet

from accounts.keys.key_ring import KeyRing
from accounts.keys.signing_keys import LEAST_AHEAD, replace_signing_keys, rotate_signing_key
from accounts.models import SigningKey
from tests.forgeries import forgeries
from tests.served.conftest import Ground, SignIn
from tests.served.database import Database
from tests.served.ledger import DEADLINE
from tests.served.people import BY, Person
from tests.served.service import HOST, Service, running_service
from tests.served.shell import Shell
from tests.waiting import eventually

JWKS = "/.well-known/jwks.json"


@pytest.fixture
def hosts(ground: Ground, service: Service) -> Iterator[list[str]]:
    """The addresses of two services on one database, behind one name."""
    shared = {**ground.environ, "BASE_URL": service.url}
    with running_service(ground.folder, shared) as second:
        yield [service.url, f"http://{HOST}:{second.port}"]


@dataclass
class Traffic:
    """A person at work on two hosts: what one has signed is shown to the other, which must take it."""

    signing: Shell
    taking: str
    kids: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    def go_on(self, is_over: Callable[[], bool]) -> None:
        while not is_over():
            self.once()

    def once(self) -> None:
        self._expect(self.signing.refresh().status_code == 200, "refresh")
        token = self.signing.access
        kid = jwt.get_unverified_header(token)["kid"]
        self.kids.append(kid)
        for address in (self.taking, self.signing.base_url):
            shell = Shell(address)
            shell.access = token
            answer = shell.get("/v1/auth/me")
            self._expect(answer.status_code == 200, f"{address} {answer.status_code} {kid}")
            # With a list that is fetched now, from either.
            jwks = Shell(address).get(JWKS).json()
            joserfc_jwt.decode(token, KeySet.import_key_set(jwks), algorithms=["RS256"])

    def _expect(self, well: bool, what: str) -> None:
        if not well:
            self.faults.append(what)


def kid_of(shell: Shell) -> str:
    assert shell.refresh().status_code == 200
    return str(jwt.get_unverified_header(shell.access)["kid"])


# For its length: a rotation takes as long as operators wait for it.
@pytest.mark.wall_time
@pytest.mark.wire
def test_a_rotation_costs_nobody_an_answer_on_any_host(
    hosts: list[str], database: Database, person: Person, sign_in: SignIn
) -> None:
    first, second = hosts
    traffics = []
    for signing, taking in ((first, second), (second, first)):
        shell = Shell(signing)
        assert shell.login(person.email, person.password).status_code == 200
        traffics.append(Traffic(shell, taking))
    before = Shell(first)
    before.login(person.email, person.password)
    is_over = Event()
    with ThreadPoolExecutor(len(traffics)) as pool:
        running = [pool.submit(each.go_on, is_over.is_set) for each in traffics]
        try:
            began = time.monotonic()
            with database.rows():
                key = rotate_signing_key(publish_ahead=timedelta(0), by=BY, now=datetime.now(UTC))
            ahead = LEAST_AHEAD.total_seconds()
            eventually(
                lambda: all(key.kid in each.kids for each in traffics), seconds=ahead + DEADLINE
            )
            took = time.monotonic() - began
        finally:
            is_over.set()
        for each in running:
            each.result()
    assert [each.faults for each in traffics] == [[], []]
    assert took > ahead - 1
    # From one moment on all of them sign with the new key, and what the old one has signed is still good.
    for each in traffics:
        assert len(set(each.kids)) == 2
        assert key.kid not in each.kids[: each.kids.index(key.kid)]
        assert set(each.kids[each.kids.index(key.kid) :]) == {key.kid}
    for address in hosts:
        client = jwt.PyJWKClient(f"{address}{JWKS}")
        for token in (before.access, traffics[0].signing.access, traffics[1].signing.access):
            signing_key = client.get_signing_key_from_jwt(token)
            assert jwt.decode(token, signing_key, algorithms=["RS256"], issuer=first)["exp"]
        old = Shell(address)
        old.access = before.access
        assert old.get("/v1/auth/me").status_code == 200

    _assert_an_emergency_voids_them(hosts, database, before, traffics)


def _assert_an_emergency_voids_them(
    hosts: list[str], database: Database, before: Shell, traffics: list[Traffic]
) -> None:
    """Within the seconds of a reload, on every host; what the new key signs is taken at once."""
    void = [before.access, *(each.signing.access for each in traffics)]
    with database.rows():
        key = replace_signing_keys(by=BY, now=datetime.now(UTC))

    def status(address: str, token: str) -> int:
        shell = Shell(address)
        shell.access = token
        return shell.get("/v1/auth/me").status_code

    # Several times each, because a host has several processes.
    asked = [(address, token) for address in hosts for token in void] * 4
    eventually(lambda: {status(*each) for each in asked} == {401})
    for each in traffics:
        assert kid_of(each.signing) == key.kid
        assert {status(address, each.signing.access) for address in hosts * 4} == {200}


def test_no_forgery_is_believed_over_the_wire(
    service: Service, database: Database, shell: Shell
) -> None:
    kid = str(jwt.get_unverified_header(shell.access)["kid"])
    with database.rows():
        assert SigningKey.objects.filter(kid=kid).exists()
        ring = KeyRing()
        _, key = ring.signer(now=datetime.now(UTC))
    stranger = Shell(service.url)
    paths = ["/v1/auth/me", "/v1/usage/me", "/v1/license/status", "/v1/llm/models"]
    for number, (what, token) in enumerate(forgeries(shell.access, kid=kid, key=key).items()):
        stranger.access = ""
        answer = stranger.get(
            paths[number % len(paths)], headers={"Authorization": f"Bearer {token}".encode()}
        )
        if what == "long":
            assert answer.status_code in {401, 431}
            continue
        assert (answer.status_code, answer.json()["code"]) == (401, "invalid_access_token"), what
        assert 'error="invalid_token"' in answer.headers["WWW-Authenticate"], what
