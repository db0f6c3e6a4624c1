"""LiteLLM's client library, as applications use it: ``openai/<model>`` at the service's address."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.served.conftest import SignIn
from tests.served.database import Database
from tests.served.ledger import assert_nothing_is_reserved, records_of, the_record
from tests.served.people import Person, add_person
from tests.served.service import Service
from tests.served.shell import Shell, as_event, chunk, sending, stand_in
from tests.standins.provider_process import Provider
from tests.tools.folders import ROOT

pytestmark = pytest.mark.full

MODEL = "openai/stand-in-small"
WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}
Ask = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def clients() -> Iterator[Callable[[Shell], Ask]]:
    """A process for each token, for as long as these tests last: importing the library takes seconds."""
    processes: dict[str, subprocess.Popen[str]] = {}

    def client(shell: Shell) -> Ask:
        command = [sys.executable, "-m", "tests.served.litellm_client", shell.base_url]
        process = processes.setdefault(
            shell.access,
            subprocess.Popen(
                [*command, shell.access],
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env={**os.environ, "PYTHONWARNINGS": "ignore"},
            ),
        )

        def ask(
            how: str, text: str = "Hello", *, stop_after: int | None = None, **members: Any
        ) -> dict[str, Any]:
            assert process.stdin is not None
            assert process.stdout is not None
            messages = [{"role": "user", "content": text}]
            given = {"model": MODEL, "messages": messages, **members}
            line = json.dumps({"how": how, "ask": given, "stop_after": stop_after})
            process.stdin.write(line + "\n")
            process.stdin.flush()
            answer: dict[str, Any] = json.loads(process.stdout.readline())
            return answer

        return ask

    yield client
    for process in processes.values():
        with process:
            assert process.stdin is not None
            process.stdin.close()
            assert process.wait(30) == 0


@pytest.fixture(scope="module")
def everyday(
    service: Service, database: Database, clients: Callable[[Shell], Ask], ground: Any
) -> tuple[Ask, Person]:
    """Somebody who goes on asking through these tests."""
    person = add_person(database)
    shell = Shell(service.url)
    assert shell.login(person.email, person.password).status_code == 200
    return clients(shell), person


@pytest.fixture
def ask(everyday: tuple[Ask, Person]) -> Ask:
    return everyday[0]


def said(answer: dict[str, Any]) -> str:
    content: str = answer["choices"][0]["message"]["content"]
    return content


def test_litellm_gets_the_same_answer_from_each_of_its_interfaces(ask: Ask) -> None:
    answers = [
        ask(how, "What is a haiku?") for how in ("complete", "acomplete", "stream", "astream")
    ]
    assert "haiku" in said(answers[0])
    assert {said(answer) for answer in answers} == {said(answers[0])}
    assert {answer["choices"][0]["finish_reason"] for answer in answers} == {"stop"}


def test_the_usage_of_a_stream_is_what_the_ledger_says(
    ask: Ask, everyday: tuple[Ask, Person], database: Database
) -> None:
    known = len(records_of(database, everyday[1]))
    answer = ask("stream", stream_options={"include_usage": True})
    (record,) = records_of(database, everyday[1])[known:]
    assert (answer["usage"]["prompt_tokens"], answer["usage"]["completion_tokens"]) == (
        record.input_tokens,
        record.output_tokens,
    )


@pytest.mark.parametrize("how", ["complete", "astream"])
def test_a_tool_is_called_and_its_result_taken(ask: Ask, how: str) -> None:
    first = ask(how, "Rain?", tools=[WEATHER], tool_choice="required")["choices"][0]
    assert first["finish_reason"] in {"tool_calls", "stop"}
    (call,) = first["message"]["tool_calls"]
    assert "Rain?" in call["function"]["arguments"]
    messages = [
        {"role": "user", "content": "Rain?"},
        # As it came, with all that the library adds to it.
        {name: value for name, value in first["message"].items() if value is not None},
        {"role": "tool", "tool_call_id": call["id"], "content": "It is raining."},
    ]
    assert "It is raining." in said(ask(how, messages=messages, tools=[WEATHER]))


def test_thoughts_come_as_it_calls_them(ask: Ask) -> None:
    message = {"role": "assistant", "content": None, "reasoning_content": "Hm."}
    whole = {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}
    streamed = [chunk(**message), chunk("stop"), "[DONE]"]
    told = {"complete": [json.dumps(whole).encode()], "stream": map(as_event, streamed)}
    for how, writes in told.items():
        message = ask(how, sending(*writes))["choices"][0]["message"]
        assert message["reasoning_content"] == "Hm."


@pytest.mark.parametrize(
    ("members", "text", "told"),
    [
        ({"temperature": 3}, "Hello", ("BadRequestError", 400)),
        ({"model": "openai/gpt-unknown"}, "Hello", ("NotFoundError", 404)),
        ({}, stand_in("fault=status:500"), ("BadGatewayError", 502)),
        ({}, stand_in("fault=status:429"), ("ServiceUnavailableError", 503)),
    ],
)
def test_a_refusal_is_an_error_of_its_own(
    ask: Ask, members: dict[str, Any], text: str, told: tuple[str, int]
) -> None:
    for how in ("complete", "stream", "acomplete"):
        answer = ask(how, text, **members)
        assert (answer["error"], answer["status"]) == told


def test_a_failure_in_the_middle_of_a_stream_is_an_error_and_not_an_end(ask: Ask) -> None:
    answer = ask("stream", stand_in("tokens=20 fault=reset after=5"))
    assert "error" in answer, answer


def test_a_cap_is_a_rate_limit_error(
    service: Service, database: Database, sign_in: SignIn, clients: Callable[[Shell], Ask]
) -> None:
    person = add_person(database, {"monthly_input": 10_000, "monthly_output": 20, "daily": 20_000})
    shell = sign_in(service, person)
    assert shell.complete(stand_in("tokens=19")).status_code == 200
    ask = clients(shell)
    for how in ("complete", "stream"):
        answer = ask(how, stand_in("tokens=19"))
        assert (answer["error"], answer["status"]) == ("RateLimitError", 429)
    assert len(records_of(database, person)) == 1


def test_a_stream_that_it_leaves_early_is_counted_and_not_left_open(
    service: Service,
    database: Database,
    provider: Provider,
    person: Person,
    sign_in: SignIn,
    clients: Callable[[Shell], Ask],
) -> None:
    ask = clients(sign_in(service, person))
    assert ask("stream", stand_in("tokens=100000 delay=0.02"), stop_after=5)["chunks"] == 5
    provider.wait_for(lambda stats: stats["streams_open"] == 0)
    assert the_record(database, person).end == "client_gone"
    assert_nothing_is_reserved(database, person)
