"""The rate limits themselves, as they are by default: two processes that count together in a Redis of their own."""

import json
import time
from collections.abc import Iterator
from datetime import datetime
from email.utils import parsedate_to_datetime
from http.client import HTTPConnection
from itertools import count
from uuid import uuid4

import pytest
import requests
from django_ratelimit.core import _get_window

from tests.platform.edge.ratelimits.own_redis import OwnRedis, own_redis
from tests.served.conftest import Ground, SignIn
from tests.served.crowd import all_at_once
from tests.served.database import Database
from tests.served.ledger import records_of
from tests.served.people import Person, add_person
from tests.served.service import HOST, WORKERS, Service, running_service
from tests.served.shell import PATIENCE, Shell, asked
from tests.tools.redis import available
from tests.waiting import eventually

pytestmark = pytest.mark.skipif(not available(), reason="no Redis for this Python")

MINUTE = 60
# A limit's minute is another one for each key. Tests use keys whose minute goes on for at least so many seconds.
ENOUGH = 50
DEGRADED = "X-RateLimit-Degraded"
_addresses = (f"127.{number // 250 + 1}.{number % 250 + 1}.9" for number in count())


@pytest.fixture(scope="module")
def cache() -> Iterator[OwnRedis]:
    with own_redis() as server:
        yield server


@pytest.fixture(scope="module")
def limited(ground: Ground, cache: OwnRedis) -> Iterator[Service]:
    defaults = {"RATE_LIMITS": "", "CACHE_URL": cache.url}
    with running_service(ground.folder, {**ground.environ, **defaults}) as service:
        yield service
        assert service.errors() == []


@pytest.fixture(scope="module")
def locking(ground: Ground, cache: OwnRedis) -> Iterator[Service]:
    """Locks accounts for an hour: ten tries may take a busy machine longer than the minute that it is by default."""
    limits = {"RATE_LIMITS": "auth.account=10/h", "CACHE_URL": cache.url}
    with running_service(ground.folder, {**ground.environ, **limits}) as service:
        yield service
        assert service.errors() == []


@pytest.fixture
def stranger(limited: Service) -> Shell:
    """Nobody in particular, at an address that nobody has used."""
    return Shell(limited.url, address=fresh_address())


def fresh_address() -> str:
    """One of this machine's own sixteen million, each of them once."""
    return next(filter(_has_time, _addresses))


def newcomer(database: Database) -> Person:
    """Somebody whose minute as a caller has just begun."""
    return add_person(
        database,
        user_id=next(each for each in (uuid4() for _ in count()) if _has_time(str(each))),
    )


def assert_refused(response: requests.Response) -> None:
    """With when to come back, said twice."""
    assert response.status_code == 429
    problem = response.json()
    assert problem["code"] == "rate_limited"
    wait = int(response.headers["Retry-After"])
    assert 1 <= wait <= MINUTE + 1
    until = datetime.fromisoformat(problem["retry_after_iso"])
    assert problem["retry_after_iso"].endswith("Z")
    said_at = parsedate_to_datetime(response.headers["Date"])
    assert abs((until - said_at).total_seconds() - wait) < 5
    assert DEGRADED not in response.headers


def test_an_address_may_ask_about_access_sixty_times_a_minute(
    limited: Service, stranger: Shell
) -> None:
    shell = stranger
    for _ in range(58):
        assert shell.post("/v1/auth/logout", {"refresh": "x"}).status_code == 204
    # Everything under that path counts, whatever comes of it.
    assert shell.get("/v1/auth/me").status_code == 401
    assert shell.call("DELETE", "/v1/auth/nothing").status_code == 404
    for response in (
        shell.post("/v1/auth/logout", {"refresh": "x"}),
        shell.get("/v1/auth/me"),
        shell.login("ada@example.test", "a password"),
        shell.get("/v1/auth/me", headers={"X-Forwarded-For": "198.51.100.7"}),
        shell.get("/v1/auth/me", headers={"X-Real-IP": "198.51.100.7", "Forwarded": "for=1.1.1.1"}),
        shell.post("/admin/login/", headers={"Accept": "application/json"}),
    ):
        assert_refused(response)
    assert shell.get("/v1/license/status").status_code == 401
    assert shell.get("/admin/login/").status_code == 200
    assert Shell(limited.url, address=fresh_address()).get("/v1/auth/me").status_code == 401


