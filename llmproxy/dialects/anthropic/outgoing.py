"""Translates a chat completion to a request of the Messages API.

Members without a counterpart: ``seed`` is ignored, since it promises nothing. Penalties, ``logit_bias`` and log
probabilities are refused, unless their value has no effect (0, ``{}``, false, biases of 0). Temperatures above 1
become 1, the API's maximum. A temperature or ``top_p`` of 1 is the default and left out, because newer models refuse
both members; either is left out while the model thinks.

``verbosity``, ``prediction``, ``service_tier`` and OpenAI's members about its cache are hints, and ignored.
``safety_identifier`` becomes ``metadata.user_id``.

``response_format``: a strict schema is passed on and enforced by the API. The system prompt describes a schema that is
not strict, and ``json_object``, since the API can enforce closed schemas only.
"""

from json import dumps
from typing import Any

from llmproxy.dialects.anthropic.blocks import THOUGHTS, Block, unsupported
from llmproxy.dialects.anthropic.thinking import thinking
from llmproxy.dialects.anthropic.tools import tools_and_choice
from llmproxy.dialects.anthropic.turns import Turn, system_prompt, turns
from llmproxy.requests.chat import Chat

# The lowest top_p that the API takes while the model thinks.
LOWEST_TOP_P = 0.95
JSON_OBJECT = (
    "Answer with one JSON object and nothing else: no words before or after it and no code fence."
)
_WITHOUT_COUNTERPART = (
    "presence_penalty", "frequency_penalty", "logit_bias", "logprobs", "top_logprobs",
)  # fmt: skip


def message_request(chat: Chat, *, model: str, output_limit: int) -> dict[str, Any]:
    """The body of the request. Raises ``InvalidRequest`` for a call that this provider does not support."""
    members = chat.members_within(output_limit)
    for name in _WITHOUT_COUNTERPART:
        if _has_effect(members.get(name)):
            raise unsupported(f"/{name}", "This model does not support this member.")
    translated = turns(members["messages"])
    tools = tools_and_choice(members)
    thinking_members = thinking(
        members.get("reasoning_effort"),
        model=model,
        output_limit=output_limit,
        forced=tools.get("tool_choice", {}).get("type") in ("any", "tool"),
        unfinished=_is_unfinished(translated),
    )
    thinks = thinking_members.get("thinking", {}).get("type") in ("enabled", "adaptive")
    body = {"model": model, "max_tokens": output_limit, "messages": translated, **tools}
    body |= thinking_members | _sampling(members, thinks=thinks) | _stop(members)
    if chat.unknown:
        body |= chat.unlisted(members)
    if chat.stream:
        body["stream"] = True
    if system := _system(members):
        body["system"] = system
    if identifier := members.get("safety_identifier"):
        body["metadata"] = {"user_id": identifier}
    if schema := _strict_schema(members):
        form = {"format": {"type": "json_schema", "schema": schema}}
        body["output_config"] = {**body.get("output_config", {}), **form}
    return body


def _has_effect(value: Any) -> bool:
    return any(value.values()) if isinstance(value, dict) else bool(value)


def _is_unfinished(translated: list[Turn]) -> bool:
    """Returns whether the last turn continues an answer that does not begin with its thinking."""
    *before, last = translated
    if last["role"] == "assistant":
        return True
    is_result = any(block["type"] == "tool_result" for block in last["content"])
    return is_result and not (before and before[-1]["content"][0]["type"] in THOUGHTS)


def _sampling(members: dict[str, Any], *, thinks: bool) -> dict[str, Any]:
    temperature, top_p = min(members.get("temperature", 1), 1), members.get("top_p", 1)
    sampling = {}
    if temperature < 1 and not thinks:
        sampling["temperature"] = temperature
    if top_p < 1 and (not thinks or top_p >= LOWEST_TOP_P):
        sampling["top_p"] = top_p
    return sampling


def _stop(members: dict[str, Any]) -> dict[str, Any]:
    stop = members.get("stop", [])
    sequences = [stop] if isinstance(stop, str) else stop
    if not all(each.strip() for each in sequences):
        raise unsupported(
            "/stop", "This model does not support a stop sequence of only whitespace."
        )
    return {"stop_sequences": sequences} if sequences else {}


def _system(members: dict[str, Any]) -> str | list[Block]:
    """One text, or blocks where one of them ends a cached beginning."""
    blocks = system_prompt(members["messages"])
    if form := _described_format(members):
        blocks.append({"type": "text", "text": form})
    if any("cache_control" in block for block in blocks):
        return blocks
    return "\n\n".join(block["text"] for block in blocks)


def _described_format(members: dict[str, Any]) -> str:
    """The instructions for a response format that the API does not enforce."""
    response_format = members.get("response_format", {"type": "text"})
    if response_format["type"] == "text" or _strict_schema(members):
        return ""
    form = response_format.get("json_schema", {})
    parts = [JSON_OBJECT, form.get("description", "")]
    if form.get("schema"):
        parts.append(f"It has to match this JSON Schema: {dumps(form['schema'])}")
    return "\n".join(part for part in parts if part)


def _strict_schema(members: dict[str, Any]) -> dict[str, Any] | None:
    form = members.get("response_format", {}).get("json_schema", {})
    schema: dict[str, Any] | None = form.get("schema") if form.get("strict") else None
    return schema
