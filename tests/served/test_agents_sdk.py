"""OpenAI's Agents SDK, pointed at the service as it is: it asks the Responses API by default."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest
from agents import (
    Agent,
    ModelSettings,
    OpenAIResponsesModel,
    Runner,
    function_tool,
    set_tracing_disabled,
)
from openai import AsyncOpenAI, DefaultAsyncHttpxClient
from pydantic import BaseModel

from tests.served.database import Database
from tests.served.ledger import assert_nothing_is_reserved, records_of
from tests.served.people import Person
from tests.served.shell import PATIENCE, Shell

pytestmark = pytest.mark.full

MODEL = "stand-in-small"


class Place(BaseModel):
    city: str


@function_tool
def weather(city: str) -> str:
    """The weather of a city."""
    return "It is raining."


@pytest.fixture(autouse=True)
def without_tracing() -> Iterator[None]:
    # Traces would go to OpenAI.
    set_tracing_disabled(disabled=True)
    yield
    set_tracing_disabled(disabled=False)


def run(shell: Shell, ask: Callable[[Any], Coroutine[Any, Any, None]]) -> None:
    async def asked() -> None:
        http_client = DefaultAsyncHttpxClient(trust_env=False)
        async with AsyncOpenAI(
            base_url=f"{shell.base_url}/v1/llm",
            api_key=shell.access,
            max_retries=0,
            timeout=PATIENCE,
            http_client=http_client,
        ) as client:
            await ask(OpenAIResponsesModel(MODEL, client))

    asyncio.run(asked())


def test_the_agents_sdk_runs_an_agent_with_a_tool(
    shell: Shell, database: Database, person: Person
) -> None:
    async def ask(model: Any) -> None:
        agent = Agent(name="Helper", instructions="Help.", model=model, tools=[weather])
        first = await Runner.run(agent, "How is the weather in Kiel?")
        assert "It is raining." in first.final_output
        # The whole conversation goes back, the call of the tool and its result among it.
        said = [*first.to_input_list(), {"role": "user", "content": "And now?"}]
        await Runner.run(agent, said, max_turns=3)

    run(shell, ask)
    records = records_of(database, person)
    assert len(records) == 4
    # The stand-in counts the words that are said, and no tools.
    assert {each.end for each in records} == {"done"}
    assert_nothing_is_reserved(database, person)


def test_the_agents_sdk_streams(shell: Shell) -> None:
    async def ask(model: Any) -> None:
        result = Runner.run_streamed(Agent(name="Helper", model=model), "Good morning")
        text = ""
        async for event in result.stream_events():
            if event.type == "raw_response_event":
                data: Any = event.data
                text += data.delta if data.type == "response.output_text.delta" else ""
        assert text == result.final_output
        assert "Good morning" in text

    run(shell, ask)


def test_the_agents_sdk_hands_off_and_answers_by_a_schema(shell: Shell) -> None:
    async def ask(model: Any) -> None:
        settings = ModelSettings(store=False, metadata={"feature": "places"})
        finder = Agent(name="Finder", model=model, output_type=Place, model_settings=settings)
        result = await Runner.run(finder, "Kiel")
        assert result.final_output == Place(city="Kiel")
        front = Agent(name="Front", model=model, handoffs=[finder])
        result = await Runner.run(front, "Kiel")
        assert result.last_agent is finder

    run(shell, ask)
