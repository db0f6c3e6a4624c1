"""The stand-in provider's faults and shapes, each as it is on the wire."""

import json
import time
from collections.abc import Iterator
from typing import Any

import openai
import pytest
import requests

from tests.standins.provider.tokens import count
from tests.standins.provider_process import Provider
from tests.standins.wire import (
    KEY,
    ask,
    connect,
    deltas,
    events,
    post,
    read_until,
    receive,
    request_bytes,
)

WITH_USAGE = {"stream_options": {"include_usage": True}}
CLOSING = {"headers": "Connection: close\r\n"}


@pytest.fixture
def client(provider: Provider) -> Iterator[openai.OpenAI]:
    """The SDK, pointed at the stand-in."""
    with openai.OpenAI(base_url=provider.base_url, api_key=KEY, max_retries=0) as client:
        yield client


def sdk_text(client: openai.OpenAI, text: str) -> str:
    """What the SDK reads from a stream."""
    stream = client.chat.completions.create(
        model="stand-in-small", messages=[{"role": "user", "content": text}], stream=True
    )
    return "".join(choice.delta.content or "" for chunk in stream for choice in chunk.choices)


@pytest.mark.parametrize("size", [0, 1, 17, 500])
def test_an_answer_has_as_many_tokens_as_asked_for(provider: Provider, size: int) -> None:
    chunks = events(provider, f"[[stand-in: tokens={size}]]", **WITH_USAGE)
    assert len(deltas(chunks)) == size
    assert count("".join(deltas(chunks))) == size
    assert chunks[-1]["usage"]["completion_tokens"] == size
    body = post(provider, ask(f"[[stand-in: tokens={size}]]")).json()
    assert body["choices"][0]["message"]["content"] == "".join(deltas(chunks))


def test_an_answer_has_the_words_asked_for(provider: Provider) -> None:
    text = r'ignored [[stand-in: text="Zażółć \"gęślą\"\n]] 日本語 👩‍👩‍👧 \u00e9"]] ignored'
    expected = 'Zażółć "gęślą"\n]] 日本語 👩‍👩‍👧 é'
    assert "".join(deltas(events(provider, text))) == expected
    repeated = events(provider, "[[stand-in: text=ha tokens=5]]")
    assert "".join(deltas(repeated)) == "ha ha ha ha ha"


def test_the_directive_is_not_quoted(provider: Provider) -> None:
    chunks = events(provider, "Hello [[stand-in: delay=0]] there")
    assert "".join(deltas(chunks)).startswith("You wrote: “Hello there”.")


def test_the_directive_of_the_last_user_message_counts(provider: Provider) -> None:
    messages = [
        {"role": "user", "content": "[[stand-in: fault=status:500]]"},
        {"role": "assistant", "content": "[[stand-in: fault=status:500]]"},
        {"role": "user", "content": [{"type": "text", "text": "[[stand-in: tokens=2]]"}]},
    ]
    body = post(provider, {"model": "stand-in-small", "messages": messages}).json()
    assert body["usage"]["completion_tokens"] == 2


def test_a_model_name_can_carry_the_directive(provider: Provider) -> None:
    model = "stand-in-large?tokens=3&prompt_tokens=70"
    body = post(provider, ask("[[stand-in: tokens=4]]", model=model)).json()
    assert body["model"] == model
    assert (body["usage"]["prompt_tokens"], body["usage"]["completion_tokens"]) == (70, 4)
    assert post(provider, ask("hi", model="stand-in-small?fault=status:503")).status_code == 503
    refused = post(provider, ask("hi", model="stand-in-small?fault=no"))
    assert refused.json()["error"]["param"] == "model"


@pytest.mark.parametrize(
    "directive",
    [
        "[[stand-in: colour=red]]",
        "[[stand-in: tokens=many]]",
        "[[stand-in: tokens=-1]]",
        "[[stand-in: delay=nan]]",
        "[[stand-in: tokens]]",
        "[[stand-in: fault=fire]]",
        "[[stand-in: fault=status:200]]",
        "[[stand-in: fault=status:x]]",
        "[[stand-in: done=maybe]]",
        r'[[stand-in: text="\x"]]',
        '[[stand-in: text="open]]',
        "[[stand-in: tokens=1",
        "[[stand-in: retry_after=é]]",
    ],
)
def test_a_directive_with_a_mistake_is_refused(provider: Provider, directive: str) -> None:
    refused = post(provider, ask(directive))
    assert refused.status_code == requests.codes.bad_request
    assert refused.json()["error"]["code"] == "invalid_directive"


