"""Anthropic's Messages API for its own callers: requests and answers keep their shapes."""

from collections import Counter
from json import dumps
from typing import Any

from llmproxy.dialects.anthropic.blocks import unsupported
from llmproxy.dialects.anthropic.message_events import (
    NO_TEXT,
    MessageTranslator,
    known_blocks,
    size_of_blocks,
    size_of_part,
    usage_of,
    write_message_head,
)
from llmproxy.dialects.anthropic.overhead import TOOLS_PROMPT
from llmproxy.dialects.anthropic.streamed import message_as_events
from llmproxy.dialects.ends import stop_reason, unsaid
from llmproxy.dialects.failures import failure_within, raise_failure
from llmproxy.dialects.gathering import message_of
from llmproxy.dialects.passing import OtherTexts, drop_costs, without_costs
from llmproxy.dialects.protocol import (
    Codec,
    ProviderRequest,
    Target,
    TokenUsage,
    WholeAnswer,
)
from llmproxy.dialects.reading import count_of, parse_json_exactly
from llmproxy.dialects.root_unions import NOT_AN_OBJECT, NoObject, folded
from llmproxy.dialects.usage import reported
from llmproxy.prompts.estimates import text_tokens
from llmproxy.requests.messages import Block, Messages, named_tool

# Of a tool that Anthropic defines and the caller runs, as documented: up to 700.
CLIENT_TOOL = 700
# Of a document that the provider fetches: five pages, as text and as images of them.
FETCHED_DOCUMENT = 20_000
# Characters of encrypted thinking for each of its tokens.
CHARACTERS_PER_TOKEN = 6


class MessageCodec(Codec):
    """Anthropic's messages. The base URL is that of Anthropic's own SDK, without ``/v1``."""

    def check(self, request: Messages) -> None:
        for index, tool in enumerate(request.members.get("tools", ())):
            try:
                folded(tool.get("input_schema", {}))
            except NoObject:
                raise unsupported(f"/tools/{index}/input_schema", NOT_AN_OBJECT) from None

    def prompt_overhead(self, request: Messages) -> int:
        members = request.members
        tools = request.tools
        blocks = [block for _, block in request.blocks()]
        has_prompt = bool(
            tools
            or "output_format" in members
            or "output_config" in members
            or any(block["type"] == "tool_use" for block in blocks)
        )
        client_tools = sum("input_schema" not in tool for tool in tools)
        return (
            TOOLS_PROMPT * has_prompt
            + CLIENT_TOOL * client_tools
            + sum(map(_hidden_tokens, blocks))
            + _reloaded_tokens(tools, blocks)
        )

    def outgoing(self, request: Messages, *, target: Target, output_limit: int) -> ProviderRequest:
        members = _with_objects(request.members_within(output_limit))
        body = {"model": target.model, "max_tokens": output_limit, **members}
        if request.stream:
            body["stream"] = True
        return target.post("/v1/messages", body, streamed=request.stream, headers=request.headers)

    def _read(self, body: bytes, target: Target) -> WholeAnswer:
        answer = parse_json_exactly(body)
        reason = answer.get("stop_reason")
        error = failure_within({}, reason)
        made = answer.get("content")
        raise_failure(answer, made, key=target.key, error=error, size_of=size_of_blocks)
        usage = answer.pop("usage", None)
        usage = without_costs(usage) if isinstance(usage, dict) else {}
        drop_costs(answer)
        answer |= {"content": known_blocks(answer["content"]), "usage": usage}
        has_calls = any(block["type"] == "tool_use" for block in answer["content"])
        reason = reason or unsaid(has_calls=has_calls)
        answer["stop_reason"] = stop_reason(reason, provider=target.provider)
        write_message_head(answer)
        size = sum(map(size_of_part, answer["content"])) + OtherTexts(NO_TEXT).size(answer)
        if (known := reported(usage)) is not None:
            answer["usage"] = usage_of(usage, known)
        return WholeAnswer(answer, known, size)

    def _write_usage(self, answer: dict[str, Any], charged: TokenUsage) -> None:
        answer["usage"] = usage_of(answer["usage"], charged)

    def count_request(self, request: Messages, *, target: Target) -> ProviderRequest:
        body = {"model": target.model, **_with_objects(request.members)}
        return target.post("/v1/messages/count_tokens", body, headers=request.headers)

    def count_in(self, answer: bytes) -> int | None:
        try:
            return count_of(parse_json_exactly(answer)["input_tokens"])
        except (ValueError, LookupError, TypeError, RecursionError):
            return None

    def as_stream(self, body: bytes) -> bytes:
        return message_as_events(parse_json_exactly(body))

    def gathered(self, events: list[dict[str, Any]]) -> dict[str, Any]:
        return message_of(events)

    def translator(
        self, request: Messages, *, target: Target, called: str | None
    ) -> MessageTranslator:
        return MessageTranslator(called=called, key=target.key, provider=target.provider)


def _with_objects(members: dict[str, Any]) -> dict[str, Any]:
    """The members with objects at the root of the schemas of tools, which the API demands."""
    if "tools" not in members:
        return members
    return {
        **members,
        "tools": [
            {**tool, "input_schema": folded(tool["input_schema"])}
            if "input_schema" in tool
            else tool
            for tool in members["tools"]
        ],
    }


def _reloaded_tokens(tools: list[Block], blocks: list[Block]) -> int:
    """The tokens of tools that results name again: the API writes a tool into the prompt wherever it is named."""
    named = Counter(filter(None, map(named_tool, blocks)))
    again = [(tool, named[tool["name"]] - 1) for tool in tools if named[tool["name"]] > 1]
    return sum(times * text_tokens(dumps(tool)) for tool, times in again)


def _hidden_tokens(block: Block) -> int:
    """The tokens of a block of a prompt that its texts and images do not say."""
    match block["type"]:
        case "redacted_thinking":
            return len(block["data"]) // CHARACTERS_PER_TOKEN
        case "thinking" if not block["thinking"]:
            return len(block["signature"]) // CHARACTERS_PER_TOKEN
        case "document" if block["source"]["type"] == "url":
            return FETCHED_DOCUMENT
    return 0
