"""Streams as they come: what a shell sees, when the ledger is settled, and every shape a provider gives them."""

import re
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from json import dumps, loads
from math import ceil
from typing import Any

import pytest
from django.db import connection, transaction

from tests.pairing import each_once
from tests.served.conftest import SignIn
from tests.served.database import Database
from tests.served.ledger import DEADLINE, assert_nothing_is_reserved, the_record
from tests.served.people import Person
from tests.served.service import WORKERS, Service
from tests.served.shell import (
    DONE,
    Shell,
    as_event,
    chunk,
    events,
    sending,
    stand_in,
    text_of,
)
from tests.standins.provider_process import Provider
from tests.waiting import eventually
from usage.models import MonthlyUsage, UsageRecord

WORDS = "déjà vu – „naïve“ 雪 🎈 \u00a0 fin"
USAGE = {"prompt_tokens": 11, "completion_tokens": 12, "total_tokens": 23}
# A provider's answer of ten words, its end, and its usage alone.
SAID = [chunk(role="assistant", content=""), *(chunk(content=f" {n}") for n in range(10))]
FINISH = chunk("stop")
ALONE = {"object": "chat.completion.chunk", "choices": [], "usage": USAGE}
End = UsageRecord.End


@pytest.fixture
def brisk_shell(brisk: Service, person: Person, sign_in: SignIn) -> Shell:
    """The person, signed in to the service with short silences and little patience."""
    return sign_in(brisk, person)


@pytest.fixture
def filled_shell(filling: Service, person: Person, sign_in: SignIn) -> Shell:
    return sign_in(filling, person)


def assert_settled(database: Database, person: Person, **values: Any) -> UsageRecord:
    """The person's only call, with these values; nothing is reserved for it any more."""
    record = the_record(database, person)
    assert {name: getattr(record, name) for name in values} == values
    assert_nothing_is_reserved(database, person)
    return record


def counted(chunks: list[str]) -> int:
    """Returns the cost of these chunks without a report: a token each, or one for every four bytes if more."""
    text = text_of(chunks)
    deltas = sum(bool(text_of([chunk])) for chunk in chunks)
    return max(deltas, ceil(len(text.encode()) / 4))


def error_of(event: str) -> dict[str, Any]:
    error: dict[str, Any] = loads(event)["error"]
    return error


def test_a_stream_is_for_nobody_to_keep_or_to_buffer(shell: Shell) -> None:
    with shell.stream("Hello") as stream:
        assert stream.headers["Content-Type"].partition(";")[0] == "text/event-stream"
        assert stream.headers["Cache-Control"] == "no-cache, no-transform"
        assert stream.headers["X-Accel-Buffering"] == "no"
        assert "Content-Encoding" not in stream.headers
        assert not [name for name in stream.headers if name.lower().startswith("openai-")]
        assert list(stream)[-1] == DONE


def test_words_come_as_they_are_said_and_not_at_the_end(shell: Shell, provider: Provider) -> None:
    with shell.stream(stand_in("tokens=10 fault=stall after=4")) as stream:
        assert text_of([stream.next_event() for _ in range(4)])
        assert provider.stats()["streams_open"] == 1
    provider.wait_for(lambda stats: stats["streams_open"] == 0)


