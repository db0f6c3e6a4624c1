"""Requests to a provider and its answers: their destination, key and authority."""

import ipaddress
import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509

from config.platform.http.retries import MOST_ATTEMPTS
from tests.served.conftest import Ground, SignIn
from tests.served.database import Database
from tests.served.ledger import records_of
from tests.served.people import Person
from tests.served.service import HOST, WORKERS, Service, running_service
from tests.served.shell import DONE, PATIENCE, Shell, asked, stand_in, text_of
from tests.standins.anthropic_server import message, messages_server, text
from tests.standins.provider_process import Provider
from tests.standins.raw_server import CHUNKED, Authority, Peer, playing

LOOPBACK = x509.IPAddress(ipaddress.ip_address(HOST))
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}


# Hosts


@pytest.fixture
def elsewhere() -> Iterator[socket.socket]:
    """A place that nothing of a call may lead to."""
    with socket.create_server((HOST, 0)) as listener:
        listener.settimeout(0)
        yield listener


def address_of(listener: socket.socket) -> str:
    return f"http://{HOST}:{listener.getsockname()[1]}/v1"


def assert_nobody_came(listener: socket.socket) -> None:
    with pytest.raises(BlockingIOError):
        listener.accept()


@pytest.mark.parametrize(
    "name",
    ["api_base", "base_url", "api_key", "host", "extra_headers", "provider", "litellm_params", "fallbacks"],
)  # fmt: skip
def test_nothing_in_a_body_chooses_where_a_call_goes_or_with_which_key(
    shell: Shell, provider: Provider, elsewhere: socket.socket, name: str
) -> None:
    there = address_of(elsewhere)
    message = {"role": "user", "content": "Hello"}
    image = {"type": "image_url", "image_url": {"url": "https://a.test/b.png", name: there}}
    bodies: dict[str, dict[str, Any]] = {
        f"/{name}": {name: there},
        f"/messages/0/{name}": {"messages": [{**message, name: there}]},
        f"/messages/0/content/0/image_url/{name}": {
            "messages": [{"role": "user", "content": [image]}]
        },
        f"/tools/0/{name}": {"tools": [{**TOOL, name: there}]},
        f"/tools/0/function/{name}": {
            "tools": [{**TOOL, "function": {**TOOL["function"], name: there}}]  # type: ignore[dict-item]
        },
        f"/tool_choice/{name}": {
            "tools": [TOOL],
            "tool_choice": {"type": "function", "function": {"name": "f"}, name: there},
        },
        f"/response_format/{name}": {"response_format": {"type": "text", name: there}},
        f"/stream_options/{name}": {"stream_options": {name: there}},
    }
    for pointer, members in bodies.items():
        answer = shell.post("/v1/llm/complete", {**asked("Hello"), **members})
        assert (answer.status_code, answer.json()["code"]) == (400, "invalid_request")
        assert pointer in {fault["pointer"] for fault in answer.json()["errors"]}
    assert provider.stats()["requests"] == 0
    assert_nobody_came(elsewhere)


@pytest.mark.parametrize("host", [HOST, "a.test", "name@a.test"])
def test_a_provider_on_this_machine_fetches_no_images(
    shell: Shell, provider: Provider, elsewhere: socket.socket, host: str
) -> None:
    image = f"https://{host}:{elsewhere.getsockname()[1]}/image.png"
    content = [{"type": "image_url", "image_url": {"url": image}}]
    answer = shell.post("/v1/llm/complete", {"messages": [{"role": "user", "content": content}]})
    (fault,) = answer.json()["errors"]
    assert (answer.status_code, fault["code"]) == (400, "data_only")
    assert fault["pointer"] == "/messages/0/content/0/image_url/url"
    assert provider.stats()["requests"] == 0
    assert_nobody_came(elsewhere)


