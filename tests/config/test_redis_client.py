"""Commands over few connections, none of which is ever in a state that nobody knows."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from redis.exceptions import ResponseError, TimeoutError  # noqa: A004 - as its client knows it

from config.redis_client import CONNECTIONS, LeanRedis
from tests.config.own_redis import OwnRedis, own_redis
from tests.tools.redis import available

pytestmark = pytest.mark.skipif(not available(), reason="no Redis for this Python")


@pytest.fixture(scope="module")
def server() -> Iterator[OwnRedis]:
    with own_redis() as server:
        yield server


@pytest.fixture
def client(server: OwnRedis) -> LeanRedis:
    return LeanRedis(server.url, seconds=0.5)


def connected(server: OwnRedis) -> int:
    with server.client() as other:
        return len(other.client_list()) - 1


def test_one_caller_needs_one_connection(client: LeanRedis, server: OwnRedis) -> None:
    before = connected(server)
    assert [client.incr("one") for _ in range(5)] == [1, 2, 3, 4, 5]
    assert connected(server) == before + 1


def test_many_callers_share_a_bounded_number(client: LeanRedis, server: OwnRedis) -> None:
    before = connected(server)
    patient = LeanRedis(server.url, seconds=30)
    with ThreadPoolExecutor(2 * CONNECTIONS) as pool:
        numbers = list(pool.map(lambda _: patient.incr("many"), range(500)))
    assert sorted(numbers) == list(range(1, 501))
    assert connected(server) <= before + CONNECTIONS


def test_a_refused_command_leaves_the_connection_as_it_was(client: LeanRedis) -> None:
    client.set("text", "word")
    with pytest.raises(ResponseError):
        client.incr("text")
    assert client.get("text") == b"word"


def test_an_answer_that_comes_too_late_is_nobodys(client: LeanRedis, server: OwnRedis) -> None:
    client.set("a", "late")
    with server.frozen(), pytest.raises(TimeoutError):
        client.get("a")
    assert client.get("b") is None


def test_what_the_server_closed_is_opened_anew(client: LeanRedis, server: OwnRedis) -> None:
    client.set("a", 1)
    with server.client() as other:
        other.client_kill_filter(_type="normal", skipme=True)
    assert client.get("a") == b"1"


def test_commands_that_go_together_are_answered_in_their_order(
    client: LeanRedis, server: OwnRedis
) -> None:
    before = connected(server)
    commands = [("SET", "text", "word"), ("INCRBY", "n", 2), ("INCR", "text"), ("GET", "n")]
    done, number, refusal, again = client.execute_all(commands)
    assert (done, number, again) == (b"OK", 2, b"2")
    assert isinstance(refusal, ResponseError)
    assert client.get("text") == b"word"
    assert connected(server) == before + 1


def test_answers_that_come_too_late_are_nobodys(client: LeanRedis, server: OwnRedis) -> None:
    client.set("a", "late")
    with server.frozen(), pytest.raises(TimeoutError):
        client.execute_all([("GET", "a"), ("GET", "a")])
    assert client.get("b") is None
