"""The stand-in provider as a server: its process, its HTTP, its keys, its counters."""

import http.client
import json
import signal
import subprocess
import sys

import openai
import pytest
import requests

from tests.standins.provider_process import DEADLINE, ROOT, Provider, running_provider
from tests.standins.wire import (
    KEY,
    ask,
    connect,
    post,
    read_to_the_end,
    read_until,
    receive,
    request_bytes,
)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_ends_at_once_when_told_to_with_streams_open(number: signal.Signals) -> None:
    with running_provider() as provider, connect(provider) as client:
        client.sendall(request_bytes(ask("[[stand-in: fault=stall after=1]]", stream=True)))
        read_until(client, b"\n\n")
        provider.process.send_signal(number)
        assert provider.process.wait(DEADLINE) == 0
        _, reset = read_to_the_end(client)
        assert not reset


def test_a_killed_stand_in_frees_its_port_for_the_next() -> None:
    with running_provider() as first:
        port = first.port
        assert post(first, ask("hello")).status_code == requests.codes.ok
        first.kill()
    with running_provider(port=port) as second:
        assert second.port == port
        assert post(second, ask("hello")).status_code == requests.codes.ok
        assert second.stop() == 0


def test_it_ends_with_whoever_started_it() -> None:
    with running_provider() as provider:
        assert provider.process.stdin is not None
        provider.process.stdin.close()
        assert provider.process.wait(DEADLINE) == 0


def test_a_taken_port_is_a_clear_error(provider: Provider) -> None:
    command = [sys.executable, "-m", "tests.standins.provider", "--port", str(provider.port)]
    ended = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=DEADLINE, check=False
    )
    assert ended.returncode == 1
    assert ended.stdout == ""
    assert ended.stderr.startswith(f"cannot listen on 127.0.0.1:{provider.port}: ")
    assert ended.stderr.count("\n") == 1


def test_one_connection_serves_many_requests(provider: Provider) -> None:
    connection = http.client.HTTPConnection(provider.host, provider.port, timeout=DEADLINE)
    headers = {"Authorization": f"Bearer {KEY}"}
    for text in ("one", "two", "three"):
        for stream, end in ((True, b"data: [DONE]\n\n"), (False, b"}")):
            body = json.dumps(ask(text, stream=stream))
            connection.request("POST", "/v1/chat/completions", body, headers)
            assert connection.getresponse().read().endswith(end)
    stats = provider.stats()
    assert stats["requests"] == 6
    assert (stats["connections"], stats["connections_open"]) == (1, 1)
    connection.close()
    provider.wait_for(lambda now: now["connections_open"] == 0)


def test_pipelined_requests_are_answered_in_their_order(provider: Provider) -> None:
    with connect(provider) as client:
        client.sendall(
            request_bytes(ask("first"))
            + request_bytes(ask("second", stream=True))
            + request_bytes(ask("third"), headers="Connection: close\r\n")
        )
        data, _ = read_to_the_end(client)
    text = data.decode()
    assert text.count("HTTP/1.1 200 OK\r\n") == 3
    assert text.index("first") < text.index("[DONE]") < text.index("third")


def test_a_chunked_request_body_is_read(provider: Provider) -> None:
    raw = json.dumps(ask("in pieces")).encode()
    connection = http.client.HTTPConnection(provider.host, provider.port, timeout=DEADLINE)
    connection.request(
        "POST",
        "/v1/chat/completions",
        body=iter([raw[:7], raw[7:20], raw[20:]]),
        headers={"Authorization": f"Bearer {KEY}"},
        encode_chunked=True,
    )
    assert "in pieces" in connection.getresponse().read().decode()
    connection.close()
    assert provider.last() == ask("in pieces")


def test_a_client_that_waits_for_the_go_ahead_gets_it(provider: Provider) -> None:
    request = request_bytes(ask("hello"), headers="Expect: 100-continue\r\nConnection: close\r\n")
    head, mark, body = request.partition(b"\r\n\r\n")
    with connect(provider) as client:
        client.sendall(head + mark)
        assert read_until(client, b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        client.sendall(body)
        data, _ = read_to_the_end(client)
    assert data.startswith(b"HTTP/1.1 200 OK\r\n")


def test_a_stream_to_an_old_client_ends_with_the_connection(provider: Provider) -> None:
    got = receive(provider, ask("hello", stream=True), version="HTTP/1.0")
    assert "transfer-encoding" not in got.head.lower()
    assert "Connection: close" in got.head
    assert got.body.startswith(b'data: {"id":')
    assert got.body.endswith(b"data: [DONE]\n\n")


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nno colon\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nContent-Length: many\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 400),
        (b"POST / HTTP/1.1\r\nContent-Length: 999999999\r\n\r\n", 413),
        (b"GET / HTTP/1.1\r\nX: " + b"x" * 70_000, 431),
    ],
)
def test_what_is_not_http_is_refused_and_the_connection_closed(
    provider: Provider, sent: bytes, status: int
) -> None:
    with connect(provider) as client:
        client.sendall(sent)
        data, _ = read_to_the_end(client)
    head, _, body = data.partition(b"\r\n\r\n")
    assert head.startswith(f"HTTP/1.1 {status} ".encode())
    assert json.loads(body)["error"]["type"] == "invalid_request_error"