def test_an_address_may_look_at_the_licence_six_hundred_times_a_minute(
    limited: Service, stranger: Shell
) -> None:
    address = fresh_address()
    connection = HTTPConnection(HOST, limited.port, source_address=(address, 0), timeout=PATIENCE)
    for _ in range(600):
        connection.request("GET", "/v1/license/status")
        response = connection.getresponse()
        response.read()
        assert response.status == 401
    connection.close()
    assert_refused(Shell(limited.url, address=address).get("/v1/license/status"))
    assert stranger.get("/v1/license/status").status_code == 401


def test_a_person_may_call_models_thirty_times_a_minute_from_everywhere_together(
    limited: Service, database: Database, sign_in: SignIn
) -> None:
    person, other = newcomer(database), newcomer(database)
    shells = [sign_in(limited, person, address=fresh_address()) for _ in range(2)]
    calls = [shells[number % 2].complete("Hello", max_tokens=16) for number in range(29)]
    assert {call.status_code for call in calls} == {200}
    # A call that is refused for what it asks counts as well, or a limit would not guard anything.
    assert shells[0].post("/v1/llm/complete", {}).status_code == 400
    for path in ("complete", "stream", "chat/completions"):
        refused = shells[0].post(f"/v1/llm/{path}", {"messages": []})
        assert_refused(refused)
        assert refused.json()["error"]["code"] == "rate_limited"
        assert refused.json()["error"]["type"] == "rate_limit_error"
    # Neither looking at models nor at usage is a call, and others go on.
    assert shells[0].get("/v1/llm/models").status_code == 200
    assert shells[0].usage()["calls"] == 29
    assert sign_in(limited, other, address=fresh_address()).complete("Hi").status_code == 200
    assert len(records_of(database, person)) == 29


def test_a_count_whose_length_is_not_said_counts_by_what_came(
    limited: Service, database: Database, sign_in: SignIn
) -> None:
    shell = sign_in(limited, newcomer(database), address=fresh_address())
    body = json.dumps({"model": "stand-in-small", "input": "Hello"}).encode()
    headers = {"Content-Type": "application/json"}
    path = "/v1/llm/responses/input_tokens"
    counts = [shell.post(path, data=iter([body]), headers=headers) for _ in range(5)]
    assert [each.status_code for each in counts] == [200] * 5
    too_large = shell.post(path, data=iter([b" " * 8 * 1024 * 1024, b" "]), headers=headers)
    assert too_large.status_code == 413
    large = [b" " * (8 * 1024 * 1024 - 2), b"{}"]
    ends = [shell.post(path, data=iter(large), headers=headers).status_code for _ in range(4)]
    assert ends == [400, 400, 400, 429]


@pytest.mark.full
def test_ten_wrong_passwords_lock_an_account_for_a_minute_wherever_they_come_from(
    limited: Service, database: Database
) -> None:
    person = newcomer(database)
    for number in range(10):
        shell = Shell(limited.url, address=fresh_address())
        # Another spelling of the email is the same account.
        email = person.email.upper() if number % 2 else person.email
        wrong = shell.login(email, "not the password")
        assert (wrong.status_code, wrong.json()["code"]) == (401, "invalid_credentials")
    elsewhere = Shell(limited.url, address=fresh_address())
    assert_refused(elsewhere.login(person.email, "not the password"))
    assert_refused(elsewhere.login(person.email, person.password))
    other = newcomer(database)
    assert elsewhere.login(other.email, other.password).status_code == 200


def test_ten_of_many_wrong_passwords_at_once_are_tried(
    locking: Service, database: Database
) -> None:
    person = newcomer(database)

    def guess(number: int) -> int:
        shell = Shell(locking.url, address=f"127.77.{number}.1")
        return shell.login(person.email, f"guess {number}").status_code

    statuses = list(all_at_once(40, guess))
    # On a busy machine some wait in vain for the ten to end, and some of the ten for their turn.
    assert set(statuses) <= {401, 429, 503}
    assert statuses.count(401) <= 10
    # A request that timed out while it waited for a turn has returned it.
    while (status := guess(len(statuses))) != 429:
        statuses.append(status)
    assert statuses.count(401) == 10


