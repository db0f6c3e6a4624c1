"""Caps under fire: many calls of one person at a nearly full cap, by real HTTP to two processes."""

from collections import Counter
from collections.abc import Mapping
from json import loads
from typing import Any

import pytest

from tests.served.conftest import SignIn
from tests.served.crowd import all_at_once
from tests.served.database import Database
from tests.served.ledger import (
    assert_nothing_is_reserved,
    counters,
    records_of,
    sums,
)
from tests.served.people import add_person
from tests.served.service import Service
from tests.served.shell import DONE, Shell, stand_in, text_of
from tests.standins.provider_process import Provider
from tests.waiting import eventually

CALLS = 50
MESSAGE = stand_in("tokens=60 delay=0.005")


@pytest.mark.parametrize(
    "caps",
    [
        # The last one that fits has to be cut.
        {"monthly_output": 1_030},
        {"monthly_input": 1_000},
        {"daily": 2_000},
        {"monthly_output": 1_030, "monthly_input": 2_500, "daily": 2_000},
    ],
    ids=["output", "input", "day", "all"],
)
def test_fifty_calls_at_once_never_pass_a_cap(
    service: Service, database: Database, provider: Provider, sign_in: SignIn, caps: dict[str, int]
) -> None:
    person = add_person(database, caps)
    shell = sign_in(service, person)
    assert shell.complete(stand_in("tokens=400")).status_code == 200

    def within_the_cap() -> None:
        with database.snapshot():
            _assert_within(caps, sums(person.id), counters(person.id))

    calls = all_at_once(
        CALLS, lambda number: _call(shell, streamed=number % 2 == 0), meanwhile=within_the_cap
    )
    codes = Counter(code for code, _ in calls)
    assert codes[""] > 0
    assert set(codes) <= {"", "monthly_cap_exceeded", "daily_limit_reached", "cap_reserved"}
    assert len(records_of(database, person)) == 1 + codes[""]
    assert provider.stats()["requests"] == 1 + codes[""]
    within_the_cap()
    eventually(lambda: all(record.end for record in records_of(database, person)))
    assert_nothing_is_reserved(database, person)
    # The callers' totals equal the ledger's.
    records = records_of(database, person)
    assert {record.end for record in records} == {"done"}
    assert all(record.output_tokens <= record.reserved_output for record in records)
    assert sum(record.output_tokens for record in records) == 400 + sum(got for _, got in calls)

    while (response := shell.complete(stand_in("tokens=60"), max_tokens=60)).status_code == 200:
        pass
    assert response.json()["code"] in {"monthly_cap_exceeded", "daily_limit_reached"}
    within_the_cap()


def test_the_last_call_before_a_cap_gets_what_is_left(
    service: Service, database: Database, provider: Provider, sign_in: SignIn
) -> None:
    person = add_person(database, {"monthly_output": 100})
    shell = sign_in(service, person)
    first = shell.complete(stand_in("tokens=70"), max_tokens=70)
    assert first.headers["X-Tokens-Remaining-Month"] == "30"
    last = shell.complete(stand_in("tokens=70"), max_tokens=70)
    assert last.headers["X-Tokens-Remaining-Month"] == "0"
    stats = provider.stats()
    assert provider.last()["body"]["max_tokens"] == 30
    assert last.json()["usage"]["completion_tokens"] == 30
    assert last.json()["choices"][0]["finish_reason"] == "length"

    refused = shell.complete(stand_in("tokens=70"))
    problem = refused.json()
    assert (refused.status_code, problem["code"]) == (429, "monthly_cap_exceeded")
    assert {name: problem[name] for name in ("dimension", "cap", "used", "reserved")} == {
        "dimension": "output",
        "cap": 100,
        "used": 100,
        "reserved": 0,
    }
    assert refused.headers["x-should-retry"] == "false"
    assert problem["retry_after_iso"] == shell.usage()["period"]["resets_at"]
    assert int(refused.headers["Retry-After"]) > 0
    assert provider.stats()["requests"] == stats["requests"]


def test_a_whole_answer_says_what_is_left_after_it_and_a_stream_what_was_before_it(
    service: Service, database: Database, sign_in: SignIn
) -> None:
    person = add_person(database, {"monthly_output": 1_000, "daily": 100_000})
    shell = sign_in(service, person)

    def said(headers: Mapping[str, str]) -> tuple[int, int]:
        return int(headers["X-Tokens-Remaining-Month"]), int(headers["X-Tokens-Remaining-Day"])

    whole = shell.complete(stand_in("tokens=70"), max_tokens=500)
    after_whole = 930, 100_000 - whole.json()["usage"]["total_tokens"]
    assert said(whole.headers) == after_whole
    with shell.stream(stand_in("tokens=30"), max_tokens=500) as stream:
        assert said(stream.headers) == after_whole
        stream.rest()
    with shell.stream(stand_in("tokens=80 delay=0.9"), max_tokens=300) as running:
        running.next_event()
        # The reservation of another call does count against it.
        beside = shell.complete(stand_in("tokens=10"), max_tokens=500)
        assert said(beside.headers)[0] == 900 - 300 - 10
    eventually(lambda: shell.usage()["output"]["in_flight"] == 0)
    usage = shell.usage()
    left = shell.complete(stand_in("tokens=1"), max_tokens=16)
    used = left.json()["usage"]
    assert said(left.headers) == (
        usage["output"]["remaining"] - used["completion_tokens"],
        usage["day"]["remaining"] - used["total_tokens"],
    )


def test_calls_that_only_run_still_are_worth_waiting_for(
    service: Service, database: Database, sign_in: SignIn
) -> None:
    person = add_person(database, {"monthly_output": 100})
    shell = sign_in(service, person)
    with shell.stream(stand_in("tokens=80 delay=0.9"), max_tokens=90) as stream:
        refused = shell.complete("Hello")
        assert (refused.status_code, refused.json()["code"]) == (429, "cap_reserved")
        assert 1 <= int(refused.headers["Retry-After"]) <= 10
        assert "x-should-retry" not in refused.headers
        assert shell.usage()["output"]["in_flight"] == 90
        assert stream.next_event() != DONE
    eventually(lambda: shell.usage()["output"]["in_flight"] == 0)
    assert shell.complete("Hello", max_tokens=20).status_code == 200
    assert_nothing_is_reserved(database, person)


def _call(shell: Shell, *, streamed: bool) -> tuple[str, int]:
    """The code of its refusal, or an empty one and the output tokens it was given."""
    if not streamed:
        response = shell.complete(MESSAGE, max_tokens=60)
        body = response.json()
        return body.get("code", ""), body.get("usage", {}).get("completion_tokens", 0)
    include = {"include_usage": True}
    with shell.stream(MESSAGE, max_tokens=60, stream_options=include) as stream:
        if stream.status != 200:
            return stream.problem()["code"], 0
        *chunks, last, done = stream
    assert done == DONE
    assert text_of(chunks)
    return "", loads(last)["usage"]["completion_tokens"]


def _assert_within(
    caps: Mapping[str, int], summed: Mapping[str, int], counted: Mapping[str, Any]
) -> None:
    held = {
        "monthly_input": summed["input_used"] + summed["input_reserved"],
        "monthly_output": summed["output_used"] + summed["output_reserved"],
        "daily": sum(summed.values()),
    }
    assert all(held[name] <= cap for name, cap in caps.items()), (held, caps)
    assert counted["day_used"] + counted["day_reserved"] == held["daily"]
    assert {name: counted[name] for name in summed} == summed
