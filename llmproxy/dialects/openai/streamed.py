"""The events by which a server of OpenAI's dialect would have streamed an answer that came in one piece."""

from collections.abc import Iterator
from itertools import count
from typing import Any

from llmproxy.dialects.ends import unsaid
from llmproxy.dialects.openai.choices import message_of
from llmproxy.dialects.openai.tool_calls import write_whole
from llmproxy.dialects.sse import data_event

Members = dict[str, Any]

# By the kind of a part of an item: the member with its text, and the thing that its events are about.
_PARTS = {
    "output_text": ("text", "output_text"),
    "refusal": ("refusal", "refusal"),
    "reasoning_text": ("text", "reasoning_text"),
    "summary_text": ("text", "reasoning_summary_text"),
}
# By the kind of an item that is one text, alike.
_ITEMS = {
    "function_call": ("arguments", "function_call_arguments"),
    "custom_tool_call": ("input", "custom_tool_call_input"),
}


def completion_as_chunks(answer: Members) -> bytes:
    """A chat completion as its chunks: what it says, why it ends, and what it has used."""
    head = {name: value for name, value in answer.items() if name not in ("choices", "usage")}
    head["object"] = "chat.completion.chunk"
    said: list[Members] = []
    ends: list[Members] = []
    for choice in answer["choices"]:
        message = message_of(choice)
        write_whole(message)
        index = choice.get("index") or 0
        reason = choice.get("finish_reason") or unsaid(has_calls=bool(message.get("tool_calls")))
        beside = {name: each for name, each in choice.items() if name not in ("message", "delta")}
        said.append({**beside, "index": index, "delta": message, "finish_reason": None})
        ends.append({"index": index, "delta": {}, "finish_reason": reason})
    events = data_event({**head, "choices": said}) + data_event({**head, "choices": ends})
    if answer.get("usage"):
        events += data_event({**head, "choices": [], "usage": answer["usage"]})
    return events + b"data: [DONE]\n\n"


def response_as_events(response: Members) -> bytes:
    """A response as its events."""
    begun = {**response, "output": [], "status": "in_progress", "usage": None}
    begun |= {name: None for name in ("completed_at", "incomplete_details") if name in response}
    kind = "incomplete" if response.get("status") == "incomplete" else "completed"
    events: list[Members] = [
        {"type": "response.created", "response": begun},
        {"type": "response.in_progress", "response": begun},
    ]
    for index, item in enumerate(response["output"]):
        place = {"output_index": index}
        events += [{**each, **place} for each in _of_item(item)]
    events.append({"type": f"response.{kind}", "response": response})
    numbers = count()
    return b"".join(data_event({**each, "sequence_number": next(numbers)}) for each in events)


def _of_item(item: Members) -> Iterator[Members]:
    kind, place = item.get("type"), {"item_id": item["id"]} if item.get("id") else {}
    has_parts = kind in ("message", "reasoning")
    names = [name for name in ("summary", "content") if isinstance(item.get(name), list)]
    lists: Members = {name: [] for name in names if has_parts}
    begun: Members = {**item, **lists}
    if "status" in item:
        begun["status"] = "in_progress"
    if kind in _ITEMS:
        begun[_ITEMS[kind][0]] = ""
    yield {"type": "response.output_item.added", "item": begun}
    if kind in _ITEMS:
        member, thing = _ITEMS[kind]
        yield from _of_text(thing, member, item.get(member) or "", place)
    for name in lists:
        for number, part in enumerate(item[name]):
            is_summary = name == "summary"
            at = {**place, "summary_index" if is_summary else "content_index": number}
            yield from _of_part(part, at, is_summary=is_summary)
    yield {"type": "response.output_item.done", "item": item}


def _of_part(part: Members, place: Members, *, is_summary: bool) -> Iterator[Members]:
    thing = "reasoning_summary_part" if is_summary else "content_part"
    member, text_thing = _PARTS.get(str(part.get("type")), ("", ""))
    begun = {**part}
    if member:
        begun[member] = ""
    if part.get("annotations"):
        begun["annotations"] = []
    yield {"type": f"response.{thing}.added", "part": begun, **place}
    if member:
        yield from _of_text(text_thing, member, part.get(member) or "", place)
    for number, each in enumerate(part.get("annotations") or ()):
        at = {**place, "annotation_index": number}
        yield {"type": "response.output_text.annotation.added", "annotation": each, **at}
    yield {"type": f"response.{thing}.done", "part": part, **place}


def _of_text(thing: str, member: str, text: str, place: Members) -> Iterator[Members]:
    logprobs: Members = {"logprobs": []} if thing == "output_text" else {}
    if text:
        yield {"type": f"response.{thing}.delta", "delta": text, **place, **logprobs}
    yield {"type": f"response.{thing}.done", member: text, **place, **logprobs}