def test_delays_are_kept(provider: Provider) -> None:
    began = time.monotonic()
    with connect(provider) as client:
        client.sendall(
            request_bytes(ask("[[stand-in: first=0.2 delay=0.1 tokens=2]]", stream=True))
        )
        assert client.recv(1)
        first = time.monotonic() - began
        read_until(client, b"[DONE]")
        assert first >= 0.2
        assert time.monotonic() - began >= 0.2 + 3 * 0.1
    began = time.monotonic()
    assert post(provider, ask("[[stand-in: first=0.1 delay=0.1 tokens=2]]")).ok
    assert time.monotonic() - began >= 0.3


def test_usage_is_reported_as_given(provider: Provider) -> None:
    text = (
        "[[stand-in: prompt_tokens=1000 cached_tokens=900 completion_tokens=500 "
        "reasoning_tokens=400]]"
    )
    expected = {
        "prompt_tokens": 1000,
        "completion_tokens": 500,
        "total_tokens": 1500,
        "cached_tokens": 900,
        "reasoning_tokens": 400,
    }
    streamed = events(provider, text, **WITH_USAGE)[-1]["usage"]
    for usage in (streamed, post(provider, ask(text)).json()["usage"]):
        flat = {
            **usage,
            **usage["prompt_tokens_details"],
            **usage["completion_tokens_details"],
        }
        assert {name: flat[name] for name in expected} == expected


def test_reasoning_is_part_of_the_output(provider: Provider) -> None:
    body = post(provider, ask("[[stand-in: tokens=10 reasoning_tokens=30]]")).json()
    assert body["usage"]["completion_tokens"] == 40


def told(chunks: list[dict[str, Any]]) -> list[tuple[int, int]]:
    """Where usage stands in a stream, and the output tokens it tells."""
    return [
        (index, chunk["usage"]["completion_tokens"])
        for index, chunk in enumerate(chunks)
        if chunk.get("usage")
    ]


@pytest.mark.parametrize(
    ("usage", "asked", "expected"),
    [
        # Events: 0 the role, 1 to 3 the deltas, 4 finish_reason, 5 what include_usage asks for.
        ("asked", True, [(5, 3)]),
        ("asked", False, []),
        ("never", True, []),
        ("twice", True, [(5, 3), (6, 3)]),
        ("twice", False, []),
        ("zero", True, [(5, 0)]),
        ("every", True, [(0, 0), (1, 1), (2, 2), (3, 3), (4, 3), (5, 3)]),
        ("every", False, [(0, 0), (1, 1), (2, 2), (3, 3), (4, 3)]),
        ("last-content", True, [(3, 3)]),
        ("last-content", False, [(3, 3)]),
        ("finish", True, [(4, 3)]),
    ],
)
def test_usage_stands_where_it_is_asked_for(
    provider: Provider, usage: str, asked: bool, expected: list[tuple[int, int]]
) -> None:
    options = WITH_USAGE if asked else {}
    chunks = events(provider, f"[[stand-in: tokens=3 usage={usage}]]", **options)
    assert told(chunks) == expected


def test_usage_in_every_chunk_ends_with_the_given_numbers(provider: Provider) -> None:
    chunks = events(provider, "[[stand-in: tokens=3 usage=every completion_tokens=90]]")
    assert told(chunks) == [(0, 0), (1, 1), (2, 2), (3, 90), (4, 90)]


def test_a_one_shot_answer_can_lack_usage_or_say_zero(provider: Provider) -> None:
    assert "usage" not in post(provider, ask("[[stand-in: usage=never]]")).json()
    assert post(provider, ask("[[stand-in: usage=zero]]")).json()["usage"]["total_tokens"] == 0


def test_done_can_be_missing(provider: Provider, client: openai.OpenAI) -> None:
    got = receive(provider, ask("[[stand-in: done=no]]", stream=True), **CLOSING)
    assert got.complete
    assert b'"finish_reason":"stop"' in got.body
    assert b"[DONE]" not in got.body
    assert sdk_text(client, "[[stand-in: done=no text=fine]]") == "fine"


def test_a_prelude_has_no_choices(provider: Provider) -> None:
    first, second, *_ = events(provider, "[[stand-in: prelude=yes]]")
    assert first["choices"] == []
    assert second["choices"][0]["delta"]["role"] == "assistant"


@pytest.mark.parametrize(
    ("part", "member"), [("refusal", "refusal"), ("reasoning", "reasoning_content")]
)
def test_text_can_come_in_another_member(provider: Provider, part: str, member: str) -> None:
    text = f'[[stand-in: part={part} text="I would rather not"]]'
    chunks = events(provider, text)
    said = [chunk["choices"][0]["delta"].get(member) or "" for chunk in chunks]
    assert "".join(said) == "I would rather not"
    assert deltas(chunks) == []
    message = post(provider, ask(text)).json()["choices"][0]["message"]
    assert (message[member], message["content"]) == ("I would rather not", None)