def test_other_addresses_and_methods_are_refused_in_the_same_shape(provider: Provider) -> None:
    with requests.Session() as session:
        session.trust_env = False
        missing = session.get(f"{provider.base_url}/embeddings", timeout=DEADLINE)
        wrong = session.get(f"{provider.base_url}/chat/completions", timeout=DEADLINE)
    assert missing.status_code == requests.codes.not_found
    assert missing.json()["error"]["message"] == "Invalid URL (GET /v1/embeddings)"
    assert wrong.status_code == requests.codes.method_not_allowed
    assert wrong.headers["Allow"] == "POST"


def test_a_call_needs_a_key_and_any_will_do(provider: Provider) -> None:
    with requests.Session() as session:
        session.trust_env = False
        for path in ("/models", "/models/stand-in-small"):
            refused = session.get(provider.base_url + path, timeout=DEADLINE)
            assert refused.status_code == requests.codes.unauthorized
            assert refused.json()["error"]["type"] == "invalid_request_error"
    assert post(provider, ask("hello"), key="").status_code == requests.codes.unauthorized
    assert post(provider, ask("hello"), key="anything").status_code == requests.codes.ok


def test_with_a_key_of_its_own_only_that_one_is_taken() -> None:
    with running_provider(api_key="right-key") as provider:
        assert post(provider, ask("hello"), key="right-key").status_code == requests.codes.ok
        refused = post(provider, ask("hello"), key="wrong-key")
        with (
            openai.OpenAI(base_url=provider.base_url, api_key="other") as client,
            pytest.raises(openai.AuthenticationError),
        ):
            client.models.list()
        stats = provider.stats()
    assert refused.status_code == requests.codes.unauthorized
    assert refused.json()["error"]["code"] == "invalid_api_key"
    assert "wrong-key" not in refused.text
    assert stats["responses"] == {"200": 1, "401": 1}


def test_the_sdk_lists_the_models(provider: Provider) -> None:
    with openai.OpenAI(base_url=provider.base_url, api_key=KEY) as client:
        assert [model.id for model in client.models.list()] == ["stand-in-small", "stand-in-large"]
        assert client.models.retrieve("stand-in-large").owned_by == "stand-in"
        with pytest.raises(openai.NotFoundError) as refused:
            client.models.retrieve("gpt-4o")
    assert refused.value.code == "model_not_found"


def test_a_test_can_see_what_was_sent_but_never_the_key(provider: Provider) -> None:
    body = ask("hello", max_completion_tokens=12, temperature=0.5, stream=True)
    post(provider, body, key="very-secret-key")
    stats = provider.stats()
    assert provider.last() == body
    assert stats["last"]["model"] == "stand-in-small"
    assert stats["last"]["output_limit"] == 12
    assert stats["last"]["stream"] is True
    assert stats["last"]["body_keys"] == sorted(body)
    assert "authorization" in stats["last"]["header_names"]
    assert "very-secret-key" not in json.dumps(stats)
    assert (stats["requests"], stats["streams_finished"], stats["streams_open"]) == (1, 1, 0)
    provider.reset()
    assert provider.last() is None
    cleared = provider.stats()
    assert (cleared["requests"], cleared["responses"], cleared["last"]) == (0, {}, None)


def test_a_refused_body_is_kept_too(provider: Provider) -> None:
    post(provider, {"model": "no-such-model", "max_tokens": 3})
    assert provider.last() == {"model": "no-such-model", "max_tokens": 3}
    assert provider.stats()["responses"] == {"404": 1}


def test_a_client_that_leaves_a_stream_is_noticed_and_counted(provider: Provider) -> None:
    with connect(provider) as client:
        client.sendall(request_bytes(ask("[[stand-in: tokens=1000 delay=60]]", stream=True)))
        read_until(client, b"\n\n")
        assert provider.stats()["streams_open"] == 1
    gone = provider.wait_for(lambda now: now["streams_open"] == 0)
    assert (gone["streams_aborted"], gone["streams_finished"], gone["calls_aborted"]) == (1, 0, 0)
    assert (gone["requests_open"], gone["connections_open"]) == (0, 0)


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_before_the_answer_is_counted(
    provider: Provider, stream: bool
) -> None:
    with connect(provider) as client:
        client.sendall(request_bytes(ask("[[stand-in: first=60]]", stream=stream)))
        provider.wait_for(lambda now: now["requests_open"] == 1)
    gone = provider.wait_for(lambda now: now["requests_open"] == 0)
    assert (gone["calls_aborted"], gone["streams_aborted"], gone["responses"]) == (1, 0, {})


def test_a_reader_that_falls_behind_holds_up_no_other(provider: Provider) -> None:
    with connect(provider) as slow:
        slow.sendall(request_bytes(ask("[[stand-in: tokens=200000]]", stream=True)))
        read_until(slow, b"\n\n")
        assert post(provider, ask("hello")).status_code == requests.codes.ok
        assert provider.stats()["streams_open"] == 1
    assert provider.wait_for(lambda now: now["streams_open"] == 0)["streams_aborted"] == 1


def test_many_streams_are_open_at_the_same_time(provider: Provider) -> None:
    body = ask("[[stand-in: fault=stall after=3]]", stream=True)
    clients = [connect(provider) for _ in range(100)]
    for client in clients:
        client.sendall(request_bytes(body))
    for client in clients:
        read_until(client, b"\n\n", times=3)
    assert provider.stats()["streams_open"] == 100
    for client in clients:
        client.close()
    gone = provider.wait_for(lambda now: now["streams_open"] == 0)
    assert (gone["streams_aborted"], gone["connections_open"]) == (100, 0)
