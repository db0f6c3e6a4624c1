"""How an answer leaves: in time, in the framing and with the faults that its directive asks for."""

import asyncio

from tests.standins.provider.answer import Answer
from tests.standins.provider.chat import Chat
from tests.standins.provider.completion import chunks, completion
from tests.standins.provider.directive import Directive
from tests.standins.provider.failures import error_body, usual_error
from tests.standins.provider.sse import DONE, frame
from tests.standins.provider.tally import Tally
from tests.standins.provider.wire import Reply, dump

# Real providers send such headers, and a proxy must keep them to itself.
HEADERS = (
    ("openai-organization", "stand-in"),
    ("openai-processing-ms", "1"),
    ("openai-version", "2020-10-01"),
    ("x-ratelimit-limit-requests", "10000"),
    ("x-ratelimit-remaining-requests", "9999"),
)
EVENT_STREAM = "text/event-stream; charset=utf-8"
PAGE = b"<html><head><title>502 Bad Gateway</title></head><body>502 Bad Gateway</body></html>\n"
BROKEN = '{"id":"chatcmpl-broken","object":"chat.completion.chunk","choices":[{"delta":{"con'
MIB = 1024 * 1024


async def deliver(reply: Reply, chat: Chat, answer: Answer, tally: Tally) -> None:
    """Send `answer`, or what is asked for in its place; raises `ApiError` for `fault=status`."""
    asked = chat.directive
    await asyncio.sleep(asked.first if chat.stream else asked.first + asked.delay * answer.tokens)
    if asked.status is not None:
        raise usual_error(
            asked.status, message=asked.message, code=asked.code, retry_after=asked.retry_after
        )
    if asked.fault == "html":
        await reply.send(502, PAGE, kind="text/html; charset=utf-8")
    elif chat.stream:
        await _send_stream(reply, chat, answer, tally)
    else:
        await _send_whole(reply, chat, answer)


async def _send_whole(reply: Reply, chat: Chat, answer: Answer) -> None:
    asked = chat.directive
    body = completion(chat, answer)
    if asked.fault == "gigantic":
        body["choices"][0]["message"]["content"] = "x" * (asked.mib * MIB)
    elif asked.fault == "error-event":
        body = _in_band_error(asked)
    raw = dump(body)
    half = len(raw) // 2
    if asked.fault in {"truncate", "malformed"}:
        raw = raw[:half]
    if asked.fault in {"reset", "cut", "stall"}:
        if asked.after:
            await reply.send(200, raw, headers=HEADERS, only=half)
        await _break_off(reply, asked.fault)
    else:
        await reply.send(200, raw, headers=HEADERS)


async def _send_stream(reply: Reply, chat: Chat, answer: Answer, tally: Tally) -> None:
    with tally.stream() as outcome:
        reply.start(EVENT_STREAM, (*HEADERS, ("Cache-Control", "no-cache")))
        if await _send_events(reply, chat, answer):
            outcome.finished()
            done = frame(DONE, chat.directive.framing) if chat.directive.done else []
            await reply.finish(b"".join(done))
        else:
            outcome.faulted()


async def _send_events(reply: Reply, chat: Chat, answer: Answer) -> bool:
    """Send everything but [DONE]; False if a fault ended the stream."""
    asked = chat.directive
    sent = 0
    for event in chunks(chat, answer):
        if sent == asked.after and await _fails(reply, asked):
            return False
        await asyncio.sleep(asked.delay if sent else 0)
        await _send(reply, event, asked)
        sent += 1
    return sent > asked.after or not await _fails(reply, asked)


async def _send(reply: Reply, event: dict[str, object] | str, asked: Directive) -> None:
    for piece in frame(event, asked.framing):
        await reply.part(piece)
        await asyncio.sleep(0)  # one write each, and a fair turn for other streams


async def _fails(reply: Reply, asked: Directive) -> bool:
    """Let the fault happen, if there is one; whether the stream ended with it."""
    if asked.fault is None:
        return False
    if asked.fault == "malformed":
        await _send(reply, BROKEN, asked)
        return False
    if asked.fault == "gigantic":
        delta = {"delta": {"content": "x" * (asked.mib * MIB)}, "index": 0, "finish_reason": None}
        await _send(reply, {"object": "chat.completion.chunk", "choices": [delta]}, asked)
        return False
    if asked.fault == "error-event":
        await _send(reply, _in_band_error(asked), asked)
    if asked.fault in {"error-event", "truncate"}:
        await reply.finish()
    await _break_off(reply, asked.fault)
    return True


async def _break_off(reply: Reply, fault: str) -> None:
    """End a response where it stands."""
    if fault == "stall":
        await asyncio.Event().wait()  # cancelled when the client leaves
    elif fault == "reset":
        await reply.reset()
    else:
        reply.close()


def _in_band_error(asked: Directive) -> dict[str, object]:
    return error_body(
        asked.message or "The server had an error while processing your request.",
        kind="server_error",
        code=asked.code,
    )
