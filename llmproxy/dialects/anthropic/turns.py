"""Translates the messages of a chat completion to a system prompt and alternating turns.

Anthropic requires that the first turn is a user's, that user and assistant alternate, that no text is empty, and that
tool results are at the head of the next turn of the user. So consecutive messages of one role become one turn, and all
system messages become one prompt before the turns. A participant's ``name`` has no counterpart and is left out.
"""

import re
from hashlib import sha256
from json import dumps, loads
from typing import Any

from llmproxy.dialects.anthropic.blocks import (
    NAME,
    NAMES,
    THOUGHTS,
    Block,
    blocks_of,
    cached,
    text_block,
    thoughts_of,
    unsupported,
)

Turn = dict[str, Any]

# The first turn where the conversation begins with an assistant's message.
OPENING = "(The conversation begins.)"

_SYSTEM_ROLES = frozenset({"system", "developer"})
_FORBIDDEN_IN_ID = re.compile(r"[^A-Za-z0-9_-]")
# The longest id of a call, and the length of the hash at the end of an id that had to be changed.
MAX_ID_LENGTH = 64
_HASH_LENGTH = 8


def system_prompt(messages: list[dict[str, Any]]) -> list[Block]:
    """The texts of all system and developer messages, in order."""
    blocks: list[Block] = []
    for index, message in enumerate(messages):
        if message["role"] in _SYSTEM_ROLES:
            found = blocks_of(message["content"], _content(index), media=False)
            blocks += _ending(found, message)
    return blocks


def turns(messages: list[dict[str, Any]]) -> list[Turn]:
    """The turns of all other messages. Raises ``InvalidRequest`` for a message that has no translation."""
    translated: list[Turn] = []
    for index, message in enumerate(messages):
        if message["role"] not in _SYSTEM_ROLES:
            role = "assistant" if message["role"] == "assistant" else "user"
            _append(translated, role, _message_blocks(message, index))
    for turn in translated:
        # The sort is stable, so results and all other blocks keep their order.
        turn["content"].sort(key=lambda block: block["type"] != "tool_result")
    if not translated or translated[-1]["role"] == "assistant":
        _check_last_message(messages)
    if not translated:
        raise unsupported("/messages", "This model needs a message other than system messages.")
    if translated[0]["role"] == "assistant":
        translated.insert(0, {"role": "user", "content": [text_block(OPENING)]})
    if translated[-1]["role"] == "assistant" and translated[-1]["content"][-1]["type"] == "text":
        # Anthropic refuses an unfinished answer that ends in white space.
        last = translated[-1]["content"][-1]
        last["text"] = last["text"].rstrip()
    return translated


def _check_last_message(messages: list[dict[str, Any]]) -> None:
    """Refuses a last message that makes no turn: the model would continue the answer before it instead."""
    for index, message in reversed([*enumerate(messages)]):
        if message["role"] == "assistant":
            return
        if message["role"] not in _SYSTEM_ROLES:
            raise unsupported(
                _content(index), "This model cannot answer a message of only whitespace."
            )
        blocks = blocks_of(message["content"], _content(index), media=False)
        if blocks and any(each["role"] == "assistant" for each in messages[:index]):
            raise unsupported(
                f"/messages/{index}",
                "This model cannot answer a system message after its own answer.",
            )


def _content(index: int) -> str:
    return f"/messages/{index}/content"


def _append(translated: list[Turn], role: str, blocks: list[Block]) -> None:
    if blocks and translated and translated[-1]["role"] == role:
        translated[-1]["content"] += blocks
    elif blocks:
        translated.append({"role": role, "content": blocks})


def _message_blocks(message: dict[str, Any], index: int) -> list[Block]:
    content, pointer = message.get("content"), _content(index)
    if message["role"] == "tool":
        blocks = [_tool_result(message, blocks_of(content, pointer, media=True))]
    elif message["role"] == "user":
        blocks = blocks_of(content, pointer, media=True)
    else:
        blocks = _answer_blocks(message, index)
    return _ending(blocks, message)


def _answer_blocks(message: dict[str, Any], index: int) -> list[Block]:
    """The blocks of an answer: what was thought after a call of a tool follows it, all other thoughts come first."""
    pointer, calls = _content(index), message.get("tool_calls") or ()
    thoughts = [*thoughts_of(message)]
    ids = [call["id"] for call in calls]
    blocks = [
        *(thought for after, thought in thoughts if after not in ids),
        *blocks_of(message.get("content"), pointer, media=False),
        *blocks_of(message.get("refusal"), pointer, media=False),
    ]
    for number, call in enumerate(calls):
        blocks.append(_tool_use(call, f"/messages/{index}/tool_calls/{number}"))
        blocks += (thought for after, thought in thoughts if after == call["id"])
    return blocks


def _ending(blocks: list[Block], message: dict[str, Any]) -> list[Block]:
    """A message's blocks: where it ends a cached beginning, its last block does."""
    if blocks and blocks[-1]["type"] not in THOUGHTS:
        blocks[-1] |= cached(message)
    return blocks


def _tool_result(message: dict[str, Any], blocks: list[Block]) -> Block:
    result = {"type": "tool_result", "tool_use_id": call_id(message["tool_call_id"])}
    return {**result, "content": blocks} if blocks else result


def _tool_use(call: dict[str, Any], pointer: str) -> Block:
    if call["type"] != "function":
        raise unsupported(f"{pointer}/type", "This model accepts only functions.")
    function = call["function"]
    if not NAME.fullmatch(function["name"]):
        raise unsupported(f"{pointer}/function/name", NAMES)
    return {
        "type": "tool_use",
        "id": call_id(call["id"]),
        "name": function["name"],
        "input": _input(function["arguments"]),
    }


def _input(arguments: str) -> dict[str, Any]:
    """The arguments as an object; invalid ones become an object with their text."""
    if not arguments.strip():
        return {}
    try:
        parsed = loads(arguments)
        # A number beyond JSON's range would not be valid JSON.
        dumps(parsed, allow_nan=False)
    except (ValueError, RecursionError):
        parsed = None
    return parsed if isinstance(parsed, dict) else {"arguments": arguments}


def call_id(given: str) -> str:
    """The id of a call. Anthropic refuses the length or the characters of some other providers' ids."""
    allowed = _FORBIDDEN_IN_ID.sub("_", given)
    if given and allowed == given and len(given) <= MAX_ID_LENGTH:
        return given
    # The hash keeps different ids different.
    digest = sha256(given.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{allowed[: MAX_ID_LENGTH - _HASH_LENGTH - 1]}_{digest[:_HASH_LENGTH]}"
