"""LiteLLM's client library as an application has it, in a process of its own: it changes clients and settings of
its process. One JSON object a line in, one out; ``tests/served/test_litellm.py`` says what is asked.
"""

import asyncio
import json
import os
import sys
from typing import Any

# Without this it fetches a list of prices from the net when it is imported.
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"

import litellm
import openai

BASE, KEY = sys.argv[1:]
litellm.telemetry = False
litellm.suppress_debug_info = True


def options(ask: dict[str, Any]) -> dict[str, Any]:
    return {"api_base": f"{BASE}/v1/llm", "api_key": KEY, "timeout": 60, "max_retries": 0, **ask}


def told(chunks: list[Any]) -> dict[str, Any]:
    whole = litellm.stream_chunk_builder(chunks)
    assert whole is not None
    return {**whole.model_dump(), "chunks": len(chunks)}


def done(how: str, ask: dict[str, Any], stop_after: int | None) -> dict[str, Any]:
    if how == "complete":
        return dict(litellm.completion(**options(ask)).model_dump())
    if how == "acomplete":
        return dict(asyncio.run(litellm.acompletion(**options(ask))).model_dump())
    if how == "astream":
        return told(asyncio.run(gathered(ask)))
    chunks = []
    stream: Any = litellm.completion(**options(ask), stream=True)
    for chunk in stream:
        chunks.append(chunk)
        if len(chunks) == stop_after:
            stream.completion_stream.close()
            return {"chunks": len(chunks)}
    return told(chunks)


async def gathered(ask: dict[str, Any]) -> list[Any]:
    stream: Any = await litellm.acompletion(**options(ask), stream=True)
    return [chunk async for chunk in stream]


for line in sys.stdin:
    what = json.loads(line)
    try:
        result = done(what["how"], what["ask"], what.get("stop_after"))
    except openai.APIError as error:
        result = {
            "error": type(error).__name__,
            "status": getattr(error, "status_code", None),
            "message": str(error),
        }
    sys.stdout.write(json.dumps(result, default=str) + "\n")
    sys.stdout.flush()