@pytest.mark.parametrize("stream", [False, True])
def test_a_limit_can_be_exceeded(provider: Provider, stream: bool) -> None:
    text = "[[stand-in: overrun=50]]"
    if stream:
        *chunks, finish, used = events(provider, text, max_tokens=20, **WITH_USAGE)
        assert len(deltas(chunks)) == 70
        usage, reason = used["usage"], finish["choices"][0]["finish_reason"]
    else:
        body = post(provider, ask(text, max_tokens=20)).json()
        assert count(body["choices"][0]["message"]["content"]) == 70
        usage, reason = body["usage"], body["choices"][0]["finish_reason"]
    assert (usage["completion_tokens"], reason) == (70, "length")


@pytest.mark.parametrize(
    ("framing", "event", "line"),
    [
        ("lf", b"\n\n", b"data: {"),
        ("crlf", b"\r\n\r\n", b"data: {"),
        ("cr", b"\r\r", b"data: {"),
        ("nospace", b"\n\n", b"data:{"),
        ("split", b"\n\n", b"data: {"),
        ("multiline", b"\n\n", b"data: {\ndata:  "),
        ("comments", b"\n\n", b": stand-in comment"),
    ],
)
def test_each_framing_says_the_same(
    provider: Provider, client: openai.OpenAI, framing: str, event: bytes, line: bytes
) -> None:
    text = f'[[stand-in: framing={framing} text="größer → 日本"]]'
    got = receive(provider, ask(text, stream=True), **CLOSING)
    assert got.complete
    assert got.body.startswith(line)
    assert got.body.endswith(event)
    assert len(got.body.split(event)) > 7
    assert sdk_text(client, text) == "größer → 日本"


def test_split_writes_cut_lines_and_characters(provider: Provider) -> None:
    text = '[[stand-in: framing=split text="größer"]]'
    got = receive(provider, ask(text, stream=True), **CLOSING)
    cut_in_character = [chunk for chunk in got.chunks if chunk.endswith("ö".encode()[:1])]
    assert cut_in_character
    assert b"dat" in got.chunks
    assert b"\n" in got.chunks
    with pytest.raises(UnicodeDecodeError):
        cut_in_character[0].decode()
    assert "größer" in "".join(deltas(read_events(got.body)))


def read_events(body: bytes) -> list[dict[str, Any]]:
    """The JSON events of a body framed as usual."""
    frames = body.decode().split("\n\n")
    return [json.loads(frame[6:]) for frame in frames if frame and frame != "data: [DONE]"]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("status", "raised"),
    [
        (400, openai.BadRequestError),
        (401, openai.AuthenticationError),
        (403, openai.PermissionDeniedError),
        (404, openai.NotFoundError),
        (422, openai.UnprocessableEntityError),
        (429, openai.RateLimitError),
        (500, openai.InternalServerError),
        (503, openai.InternalServerError),
    ],
)
def test_a_status_becomes_the_sdks_own_exception(
    client: openai.OpenAI, status: int, raised: type[openai.APIStatusError], stream: bool
) -> None:
    with pytest.raises(raised) as caught:
        client.chat.completions.create(
            model="stand-in-small",
            messages=[{"role": "user", "content": f"[[stand-in: fault=status:{status}]]"}],
            stream=stream,
        )
    assert caught.value.status_code == status
    assert isinstance(caught.value.body, dict)
    assert set(caught.value.body) == {"message", "type", "param", "code"}


def test_a_status_can_carry_details(provider: Provider) -> None:
    text = (
        "[[stand-in: fault=status:429 retry_after=7 code=insufficient_quota "
        'message="You have spent it all"]]'
    )
    refused = post(provider, ask(text, stream=True))
    assert refused.status_code == 429
    assert refused.headers["Retry-After"] == "7"
    assert refused.json()["error"]["code"] == "insufficient_quota"
    assert refused.json()["error"]["message"] == "You have spent it all"
    dated = post(
        provider,
        ask('[[stand-in: fault=status:503 retry_after="Wed, 21 Oct 2026 07:28:00 GMT"]]'),
    )
    assert dated.headers["Retry-After"] == "Wed, 21 Oct 2026 07:28:00 GMT"
    assert provider.stats()["responses"] == {"429": 1, "503": 1}


@pytest.mark.parametrize("stream", [False, True])
def test_a_gateway_page_is_html(provider: Provider, stream: bool) -> None:
    page = post(provider, ask("[[stand-in: fault=html]]", stream=stream))
    assert page.status_code == 502
    assert page.headers["Content-Type"].startswith("text/html")
    assert page.text.startswith("<html>")