def test_an_image_that_is_taken_is_data_wherever_it_points(
    shell: Shell, provider: Provider, elsewhere: socket.socket
) -> None:
    there = address_of(elsewhere)
    image = "data:image/png;base64,AAAA"
    parts = [
        {"type": "text", "text": there},
        {"type": "image_url", "image_url": {"url": image}},
    ]
    answer = shell.post(
        "/v1/llm/complete",
        {
            "messages": [{"role": "user", "content": parts}],
            "model": "stand-in-small",
            "user": there,
            "metadata": {"api_base": there, "base_url": there},
            "tools": [{**TOOL, "function": {"name": "f", "parameters": {"api_base": there}}}],
        },
    )
    assert answer.status_code == 200, answer.text
    sent = provider.last()["body"]
    assert sent["messages"][0]["content"] == parts
    assert not {"user", "metadata"} & sent.keys()
    assert_nobody_came(elsewhere)


def test_a_models_name_is_none_of_an_address(shell: Shell, elsewhere: socket.socket) -> None:
    for name in (address_of(elsewhere), "../models", "openai/stand-in-small", "a?b=c", "a\nb"):
        assert shell.complete("Hello", model=name).json()["code"] == "not_found"
    assert_nobody_came(elsewhere)


def test_no_header_of_a_caller_goes_on_and_none_of_a_provider_comes_back(
    shell: Shell, provider: Provider, elsewhere: socket.socket
) -> None:
    there = address_of(elsewhere)
    given = {
        "X-Forwarded-Host": there, "X-Original-URL": there, "X-Api-Base": there, "Referer": there,
        "x-api-key": "k", "api-key": "k", "OpenAI-Organization": "o", "OpenAI-Beta": "b", "Cookie": "a=b",
        "anthropic-version": "v", "X-Stainless-Retry-Count": "0", "traceparent": "00-1-2-01",
        "X-Request-ID": "shell-12345678", "Forwarded": f"host={there}", "Via": "1.1 me",
    }  # fmt: skip
    for streamed in (False, True):
        path = "/v1/llm/stream" if streamed else "/v1/llm/complete"
        answer = shell.post(path, asked("Hello"), headers=given)
        assert answer.status_code == 200, answer.text
        assert provider.last()["header_names"] == [
            "accept",
            "accept-encoding",
            "authorization",
            "content-length",
            "content-type",
            "host",
            "user-agent",
        ]
        theirs = ("openai-", "server", "set-cookie")
        names = [name.lower() for name in answer.headers]
        assert [
            name for name in names if name.startswith(theirs) and answer.headers[name] != "gunicorn"
        ] == []
        # Of the same name as the provider's, but of this service's own limit.
        assert answer.headers["x-ratelimit-remaining-requests"] != "9999"
    assert_nobody_came(elsewhere)


# The credential


def replace(file: Path, value: str) -> None:
    """As operators and their tools do it: written beside, then moved into place."""
    beside = file.with_suffix(".new")
    beside.write_text(value + "\n")
    beside.replace(file)


def log_of(service: Service) -> str:
    return service.child.program.log.read_text()


def test_the_credential_is_replaced_while_calls_run_and_shown_nowhere(
    ground: Ground, database: Database, person: Person, sign_in: SignIn, tmp_path: Path
) -> None:
    keys = ["sk-the-first-key-0001", "sk-the-second-key-0002", "sk-the-third-key-0003"]
    file = tmp_path / "key"
    replace(file, keys[0])
    shown: list[str] = []
    with messages_server(message(text("Hello")), api_key=keys[0]) as server:
        environ = {
            **ground.environ,
            "LLM_PROVIDER": "anthropic",
            "LLM_BASE_URL": server.base_url,
            "LLM_API_KEY": "",
            "LLM_API_KEY_FILE": str(file),
        }
        with running_service(tmp_path, environ) as service:
            shell = sign_in(service, person)
            server.flows.clear()
            with shell.stream("Hello") as stream:
                stream.next_event()
                replace(file, keys[1])
                server.api_key = keys[1]
                server.flows.set()
                # Each call has a connection of its own, so that all workers get their share.
                answers = [shell.complete("Hello") for _ in range(4 * WORKERS)]
                assert {answer.status_code for answer in answers} == {200}
                assert list(stream)[-1] == DONE
            assert service.errors() == []

            # The provider takes neither the old one nor this one any more.
            server.api_key = "another"
            for _ in range(4 * WORKERS):
                answer = shell.complete("Hello")
                assert (answer.status_code, answer.json()["code"]) == (502, "provider_error")
                shown.append(answer.text)
            told = [json.loads(line) for line in service.errors()]
            assert {line["event"] for line in told} == {"provider_refuses_credential"}
            assert 1 <= len(told) <= WORKERS

            # An empty file, as half a replacement leaves it, changes nothing; the next one counts.
            file.write_text("")
            shell.complete("Hello")
            replace(file, keys[2])
            server.api_key = keys[2]
            assert {shell.complete("Hello").status_code for _ in range(2 * WORKERS)} == {200}
            shown.append(log_of(service))
    with database.rows():
        rows = [str(row.__dict__) for row in records_of(database, person)]
    assert [
        key for key in (*keys, "another-") if any(key in each for each in (*shown, *rows))
    ] == []


