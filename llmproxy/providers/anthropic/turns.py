"""Translates the messages of a chat completion to a system prompt and alternating turns.

Anthropic wants the first turn to be a user's, user and assistant to alternate, no empty text, and the results
of tools at the head of the user's turn that follows. Messages of one role after another are therefore one turn,
and system messages, wherever they stand, one prompt before all turns. A participant's ``name`` and an image's
``detail`` have no counterpart and are not passed on.
"""

import re
from collections.abc import Iterable
from hashlib import sha256
from json import dumps, loads
from typing import Any

from config.api.problems import Fault, InvalidRequest

Block = dict[str, Any]
Turn = dict[str, Any]

IMAGES = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
# The first turn of a conversation that an assistant opens.
OPENING = "(The conversation begins.)"

_SYSTEM = frozenset({"system", "developer"})
_NOT_OF_AN_ID = re.compile(r"[^A-Za-z0-9_-]")
# The longest id of a call, and the length of the hash in ids that had to be changed.
LONGEST_ID = 64
_HASH = 8


def unsupported(pointer: str, detail: str) -> InvalidRequest:
    return InvalidRequest(errors=[Fault(pointer, "unsupported", detail)])


def system_prompt(messages: list[dict[str, Any]]) -> str:
    """The texts of all system and developer messages, in order."""
    texts = []
    for index, message in enumerate(messages):
        if message["role"] in _SYSTEM:
            blocks = _blocks(message["content"], _content(index), images=False)
            texts += [block["text"] for block in blocks]
    return "\n\n".join(texts)


def turns(messages: list[dict[str, Any]]) -> list[Turn]:
    """The turns of all other messages. Raises ``InvalidRequest`` for what no turn can hold."""
    made: list[Turn] = []
    for index, message in enumerate(messages):
        if message["role"] not in _SYSTEM:
            role = "assistant" if message["role"] == "assistant" else "user"
            _add(made, role, list(_of_message(message, _content(index))))
    if not made or made[-1]["role"] == "assistant":
        _refuse_unanswerable(messages)
    if not made:
        raise unsupported("/messages", "This model needs a message that is not the system's.")
    if made[0]["role"] == "assistant":
        made.insert(0, {"role": "user", "content": [_text(OPENING)]})
    if made[-1]["role"] == "assistant" and made[-1]["content"][-1]["type"] == "text":
        # An answer that the model continues must not end in a blank.
        last = made[-1]["content"][-1]
        last["text"] = last["text"].rstrip()
    return made


def _refuse_unanswerable(messages: list[dict[str, Any]]) -> None:
    """Raises for a last message that is no turn: the model would continue the answer before it, unasked."""
    for index, message in reversed([*enumerate(messages)]):
        if message["role"] == "assistant":
            return
        if message["role"] not in _SYSTEM:
            raise unsupported(_content(index), "This model needs more than blanks to answer.")
        said = _blocks(message["content"], _content(index), images=False)
        if said and any(each["role"] == "assistant" for each in messages[:index]):
            raise unsupported(
                f"/messages/{index}", "This model answers no system message after its own."
            )


def _content(index: int) -> str:
    return f"/messages/{index}/content"


def _add(made: list[Turn], role: str, blocks: list[Block]) -> None:
    if blocks and made and made[-1]["role"] == role:
        made[-1]["content"] += blocks
    elif blocks:
        made.append({"role": role, "content": blocks})


def _of_message(message: dict[str, Any], pointer: str) -> Iterable[Block]:
    content = message.get("content")
    if message["role"] == "tool":
        yield _result(message, _blocks(content, pointer, images=True))
    elif message["role"] == "user":
        yield from _blocks(content, pointer, images=True)
    else:
        yield from _blocks(content, pointer, images=False)
        yield from _blocks(message.get("refusal"), pointer, images=False)
        for call in message.get("tool_calls") or ():
            yield _use(call)


def _result(message: dict[str, Any], blocks: list[Block]) -> Block:
    result = {"type": "tool_result", "tool_use_id": call_id(message["tool_call_id"])}
    return {**result, "content": blocks} if blocks else result


def _use(call: dict[str, Any]) -> Block:
    function = call["function"]
    return {
        "type": "tool_use",
        "id": call_id(call["id"]),
        "name": function["name"],
        "input": _input(function["arguments"]),
    }


def _input(arguments: str) -> dict[str, Any]:
    """The arguments as an object. Arguments that are no valid object are kept as a text."""
    if not arguments.strip():
        return {}
    try:
        given = loads(arguments)
        # A number beyond JSON's range would not be valid JSON.
        dumps(given, allow_nan=False)
    except (ValueError, RecursionError):
        given = None
    return given if isinstance(given, dict) else {"arguments": arguments}


def call_id(given: str) -> str:
    """The id of a call; ids of other providers may be longer, or have characters that Anthropic refuses."""
    taken = _NOT_OF_AN_ID.sub("_", given)
    if given and taken == given and len(given) <= LONGEST_ID:
        return given
    # Different ids stay different.
    digest = sha256(given.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{taken[: LONGEST_ID - _HASH - 1]}_{digest[:_HASH]}"


def _blocks(content: Any, pointer: str, *, images: bool) -> list[Block]:
    if content is None or isinstance(content, str):
        return [_text(content)] if content and content.strip() else []
    made = []
    for index, part in enumerate(content):
        if part["type"] == "image_url":
            place = f"{pointer}/{index}/image_url"
            if not images:
                raise unsupported(place, "An image can only be part of a user's or tool's message.")
            made.append(_image(part["image_url"]["url"], f"{place}/url"))
        elif (text := part[part["type"]]).strip():
            made.append(_text(text))
    return made


def _text(text: str) -> Block:
    return {"type": "text", "text": text}


def _image(url: str, pointer: str) -> Block:
    if not url.startswith("data:"):
        return {"type": "image", "source": {"type": "url", "url": url}}
    head, _, data = url.removeprefix("data:").partition(",")
    kind, *parameters = head.lower().split(";")
    kind = "image/jpeg" if kind == "image/jpg" else kind
    if kind not in IMAGES or "base64" not in parameters or not data:
        raise unsupported(pointer, "This model takes JPEG, PNG, GIF and WebP images, in base64.")
    return {"type": "image", "source": {"type": "base64", "media_type": kind, "data": data}}