@pytest.mark.parametrize("after", [0, 1, 3])
@pytest.mark.parametrize("fault", ["reset", "cut", "truncate"])
def test_a_stream_can_end_early_in_three_ways(provider: Provider, fault: str, after: int) -> None:
    text = f"[[stand-in: tokens=9 fault={fault} after={after}]]"
    got = receive(provider, ask(text, stream=True))
    assert got.head.startswith("HTTP/1.1 200 OK")
    assert len(got.chunks) == after
    assert (got.reset, got.complete) == (fault == "reset", fault == "truncate")
    assert b"[DONE]" not in got.body
    assert b'"finish_reason":"' not in got.body
    stats = provider.wait_for(lambda now: now["streams_open"] == 0)
    assert (stats["streams_faulted"], stats["streams_finished"]) == (1, 0)


def test_a_fault_after_the_last_event_comes_before_done(provider: Provider) -> None:
    got = receive(provider, ask("[[stand-in: tokens=2 fault=cut after=99]]", stream=True))
    assert b'"finish_reason":"stop"' in got.body
    assert b"[DONE]" not in got.body
    assert not got.complete


def test_a_stalled_stream_is_silent_until_the_client_leaves(provider: Provider) -> None:
    with connect(provider) as client:
        client.sendall(request_bytes(ask("[[stand-in: fault=stall after=2]]", stream=True)))
        read_until(client, b"\n\n\r\n", times=2)
        client.settimeout(0.3)
        with pytest.raises(TimeoutError):
            client.recv(1)
        assert provider.stats()["streams_open"] == 1
    assert provider.wait_for(lambda now: now["streams_open"] == 0)["streams_aborted"] == 1


def test_a_malformed_event_stands_among_good_ones(provider: Provider) -> None:
    text = "[[stand-in: tokens=4 fault=malformed after=2]]"
    got = receive(provider, ask(text, stream=True), **CLOSING)
    frames = got.body.decode().split("\n\n")
    with pytest.raises(json.JSONDecodeError):
        json.loads(frames[2].removeprefix("data: "))
    good = [frame for index, frame in enumerate(frames[:-2]) if index != 2]
    assert len(deltas([json.loads(frame[6:]) for frame in good])) == 4
    assert frames[-2:] == ["data: [DONE]", ""]


def test_a_gigantic_event_is_as_large_as_asked(provider: Provider) -> None:
    chunks = events(provider, "[[stand-in: tokens=2 fault=gigantic mib=3 after=1]]")
    assert [len(delta) > 100 for delta in deltas(chunks)] == [True, False, False]
    assert len(deltas(chunks)[0]) == 3 * 1024 * 1024


def test_an_error_in_the_stream_ends_it(provider: Provider, client: openai.OpenAI) -> None:
    text = '[[stand-in: fault=error-event after=2 message="out of luck" code=unlucky]]'
    got = receive(provider, ask(text, stream=True))
    *_, last = read_events(got.body)
    assert last["error"]["message"] == "out of luck"
    assert last["error"]["code"] == "unlucky"
    assert got.complete
    assert b"[DONE]" not in got.body
    with pytest.raises(openai.APIError, match="out of luck"):
        sdk_text(client, text)


@pytest.mark.parametrize("after", [0, 1])
@pytest.mark.parametrize("fault", ["reset", "cut"])
def test_a_one_shot_answer_can_break_off(provider: Provider, fault: str, after: int) -> None:
    got = receive(provider, ask(f"[[stand-in: fault={fault} after={after}]]"))
    assert got.reset == (fault == "reset")
    assert bool(got.head) == bool(after)
    with pytest.raises(json.JSONDecodeError):
        json.loads(got.body)


@pytest.mark.parametrize("fault", ["truncate", "malformed"])
def test_a_one_shot_answer_can_be_no_json(provider: Provider, fault: str) -> None:
    response = post(provider, ask(f"[[stand-in: fault={fault}]]"))
    assert response.status_code == requests.codes.ok
    with pytest.raises(requests.JSONDecodeError):
        response.json()


def test_a_one_shot_answer_can_be_gigantic_or_an_error(provider: Provider) -> None:
    large = post(provider, ask("[[stand-in: fault=gigantic mib=2]]")).json()
    assert len(large["choices"][0]["message"]["content"]) == 2 * 1024 * 1024
    wrong = post(provider, ask('[[stand-in: fault=error-event message="no"]]'))
    assert (wrong.status_code, wrong.json()["error"]["message"]) == (200, "no")


def test_a_stalled_one_shot_answer_ends_with_its_client(provider: Provider) -> None:
    with connect(provider) as client:
        client.sendall(request_bytes(ask("[[stand-in: fault=stall]]")))
        provider.wait_for(lambda now: now["requests_open"] == 1)
    stats = provider.wait_for(lambda now: now["requests_open"] == 0)
    assert (stats["calls_aborted"], stats["responses"]) == (1, {})


def test_headers_of_a_real_provider_are_there_to_be_kept_back(provider: Provider) -> None:
    for stream in (False, True):
        headers = post(provider, ask("hello", stream=stream)).headers
        assert headers["openai-organization"] == "stand-in"
        assert "x-ratelimit-remaining-requests" in headers