# TLS


def answers(peer: Peer) -> None:
    """One answer a connection, so that each call has to look at a certificate; a stream goes on for ever."""
    body = json.loads(peer.request().partition(b"\r\n\r\n")[2])
    delta = {"role": "assistant", "content": "Hello"}
    choice = {"index": 0, "finish_reason": "stop"}
    if body.get("stream"):
        chunk = {"choices": [{**choice, "finish_reason": None, "delta": delta}]}
        peer.send(CHUNKED)
        peer.chunk(b"data: %s\n\n" % json.dumps(chunk).encode())
    else:
        peer.answer(json.dumps({"choices": [{**choice, "message": delta}]}).encode())
        peer.close()


@contextmanager
def trusting(ground: Ground, folder: Path, bundle: Path, url: str) -> Iterator[Service]:
    short = {"LLM_KEEPALIVE_SECONDS": "0.2", "LLM_CONNECT_TIMEOUT": "10"}
    own = {"LLM_BASE_URL": url, "LLM_CA_BUNDLE": str(bundle), **short}
    with running_service(folder, {**ground.environ, **own}) as service:
        yield service
        assert service.errors() == []


def test_a_provider_is_believed_by_its_certificate_alone_and_let_go_over_tls_too(
    ground: Ground, person: Person, sign_in: SignIn, tmp_path: Path
) -> None:
    (tmp_path / "other").mkdir()
    ours, others = Authority(tmp_path), Authority(tmp_path / "other")
    with playing(answers, ours.server(LOOPBACK)) as provider:
        base = provider.url.removesuffix("/chat")
        with trusting(ground, tmp_path, ours.bundle, base) as service:
            shell = sign_in(service, person)
            good = shell.complete("Hello")
            assert good.status_code == 200, good.text
            assert good.json()["choices"][0]["message"]["content"] == "Hello"

            with shell.stream("Hello") as stream:
                assert text_of([stream.next_event()]) == "Hello"
            assert provider.gone.wait(PATIENCE)

            wrong = {
                "of an authority that nobody knows": others.server(LOOPBACK),
                "for another name": ours.server(x509.DNSName("provider.test")),
            }
            for context in wrong.values():
                provider.tls = context
                answer = shell.complete("Hello")
                assert (answer.status_code, answer.json()["code"]) == (503, "provider_unavailable")
                # A handshake that takes longer than a keep-alive makes the failure an event.
                answer = shell.post("/v1/llm/stream", asked("Hi"))
                assert answer.status_code in {200, 503}
                assert "provider_unavailable" in answer.text


# Tries


@pytest.mark.parametrize("streamed", [False, True], ids=["one-shot", "stream"])
def test_a_busy_provider_is_asked_again_and_the_call_is_one_record_that_costs_nothing(
    shell: Shell, provider: Provider, database: Database, person: Person, streamed: bool
) -> None:
    path = "/v1/llm/stream" if streamed else "/v1/llm/complete"
    answer = shell.post(path, asked(stand_in("fault=status:503")))
    assert (answer.status_code, answer.json()["code"]) == (503, "provider_unavailable")
    assert provider.stats()["requests"] == MOST_ATTEMPTS
    (record,) = records_of(database, person)
    assert (record.end, record.input_tokens, record.output_tokens) == ("provider_failed", 0, 0)


def test_nobody_is_asked_again_where_somebody_may_have_been_charged(
    shell: Shell, provider: Provider
) -> None:
    for fault in ("status:500", "status:429", "status:502", "html"):
        provider.reset()
        assert shell.complete(stand_in(f"fault={fault}")).status_code >= 500
        assert provider.stats()["requests"] == 1
