"""Reads an answer as the relay does, and writes what its caller gets."""

import json
from collections.abc import Iterable
from typing import Any, NamedTuple

from config.platform.problems.problem import Problem
from llmproxy.dialects.by_name import DIALECTS
from llmproxy.dialects.failures import FailedAnswer
from llmproxy.dialects.forms import as_pieces, from_first_sign, whole_answer
from llmproxy.dialects.protocol import KEEP_ALIVE, Codec, ProviderError, TokenUsage, Translator
from llmproxy.dialects.sse import EventParser
from llmproxy.requests import chat, embeddings, messages, responses
from llmproxy.requests.call_request import Surface
from tests.llmproxy.odd.rows import Row
from tests.llmproxy.targets import target

SAID = [{"role": "user", "content": "Hello"}]
UNKNOWN = TokenUsage(1, 1)


class Told(NamedTuple):
    """The caller's events, the ledger's figures, and the failure at the end."""

    body: bytes
    reported: TokenUsage | None
    finished: bool
    failed: Problem | None


def asked(row: Row, surface: Surface, *, stream: bool) -> Any:
    match surface:
        case Surface.RESPONSES:
            return responses.parse({"input": "Hello", "stream": stream, **row.asked})
        case Surface.MESSAGES:
            given = {"messages": SAID, "max_tokens": 100, "stream": stream, **row.asked}
            return messages.parse(given, headers={})
        case Surface.EMBEDDINGS:
            return embeddings.parse({"input": ["a", "b"], **row.asked})
    return chat.parse({"messages": SAID, "stream": stream, **row.asked}, stream=None)


def streamed(
    row: Row, surface: Surface, parts: Iterable[bytes], *, called: str | None = None
) -> Told:
    """Relays a stream whose bytes come in these parts, to its end or its failure."""
    codec = DIALECTS[row.dialect].codecs[surface]
    request = asked(row, surface, stream=True)
    translator = codec.translator(request, target=target(row.dialect), called=called)
    parts = [*parts]
    if (given := from_first_sign(b"".join(parts))).startswith(b"{"):
        return _as_pieces(codec, translator, given, row=row, request=request)
    parser, body, reported, finished = EventParser(), b"", None, False
    *coming, last = [*map(parser.feed, parts), parser.finish()]
    for event in (each for some in (*coming, last) for each in some):
        piece = translator.piece(event)
        reported = piece.reported or reported
        if piece.failed is not None and finished and event in last:
            # Half an event behind a whole answer.
            break
        if piece.failed is not None:
            return Told(body + translator.failure(piece.failed), reported, finished, piece.failed)
        finished = finished or piece.finished
        forward = piece.forward
        is_open = forward and forward != KEEP_ALIVE and not forward.endswith(b"\n\n")
        body += forward + (b"\n\n" if is_open else b"")
        if piece.ended:
            break
    if not finished:
        # The connection ended before the answer did.
        failed = ProviderError()
        return Told(body + translator.failure(failed), reported, finished, failed)
    return Told(body + translator.ending(reported or UNKNOWN), reported, finished, None)


def _as_pieces(
    codec: Codec, translator: Translator, given: bytes, *, row: Row, request: Any
) -> Told:
    """Relays a stream that has come in one piece."""
    try:
        pieces = as_pieces(codec, translator, given, target=target(row.dialect), request=request)
    except FailedAnswer as failed:
        return Told(translator.failure(failed.problem), failed.reported, False, failed.problem)
    except Problem as problem:
        return Told(translator.failure(problem), None, False, problem)
    reported = next((each.reported for each in reversed(pieces) if each.reported), None)
    body = b"".join(each.forward for each in pieces)
    assert pieces[-1].ended
    return Told(body + translator.ending(reported or UNKNOWN), reported, True, None)


def whole(row: Row, surface: Surface, body: bytes, *, called: str | None = None) -> Told:
    """Relays a whole answer."""
    codec = DIALECTS[row.dialect].codecs[surface]
    request = asked(row, surface, stream=False)
    try:
        answer, reported, _ = whole_answer(codec, body, target=target(row.dialect), request=request)
    except FailedAnswer as failed:
        return Told(b"", failed.reported, False, failed.problem)
    except Problem as problem:
        return Told(b"", None, False, problem)
    told = codec.completed(answer, called=called, charged=None)
    return Told(json.dumps(told).encode(), reported, True, None)
