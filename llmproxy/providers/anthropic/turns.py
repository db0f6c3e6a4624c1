"""Translates the messages of a chat completion to a system prompt and alternating turns.

Anthropic requires that the first turn is a user's, that user and assistant alternate, that no text is empty, and that
tool results are at the head of the next turn of the user. So consecutive messages of one role become one turn, and all
system messages become one prompt before the turns. A participant's ``name`` and an image's ``detail`` have no
counterpart and are left out.
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
# The first turn where the conversation begins with an assistant's message.
OPENING = "(The conversation begins.)"

_SYSTEM_ROLES = frozenset({"system", "developer"})
_FORBIDDEN_IN_ID = re.compile(r"[^A-Za-z0-9_-]")
# The longest id of a call, and the length of the hash at the end of an id that had to be changed.
MAX_ID_LENGTH = 64
_HASH_LENGTH = 8


def unsupported(pointer: str, detail: str) -> InvalidRequest:
    return InvalidRequest(errors=[Fault(pointer, "unsupported", detail)])


def system_prompt(messages: list[dict[str, Any]]) -> str:
    """The texts of all system and developer messages, in order."""
    texts = []
    for index, message in enumerate(messages):
        if message["role"] in _SYSTEM_ROLES:
            blocks = _blocks(message["content"], _content(index), images=False)
            texts += [block["text"] for block in blocks]
    return "\n\n".join(texts)


def turns(messages: list[dict[str, Any]]) -> list[Turn]:
    """The turns of all other messages. Raises ``InvalidRequest`` for a message that has no translation."""
    translated: list[Turn] = []
    for index, message in enumerate(messages):
        if message["role"] not in _SYSTEM_ROLES:
            role = "assistant" if message["role"] == "assistant" else "user"
            _append(translated, role, list(_message_blocks(message, _content(index))))
    if not translated or translated[-1]["role"] == "assistant":
        _check_last_message(messages)
    if not translated:
        raise unsupported("/messages", "This model needs a message other than system messages.")
    if translated[0]["role"] == "assistant":
        translated.insert(0, {"role": "user", "content": [_text(OPENING)]})
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
                _content(index), "This model cannot answer a message of white space alone."
            )
        blocks = _blocks(message["content"], _content(index), images=False)
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


def _message_blocks(message: dict[str, Any], pointer: str) -> Iterable[Block]:
    content = message.get("content")
    if message["role"] == "tool":
        yield _tool_result(message, _blocks(content, pointer, images=True))
    elif message["role"] == "user":
        yield from _blocks(content, pointer, images=True)
    else:
        yield from _blocks(content, pointer, images=False)
        yield from _blocks(message.get("refusal"), pointer, images=False)
        for call in message.get("tool_calls") or ():
            yield _tool_use(call)


def _tool_result(message: dict[str, Any], blocks: list[Block]) -> Block:
    result = {"type": "tool_result", "tool_use_id": call_id(message["tool_call_id"])}
    return {**result, "content": blocks} if blocks else result


def _tool_use(call: dict[str, Any]) -> Block:
    function = call["function"]
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


def _blocks(content: Any, pointer: str, *, images: bool) -> list[Block]:
    if content is None or isinstance(content, str):
        return [_text(content)] if content and content.strip() else []
    blocks = []
    for index, part in enumerate(content):
        if part["type"] == "image_url":
            image = f"{pointer}/{index}/image_url"
            if not images:
                raise unsupported(image, "Only a user's or tool's message can hold an image.")
            blocks.append(_image(part["image_url"]["url"], f"{image}/url"))
        elif (text := part[part["type"]]).strip():
            blocks.append(_text(text))
    return blocks


def _text(text: str) -> Block:
    return {"type": "text", "text": text}


def _image(url: str, pointer: str) -> Block:
    if not url.startswith("data:"):
        return {"type": "image", "source": {"type": "url", "url": url}}
    head, _, data = url.removeprefix("data:").partition(",")
    kind, *parameters = head.lower().split(";")
    kind = "image/jpeg" if kind == "image/jpg" else kind
    if kind not in IMAGES or "base64" not in parameters or not data:
        raise unsupported(pointer, "This model supports JPEG, PNG, GIF and WebP images, in base64.")
    return {"type": "image", "source": {"type": "base64", "media_type": kind, "data": data}}
