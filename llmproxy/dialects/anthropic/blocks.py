"""Translates the parts of a message to content blocks. An image's ``detail`` has no counterpart and is left out."""

import re
from base64 import b64decode
from collections.abc import Iterator
from typing import Any

from config.platform.problems.problem import Fault, InvalidRequest

Block = dict[str, Any]

IMAGES = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
NAME = re.compile(r"[A-Za-z0-9_-]{1,128}")
NAMES = "This model accepts only letters, digits, _ and - in the name of a tool."
# The blocks of what a model thought, and the mark of their signatures in ``reasoning_details``.
THOUGHTS = frozenset({"thinking", "redacted_thinking"})
SIGNED = "anthropic-claude-v1"


def unsupported(pointer: str, detail: str) -> InvalidRequest:
    return InvalidRequest(errors=[Fault(pointer, "unsupported", detail)])


def text_block(text: str) -> Block:
    return {"type": "text", "text": text}


def cached(given: dict[str, Any]) -> Block:
    """The mark of a message, part or tool that ends a cached beginning of the prompt."""
    is_end = given.get("cache_control") or given.get("prompt_cache_breakpoint")
    return {"cache_control": {"type": "ephemeral"}} if is_end else {}


def blocks_of(content: Any, pointer: str, *, media: bool) -> list[Block]:
    """The blocks of a message's content; ``media`` where it may hold images and files. Blank texts are left out."""
    if content is None or isinstance(content, str):
        return [text_block(content)] if content and content.strip() else []
    blocks: list[Block] = []
    for index, part in enumerate(content):
        block = _block(part, f"{pointer}/{index}/{part['type']}", media=media)
        if block is not None:
            blocks.append(block | cached(part))
        elif blocks and (mark := cached(part)):
            blocks[-1] |= mark
    return blocks


def _block(part: dict[str, Any], pointer: str, *, media: bool) -> Block | None:
    kind = part["type"]
    if kind == "thinking":
        # Of another provider, without a signature.
        return None
    if kind in ("text", "refusal"):
        return text_block(part[kind]) if part[kind].strip() else None
    if kind == "input_audio":
        raise unsupported(pointer, "This model does not accept audio.")
    if not media:
        what = "an image" if kind == "image_url" else "a file"
        raise unsupported(pointer, f"Only a user's or tool's message can hold {what}.")
    if kind == "file":
        return _document(part["file"], f"{pointer}/file_data")
    return _image(part["image_url"]["url"], f"{pointer}/url")


def thoughts_of(message: dict[str, Any]) -> Iterator[tuple[Any, Block]]:
    """Yields what the model thought, as its signatures prove, each with the id of the call of a tool before it.

    It is in ``reasoning_details``, or in LiteLLM's ``thinking_blocks``, which have no place among the calls.
    """
    is_found = False
    for part in message.get("reasoning_details") or ():
        match part:
            case {"format": str(form), "signature": str(signature), "text": str(text)} if (
                form == SIGNED and signature
            ):
                thought = {"type": "thinking", "thinking": text, "signature": signature}
            case {"format": str(form), "data": str(data)} if form == SIGNED and data:
                thought = {"type": "redacted_thinking", "data": data}
            case _:
                continue
        is_found = True
        yield part.get("id"), thought
    for block in () if is_found else message.get("thinking_blocks") or ():
        match block:
            case {"type": "thinking", "thinking": str(text), "signature": str(signature)} if (
                signature
            ):
                yield None, {"type": "thinking", "thinking": text, "signature": signature}
            case {"type": "redacted_thinking", "data": str(data)} if data:
                yield None, {"type": "redacted_thinking", "data": data}


def _image(url: str, pointer: str) -> Block:
    if not url.startswith("data:"):
        return {"type": "image", "source": {"type": "url", "url": url}}
    head, _, data = url.removeprefix("data:").partition(",")
    kind, *parameters = head.lower().split(";")
    kind = "image/jpeg" if kind == "image/jpg" else kind
    if kind not in IMAGES or "base64" not in parameters or not data:
        raise unsupported(pointer, "This model supports JPEG, PNG, GIF and WebP images, in base64.")
    return {"type": "image", "source": {"type": "base64", "media_type": kind, "data": data}}


def _document(file: dict[str, Any], pointer: str) -> Block:
    head, _, data = file["file_data"].rpartition(",")
    title = {"title": file["filename"]} if file.get("filename") else {}
    if head in ("", "data:application/pdf;base64") and data:
        source = {"type": "base64", "media_type": "application/pdf", "data": data}
    elif head == "data:text/plain;base64":
        source = {"type": "text", "media_type": "text/plain", "data": _text_of(data, pointer)}
    else:
        raise unsupported(pointer, "This model accepts PDF and plain text files.")
    return {"type": "document", "source": source, **title}


def _text_of(data: str, pointer: str) -> str:
    try:
        return b64decode(data, validate=True).decode()
    except ValueError:
        raise unsupported(pointer, "This is not UTF-8 text in base64.") from None