def inside_characters(event: bytes) -> list[bytes]:
    """An event cut in the name of its field, inside a character, and between its line ends."""
    middle = next((at + 1 for at, byte in enumerate(event) if byte >= 0xC0), len(event) // 2)
    return [event[:3], event[3:middle], event[middle:-1], event[-1:]]


def over_several_lines(event: bytes) -> list[bytes]:
    """An event whose JSON is written over several lines, each a field of its own."""
    data = event.decode().removeprefix("data: ").strip()
    lines = [data] if data == DONE else dumps(loads(data), indent=1).splitlines()
    return [("".join(f"data: {line}\n" for line in lines) + "\n").encode()]


COMMENTED = b": a comment\n\n: another one\n%b\n: and one more\n\n"
FRAMINGS: dict[str, Callable[[bytes], list[bytes]]] = {
    "lf": lambda event: [event],
    "crlf": lambda event: [event.replace(b"\n", b"\r\n")],
    "cr": lambda event: [event.replace(b"\n", b"\r")],
    "nospace": lambda event: [event.replace(b"data: ", b"data:", 1)],
    "split": inside_characters,
    "multiline": over_several_lines,
    "comments": lambda event: [COMMENTED % event.strip()],
}


@pytest.mark.parametrize("framing", FRAMINGS)
def test_every_framing_comes_through_intact(
    shell: Shell, database: Database, person: Person, framing: str
) -> None:
    words = [chunk(content=piece) for piece in re.findall(r"\s*\S+|\s+", WORDS)]
    written = map(FRAMINGS[framing], map(as_event, [SAID[0], *words, FINISH, ALONE, DONE]))
    asked = sending(*(part for parts in written for part in parts))
    with shell.stream(asked, stream_options={"include_usage": True}) as stream:
        *chunks, last, done = events(stream.rest())
    assert done == DONE
    assert text_of(chunks) == WORDS
    usage = loads(last)["usage"]
    assert_settled(
        database,
        person,
        end=End.DONE,
        source="provider",
        input_tokens=usage["prompt_tokens"],
        output_tokens=usage["completion_tokens"],
    )


def test_a_one_shot_answer_keeps_every_character(shell: Shell) -> None:
    answer = shell.complete(stand_in(f'text="{WORDS}"'))
    assert answer.json()["choices"][0]["message"]["content"] == WORDS


def test_the_last_word_is_said_when_the_ledger_is_settled_and_not_before(
    shell: Shell, database: Database, person: Person
) -> None:
    with ThreadPoolExecutor(1) as pool, shell.stream(stand_in("tokens=9 delay=0.02")) as stream:
        got = [stream.next_event()]
        with database.rows(), transaction.atomic():
            MonthlyUsage.objects.select_for_update().get(user_id=person.id)
            reading = pool.submit(got.extend, stream)
            eventually(lambda: _somebody_waits(database))
            assert DONE not in got
        reading.result(DEADLINE)
    assert got[-1] == DONE
    assert_settled(database, person, end=End.DONE, output_tokens=9)


def test_streams_hold_nothing_of_the_database_while_they_wait(
    shell: Shell, database: Database, provider: Provider, person: Person
) -> None:
    # More than all pools of all processes have connections together.
    many = 40 * WORKERS
    with ExitStack() as stack:
        streams = [
            stack.enter_context(shell.stream(stand_in("tokens=10 fault=stall after=3")))
            for _ in range(many)
        ]
        for stream in streams:
            stream.next_event()
        assert provider.stats()["streams_open"] == many
        # A watch or a health check may be at work at one moment, none of them for long.
        eventually(lambda: _at_work(database) == [])
        assert shell.complete("Others go on.").status_code == 200
        assert shell.usage()["calls"] == many + 1
    provider.wait_for(lambda stats: stats["streams_open"] == 0)
    eventually(lambda: shell.usage()["output"]["in_flight"] == 0)
    assert_nothing_is_reserved(database, person)


def _at_work(database: Database) -> list[tuple[Any, ...]]:
    """Sessions of the service that do or hold anything: a statement, a transaction, or a lock."""
    held = """
        SELECT a.pid, a.state, a.xact_start IS NOT NULL, count(l.pid)
        FROM pg_stat_activity AS a LEFT JOIN pg_locks AS l ON l.pid = a.pid
        WHERE a.datname = current_database() AND a.pid <> pg_backend_pid()
        GROUP BY a.pid, a.state, a.xact_start
        HAVING a.state <> 'idle' OR a.xact_start IS NOT NULL OR count(l.pid) > 0
    """
    with database.rows(), connection.cursor() as cursor:
        cursor.execute(held)
        return list(cursor.fetchall())


def _somebody_waits(database: Database) -> bool:
    """Returns whether a session of this database waits for a lock of another."""
    waiting = (
        "SELECT count(*) FROM pg_stat_activity "
        "WHERE datname = current_database() AND wait_event_type = 'Lock'"
    )
    with database.rows(), connection.cursor() as cursor:
        cursor.execute(waiting)
        return bool(cursor.fetchone() != (0,))


ZERO = {**ALONE, "usage": dict.fromkeys(USAGE, 0)}
# usage: the events in which a provider reports it.
REPORTS: dict[str, list[dict[str, Any]]] = {
    "once": [*SAID, FINISH, ALONE],
    "every": [
        *(
            {**each, "usage": {**USAGE, "completion_tokens": min(number, 12)}}
            for number, each in enumerate(SAID)
        ),
        {**FINISH, "usage": USAGE},
        ALONE,
    ],
    "zero": [*SAID, FINISH, ZERO],
    "never": [*SAID, FINISH],
}


@pytest.mark.parametrize(
    ("usage", "source", "tokens", "asks"),
    each_once(
        [
            ("once", "provider", (11, 12)),
            ("every", "provider", (11, 12)),
            # A report below what was delivered is raised to it, and no prompt is empty.
            ("zero", "counted", (None, None)),
            # Then the prompt is known by its bound alone, and the answer by what was delivered.
            ("never", "counted", (None, None)),
        ],
        [True, False],
    ),
)
def test_usage_is_settled_as_it_was_reported_last(
    shell: Shell,
    database: Database,
    person: Person,
    usage: str,
    source: str,
    tokens: tuple[int | None, int | None],
    asks: bool,
) -> None:
    told = sending(*map(as_event, [*REPORTS[usage], DONE]))
    with shell.stream(told, stream_options={"include_usage": asks}) as stream:
        *chunks, done = stream
    assert done == DONE
    given, output = tokens
    record = assert_settled(database, person, source=source)
    alone = [chunk for chunk in map(loads, chunks) if not chunk["choices"]]
    assert len(alone) == (1 if asks else 0)
    assert all(
        (chunk["usage"]["prompt_tokens"], chunk["usage"]["completion_tokens"])
        == (record.input_tokens, record.output_tokens)
        for chunk in alone
    )
    assert record.input_tokens == (record.reserved_input if given is None else given)
    assert record.output_tokens == (counted(chunks) if output is None else output)


def test_parts_of_a_count_are_kept(shell: Shell, database: Database, person: Person) -> None:
    usage = {
        "prompt_tokens": 90,
        "completion_tokens": 35,
        "total_tokens": 125,
        "prompt_tokens_details": {"cached_tokens": 60},
        "completion_tokens_details": {"reasoning_tokens": 25},
    }
    told = sending(*map(as_event, [*SAID, FINISH, {**ALONE, "usage": usage}, DONE]))
    with shell.stream(told) as stream:
        assert list(stream)[-1] == DONE
    assert_settled(
        database,
        person,
        input_tokens=90,
        cached_input_tokens=60,
        output_tokens=35,
        reasoning_tokens=25,
    )


def test_a_text_is_counted_whatever_carries_it(
    shell: Shell, database: Database, person: Person
) -> None:
    words = [chunk(reasoning_content=f" {letter}") for letter in "abcdef"]
    with shell.stream(sending(*map(as_event, [*words, FINISH, DONE]))) as stream:
        assert list(stream)[-1] == DONE
    assert_settled(database, person, source="counted", output_tokens=6)


def test_the_arguments_of_a_tool_are_counted(
    shell: Shell, database: Database, person: Person
) -> None:
    parameters = {"type": "object", "properties": {"place": {"type": "string"}}}
    tool = {"type": "function", "function": {"name": "look_up", "parameters": parameters}}
    with shell.stream(stand_in('usage=no text="a b c d e f"'), tools=[tool]) as stream:
        *chunks, done = stream
    assert done == DONE
    calls = [
        call["function"]
        for chunk in map(loads, chunks)
        for call in chunk["choices"][0]["delta"].get("tool_calls", ())
    ]
    parts = [each.get("name", "") + each["arguments"] for each in calls]
    told = max(sum(map(bool, parts)), ceil(len("".join(parts).encode()) / 4))
    assert told > 6
    assert_settled(database, person, source="counted", output_tokens=told)


def test_a_provider_that_knows_no_end_is_cut_well_past_what_it_was_granted(
    shell: Shell, database: Database, provider: Provider, person: Person
) -> None:
    with shell.stream(stand_in("overrun=100000"), max_tokens=40) as stream:
        *chunks, last = stream
    assert error_of(last)["code"] == "provider_error"
    provider.wait_for(lambda stats: stats["streams_open"] == 0)
    record = assert_settled(database, person, end=End.PROVIDER_FAILED, source="counted")
    assert record.reserved_output == 40
    assert counted(chunks) == record.output_tokens
    # Counting is no exact measure of tokens, so it gets twice that and some.
    assert 2 * 40 + 256 < record.output_tokens < 2 * 40 + 256 + 100


def test_a_stream_slightly_over_the_limit_is_not_cut(
    shell: Shell, database: Database, person: Person
) -> None:
    with shell.stream(stand_in("overrun=25"), max_tokens=40) as stream:
        assert list(stream)[-1] == DONE
    assert_settled(database, person, end=End.DONE, source="provider", output_tokens=65)


def test_a_provider_that_never_says_done_is_done_when_its_answer_is(
    shell: Shell, database: Database, person: Person
) -> None:
    with shell.stream(sending(*map(as_event, [*SAID, FINISH, ALONE]))) as stream:
        assert list(stream)[-1] == DONE
    assert_settled(database, person, end=End.DONE, output_tokens=12)


@pytest.mark.parametrize(
    ("fault", "status", "code", "streamed"),
    each_once(
        [
            ("status:400", 400, "provider_rejected"),
            ("status:401", 502, "provider_error"),
            ("status:429 retry_after=7", 503, "provider_unavailable"),
            ("status:504", 504, "provider_timeout"),
            ("html", 502, "provider_error"),
            ("reset", 502, "provider_error"),
            ("cut", 502, "provider_error"),
        ],
        [True, False],
    ),
)
def test_a_failure_before_the_first_byte_is_an_answer_with_a_status(
    shell: Shell,
    database: Database,
    person: Person,
    fault: str,
    status: int,
    code: str,
    streamed: bool,
) -> None:
    path = "stream" if streamed else "complete"
    messages = [{"role": "user", "content": stand_in(f"fault={fault}")}]
    response = shell.post(f"/v1/llm/{path}", {"messages": messages})
    assert (response.status_code, response.json()["code"]) == (status, code)
    assert response.headers["Content-Type"] == "application/problem+json"
    assert response.json()["error"]["code"] == code
    # The provider's statements about our credential or our limits are not for the caller.
    for secret in ("API key", "rate limit", "territory", "html"):
        assert secret.lower() not in response.text.lower()
    waits = {"7"} if "retry_after" in fault else {None, "5"}
    assert response.headers.get("Retry-After") in waits
    end = End.TIMEOUT if status == 504 else End.PROVIDER_FAILED
    record = assert_settled(database, person, end=end, output_tokens=0)
    # A provider that said 200 had begun to work on the prompt.
    began = streamed and fault in {"reset", "cut"}
    assert record.input_tokens == (record.reserved_input if began else 0)


@pytest.mark.parametrize(
    ("fault", "after"), each_once(["reset", "cut", "truncate", "malformed", "error"], [1, 6])
)
def test_a_failure_after_the_first_byte_is_an_event_without_a_last_word(
    shell: Shell, database: Database, person: Person, fault: str, after: int
) -> None:
    with shell.stream(stand_in(f"tokens=20 fault={fault} after={after} delay=0.001")) as stream:
        assert stream.status == 200
        *chunks, last = stream
    assert len(chunks) == after
    error = error_of(last)
    assert error.keys() == {"message", "type", "code", "param", "status", "request_id"}
    assert (error["code"], error["status"]) == ("provider_error", 502)
    assert error["request_id"] == stream.headers["X-Request-ID"]
    if fault == "malformed":
        # The rest follows, with the usage at its end.
        assert_settled(database, person, end=End.UNREAD, output_tokens=20, source="provider")
        return
    record = assert_settled(database, person, end=End.PROVIDER_FAILED)
    assert record.output_tokens == counted(chunks)
    # The first event has the role alone, and then nothing was counted.
    assert record.source == ("counted" if record.output_tokens else "estimated")
    assert record.input_tokens == record.reserved_input


@pytest.mark.parametrize("fault", ["truncate", "malformed", "error", "reset after=1"])
def test_half_an_answer_is_no_answer(
    shell: Shell, database: Database, person: Person, fault: str
) -> None:
    response = shell.complete(stand_in(f"tokens=20 fault={fault}"))
    assert (response.status_code, response.json()["code"]) == (502, "provider_error")
    assert response.headers["x-should-retry"] == "false"
    record = assert_settled(
        database, person, end=End.PROVIDER_FAILED if fault == "error" else End.UNREAD
    )
    assert record.output_tokens == (0 if fault == "error" else record.reserved_output)


def test_an_event_that_is_too_large_ends_the_stream(
    shell: Shell, database: Database, person: Person
) -> None:
    with shell.stream(stand_in("tokens=5 fault=gigantic after=2")) as stream:
        *chunks, last = stream
    assert len(chunks) == 2
    assert error_of(last)["code"] == "provider_error"
    assert_settled(database, person, end=End.UNREAD, output_tokens=5, source="provider")


@pytest.mark.parametrize("telling", ["held=yes", "tokens=9 fault=stall after=1"])
def test_silence_is_filled_with_comments_also_before_the_first_byte(
    filled_shell: Shell, provider: Provider, telling: str
) -> None:
    with filled_shell.stream(stand_in(telling)) as stream:
        if "after" in telling:
            assert stream.next_event() != DONE
        assert [next(stream) for _ in range(2)] == [":", ":"]
    provider.wait_for(lambda stats: stats["requests_open"] == 0)


def test_a_failure_after_the_first_comment_is_an_event(
    filled_shell: Shell, database: Database, provider: Provider, person: Person
) -> None:
    with filled_shell.stream(stand_in("held=yes fault=status:500")) as stream:
        assert (stream.status, next(stream)) == (200, ":")
        provider.go()
        *comments, last = stream
    assert set(comments) <= {":"}
    assert (error_of(last)["code"], error_of(last)["status"]) == ("provider_error", 502)
    assert_settled(database, person, end=End.PROVIDER_FAILED, input_tokens=0, output_tokens=0)


@pytest.mark.wall_time
def test_a_provider_that_falls_silent_is_given_up(
    brisk_shell: Shell, database: Database, provider: Provider, person: Person
) -> None:
    began = time.monotonic()
    with brisk_shell.stream(stand_in("tokens=9 fault=stall after=3")) as stream:
        *blocks, last = stream
    most = 100 * (time.monotonic() - began)
    assert (error_of(last)["code"], error_of(last)["status"]) == ("provider_timeout", 504)
    provider.wait_for(lambda stats: stats["streams_open"] == 0)
    chunks = [block for block in blocks if block != ":"]
    assert len(chunks) == 3
    record = assert_settled(database, person, end=End.TIMEOUT, source="counted")
    # The silence of two seconds may have been spent on output.
    assert counted(chunks) + 190 <= record.output_tokens <= counted(chunks) + most


@pytest.mark.wall_time
def test_a_one_shot_answer_that_does_not_come_is_given_up(
    brisk_shell: Shell, database: Database, provider: Provider, person: Person
) -> None:
    began = time.monotonic()
    response = brisk_shell.complete(stand_in("first=60"))
    most = 100 * (time.monotonic() - began)
    assert (response.status_code, response.json()["code"]) == (504, "provider_timeout")
    provider.wait_for(lambda stats: stats["requests_open"] == 0)
    # It had the request, and may charge for what it did with it.
    record = assert_settled(database, person, end=End.TIMEOUT, source="estimated")
    assert record.input_tokens == record.reserved_input
    assert 390 <= record.output_tokens <= most


def test_no_call_lasts_longer_than_a_call_may(
    brisk_shell: Shell, database: Database, provider: Provider, person: Person
) -> None:
    with brisk_shell.stream(stand_in("tokens=100000 delay=0.1")) as stream:
        *blocks, last = stream
    assert error_of(last)["code"] == "provider_timeout"
    assert text_of([block for block in blocks if block != ":"])
    provider.wait_for(lambda stats: stats["streams_open"] == 0)
    record = assert_settled(database, person, end=End.TIMEOUT, source="counted")
    assert record.output_tokens > 0