def test_a_person_known_where_he_is_signs_in_while_strangers_guess(
    limited: Service, database: Database
) -> None:
    person = newcomer(database)
    desk, home, guesser, elsewhere = (Shell(limited.url, address=fresh_address()) for _ in range(4))
    for shell, device in ((desk, "desk-7"), (home, "")):
        body = {"email": person.email, "password": person.password, "device_fp": device}
        assert shell.post("/v1/auth/login", body).status_code == 200
    while guesser.login(person.email, "a guess").status_code == 401:
        continue
    assert_refused(elsewhere.login(person.email, person.password))
    # At an address from which he has signed in before, and with a device that is known at one that is not.
    assert home.login(person.email, person.password).status_code == 200
    body = {"email": person.email, "password": person.password, "device_fp": "desk-7"}
    assert elsewhere.post("/v1/auth/login", body).status_code == 200
    # He too may be wrong ten times and no more.
    wrong = [desk.login(person.email, "forgotten").status_code for _ in range(11)]
    assert wrong == [401] * 10 + [429]
    assert home.login(person.email, person.password).status_code == 200


def test_an_office_behind_one_address_signs_in_on_monday_at_nine(
    ground: Ground, cache: OwnRedis
) -> None:
    variables = {
        "RATE_LIMITS": "auth.ip=20/m",
        "CACHE_URL": cache.url,
        "RATE_LIMIT_NETWORKS": "127.88.0.0/16=3",
        "TRUSTED_PROXIES": "127.99.0.1/32",
    }

    def through(service: Service, client: str) -> int:
        proxy = Shell(service.url, address="127.99.0.1")
        ask = proxy.post("/v1/auth/logout", {"refresh": "x"}, headers={"X-Forwarded-For": client})
        return ask.status_code

    with running_service(ground.folder, {**ground.environ, **variables}) as service:
        office = next(f"127.88.{n}.9" for n in count() if _has_time(f"127.88.{n}.9"))
        assert {through(service, office) for _ in range(60)} == {204}
        assert through(service, office) == 429
        stranger = fresh_address()
        assert {through(service, stranger) for _ in range(20)} == {204}
        assert through(service, stranger) == 429


def test_an_account_that_nobody_has_is_locked_just_the_same(locking: Service) -> None:
    email = f"{uuid4().hex[:8]}@nobody.test"
    shell = Shell(locking.url, address=fresh_address())
    assert {shell.login(email, "a password").status_code for _ in range(10)} == {401}
    refused = shell.login(email, "a password")
    assert (refused.status_code, refused.json()["code"]) == (429, "rate_limited")


def test_limits_go_on_in_each_process_without_redis_and_say_so(
    limited: Service, cache: OwnRedis, stranger: Shell
) -> None:
    def ask(shell: Shell) -> requests.Response:
        return shell.post("/v1/auth/logout", {"refresh": "x"})

    assert DEGRADED not in ask(stranger).headers
    cache.kill()
    try:
        answers: list[requests.Response] = []
        while not answers or answers[-1].status_code == 204:
            answers.append(ask(stranger))
            assert len(answers) <= 60 * WORKERS + 1
        assert len(answers) > 60
        assert {answer.headers[DEGRADED] for answer in answers} == {"1"}
        assert answers[-1].json()["code"] == "rate_limited"
        health = requests.get(f"{limited.url}/healthz", timeout=PATIENCE)
        assert (health.status_code, health.json()["status"]) == (200, "degraded")
    finally:
        cache.start()
    again = Shell(limited.url, address=fresh_address())
    # Each process tries Redis again by itself.
    eventually(lambda: all(DEGRADED not in ask(again).headers for _ in range(6)))


def test_model_calls_go_on_being_counted_without_redis_whatever_their_path(
    limited: Service, database: Database, cache: OwnRedis, sign_in: SignIn
) -> None:
    person = newcomer(database)
    shell = sign_in(limited, person, address=fresh_address())
    paths = ("complete", "stream", "chat/completions")
    cache.kill()
    try:
        answers: list[requests.Response] = []
        while not answers or answers[-1].status_code == 200:
            body = asked("Hello", max_tokens=16)
            answers.append(shell.post(f"/v1/llm/{paths[len(answers) % 3]}", body))
            assert len(answers) <= 30 * WORKERS + 1
        assert len(answers) > 30
        assert {answer.headers[DEGRADED] for answer in answers} == {"1"}
        refused = answers[-1].json()
        assert refused["code"] == refused["error"]["code"] == "rate_limited"
        assert len(records_of(database, person)) == len(answers) - 1
    finally:
        cache.start()
    eventually(lambda: all(DEGRADED not in shell.get("/v1/auth/me").headers for _ in range(6)))


def _has_time(key: str) -> bool:
    left: float = _get_window(key, MINUTE) - time.time()
    return left > ENOUGH
