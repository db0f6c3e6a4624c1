"""The JSON of answers: a `chat.completion` object, or the `chat.completion.chunk`s of a stream."""

import time
from collections.abc import Iterator
from secrets import token_hex
from typing import Any

from tests.standins.provider.answer import Answer, ToolCall
from tests.standins.provider.chat import Chat
from tests.standins.provider.tokens import count

FINGERPRINT = "fp_standin001"
MEMBER = {"content": "content", "refusal": "refusal", "reasoning": "reasoning_content"}


def completion(chat: Chat, answer: Answer) -> dict[str, Any]:
    """The answer as one object."""
    choice = {
        "index": 0,
        "message": _message(chat, answer),
        "logprobs": _logprobs(chat, answer.pieces),
        "finish_reason": answer.finish,
    }
    body = {**_head(chat, "chat.completion"), "choices": [choice]}
    if chat.directive.usage != "never":
        body["usage"] = usage(chat, answer, answer.tokens)
    return body


def chunks(chat: Chat, answer: Answer) -> Iterator[dict[str, Any]]:
    """The answer as a stream's events, without [DONE]: role, deltas, finish_reason, usage."""
    shape = chat.directive.usage
    asked = chat.include_usage and shape != "never"
    head = _head(chat, "chat.completion.chunk")

    def chunk(choices: list[dict[str, Any]], used: dict[str, Any] | None) -> dict[str, Any]:
        body = {**head, "choices": choices}
        if asked or used is not None:
            body["usage"] = used
        if chat.obfuscate:
            body["obfuscation"] = token_hex(4)
        return body

    if chat.directive.prelude:
        yield {**chunk([], None), "prompt_filter_results": [{"prompt_index": 0}]}
    delivered = 0
    for delta, tokens in _deltas(chat, answer):
        delivered += tokens
        told = shape == "every" or (shape == "last-content" and delivered == answer.tokens)
        used = usage(chat, answer, delivered) if told else None
        yield chunk([_choice(chat, delta, None)], used)
    final = usage(chat, answer, answer.tokens)
    yield chunk([_choice(chat, {}, answer.finish)], final if shape in {"every", "finish"} else None)
    if asked and shape not in {"last-content", "finish"}:
        for _ in range(2 if shape == "twice" else 1):
            yield chunk([], final)


def usage(chat: Chat, answer: Answer, delivered: int) -> dict[str, Any]:
    """The usage to report once `delivered` of the answer's tokens are out."""
    asked = chat.directive
    prompt = chat.prompt_tokens if asked.prompt_tokens is None else asked.prompt_tokens
    cached, reasoning = asked.cached_tokens, asked.reasoning_tokens
    output = delivered + reasoning
    if asked.completion_tokens is not None:
        output = min(delivered, asked.completion_tokens)
        output = asked.completion_tokens if delivered == answer.tokens else output
    if asked.usage == "zero":
        prompt = cached = reasoning = output = 0
    return {
        "prompt_tokens": prompt,
        "completion_tokens": output,
        "total_tokens": prompt + output,
        "prompt_tokens_details": {"cached_tokens": cached, "audio_tokens": 0},
        "completion_tokens_details": {
            "reasoning_tokens": reasoning,
            "audio_tokens": 0,
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
        },
    }


def _head(chat: Chat, kind: str) -> dict[str, Any]:
    return {
        "id": f"chatcmpl-{token_hex(12)}",
        "object": kind,
        "created": int(time.time()),
        "model": chat.model,
        "service_tier": "default",
        "system_fingerprint": FINGERPRINT,
    }


def _message(chat: Chat, answer: Answer) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": None, "refusal": None}
    if answer.calls:
        message["tool_calls"] = [
            {"id": call.identifier, "type": "function", "function": _function(call)}
            for call in answer.calls
        ]
    else:
        message[MEMBER[chat.directive.part]] = answer.text
    return message


def _function(call: ToolCall) -> dict[str, str]:
    return {"name": call.name, "arguments": "".join(call.arguments)}


def _choice(chat: Chat, delta: dict[str, Any], finish: str | None) -> dict[str, Any]:
    piece = delta.get("content")
    logprobs = _logprobs(chat, [piece]) if piece else None
    return {"index": 0, "delta": delta, "logprobs": logprobs, "finish_reason": finish}


def _deltas(chat: Chat, answer: Answer) -> Iterator[tuple[dict[str, Any], int]]:
    """Every delta with the number of tokens in it."""
    member = MEMBER[chat.directive.part]
    first = {"role": "assistant", "content": None, "refusal": None}
    if not answer.calls:
        yield {**first, member: ""}, 0
        for piece in answer.pieces:
            yield {member: piece}, 1
    for index, call in enumerate(answer.calls):
        function = {"name": call.name, "arguments": ""}
        opening = {"index": index, "id": call.identifier, "type": "function", "function": function}
        yield {**({} if index else first), "tool_calls": [opening]}, count(call.name)
        for piece in call.arguments:
            yield {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}, 1


def _logprobs(chat: Chat, pieces: list[str]) -> dict[str, Any] | None:
    """Invented log probabilities: every piece is nearly certain, its rivals are its beginnings."""
    if chat.logprobs is None or not pieces:
        return None
    content = []
    for piece in pieces:
        rivals = [piece[:end] for end in range(len(piece), 0, -1)]
        likely = [_likely(rival, -0.01 - rank) for rank, rival in enumerate(rivals)]
        content.append({**likely[0], "top_logprobs": likely[: chat.logprobs]})
    return {"content": content, "refusal": None}


def _likely(token: str, logprob: float) -> dict[str, Any]:
    return {"token": token, "logprob": logprob, "bytes": list(token.encode("utf-8", "replace"))}
