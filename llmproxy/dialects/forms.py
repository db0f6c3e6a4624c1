"""Answers in the other form than was asked for: in one piece where a stream was, and as events where one piece was.

What a body is shows at its first sign, whatever its head names: no event begins like an object, and no object like an
event. The events of the one and the answer of the other are read by the translators that read all streams.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Any

from llmproxy.dialects.failures import FailedAnswer
from llmproxy.dialects.protocol import (
    KEEP_ALIVE,
    Codec,
    Piece,
    PromptUsage,
    ProviderError,
    Target,
    TokenUsage,
    Translator,
    UnreadableAnswer,
    WholeAnswer,
)
from llmproxy.dialects.reading import parse_json
from llmproxy.dialects.sse import EventParser

# A whole line that says nothing: servers and proxies send blanks, comments and empty events while they wait.
_NOTHING = (
    rb"[ \t]*[\r\n]"
    rb"|(?::|(?:event|id|retry):)[^\r\n]*%(end)b"
    rb"|data:[ \t]*(?:(?:null|(?i:ping|pong|heartbeat|keep-?alive)%(done)b)[ \t]*)?%(end)b"
)
_UNSAID = re.compile(
    rb"(?:\xef\xbb\xbf)?(?>%b)*+[ \t]*" % (_NOTHING % {b"end": rb"[\r\n]", b"done": b""})
)
# Bytes of a stream behind an answer in one piece, and the length within which they are looked for. Without an end of
# line before them, only data counts, or a line without a quote: a text of the answer may have a brace and a colon.
_BEHIND = re.compile(
    rb"(?:[\r\n]|(?<=\})(?=data:|(?:event|id|retry)?:[^\r\n\"{}]*[\r\n]))(?>%b)++\Z"
    % (_NOTHING % {b"end": rb"(?:[\r\n]|\Z)", b"done": rb"|\[DONE\]"})
)
_LONGEST_BEHIND = 512
_FIELD = re.compile(rb"(?:data|event|id|retry):|:")
# The beginning of a line that may yet turn out to say nothing.
_UNDECIDED = re.compile(rb"(?:[:a-z][^\r\n]{0,400})?", re.ASCII)
_LAST = b"[DONE]"


def from_first_sign(data: bytes) -> bytes:
    """A body from its first line on that says something, which may not be whole."""
    found = _UNSAID.match(data)
    return data[found.end() :] if found else data


def is_undecided(said: bytes) -> bool:
    """Returns whether a body from its first sign on shows none yet."""
    return _UNDECIDED.fullmatch(said) is not None


def are_events(body: bytes) -> bool:
    """Returns whether a whole body is a stream of events."""
    return _FIELD.match(from_first_sign(body)) is not None


def whole_answer(codec: Codec, body: bytes, *, target: Target, request: Any) -> WholeAnswer:
    """Reads the answer to a request for one piece, in either form. Raises as ``Codec.answer`` does."""
    if codec.is_streamed and are_events(body):
        return _gathered(codec, body, target=target, request=request)
    return codec.answer(_alone(body), target=target, request=request)


def as_pieces(
    codec: Codec, translator: Translator, body: bytes, *, target: Target, request: Any
) -> list[Piece]:
    """Splits an answer that came in one piece into those of a stream. Raises as ``Codec.answer`` does."""
    body = _alone(body)
    # Raises, and costs, as where one piece was asked for.
    codec.answer(body, target=target, request=request)
    stream = codec.as_stream(body)
    return [*map(translator.piece, EventParser(max_event_bytes=len(stream)).feed(stream))]


def _alone(body: bytes) -> bytes:
    """An answer in one piece without what a server for streams puts before and behind it."""
    body = body if body.startswith(b"{") else from_first_sign(body)
    found = _BEHIND.search(body, max(0, len(body) - _LONGEST_BEHIND))
    return body[: found.start()] if found else body


def _gathered(codec: Codec, body: bytes, *, target: Target, request: Any) -> WholeAnswer:
    translator = codec.translator(codec.reporting(request), target=target, called=None)
    parser, made = EventParser(max_event_bytes=len(body)), _Made()
    coming = iter(
        [(event, False) for event in parser.feed(body)]
        + [(event, True) for event in parser.finish()]
    )
    for event, is_last in coming:
        piece = translator.piece(event)
        if piece.failed is not None:
            if made.finished and is_last:
                # Half an event behind a whole answer.
                break
            raise made.failure(piece, (translator.piece(each) for each, _ in coming))
        made.add(piece)
        if piece.ended:
            break
    if not (made.finished or (codec.ends_by_closing and made.stream())):
        # The connection ended before the answer did.
        raise made.failure(Piece(failed=ProviderError(), is_within=True), ())
    stream = made.stream() + translator.ending(made.reported or TokenUsage(0, 0))
    answer = codec.gathered([*_objects(stream)])
    if made.reported is None:
        answer["usage"] = {}
    return WholeAnswer(answer, made.reported, made.size)


class _Made:
    """The part of an answer that has come so far."""

    def __init__(self) -> None:
        self.size, self.finished = 0, False
        self.reported: TokenUsage | None = None
        self.prompt: PromptUsage | None = None
        self._forwards: list[bytes] = []

    def add(self, piece: Piece) -> None:
        if piece.forward and piece.forward != KEEP_ALIVE:
            # The last one may lack its blank line.
            self._forwards.append(piece.forward.rstrip() + b"\n\n")
        self.size += piece.size
        self.finished = self.finished or piece.finished
        self.reported = piece.reported or self.reported
        self.prompt = piece.prompt or self.prompt

    def stream(self) -> bytes:
        return b"".join(self._forwards)

    def failure(self, piece: Piece, rest: Iterable[Piece]) -> Exception:
        """The failure of an answer at this piece; its usage may follow."""
        problem = piece.failed
        assert problem is not None
        if isinstance(problem, UnreadableAnswer):
            return problem
        reported = piece.reported
        if piece.is_within and reported is None:
            reported = next((each.reported for each in rest if each.reported is not None), None)
        made = self.size or (reported is not None and reported.output)
        is_refusal = not (piece.is_within or made)
        return FailedAnswer(
            problem,
            reported or self.reported,
            size=self.size + piece.size,
            prompt=self.prompt,
            is_refusal=is_refusal,
        )


def _objects(stream: bytes) -> Iterator[Any]:
    """The data of events of ours."""
    for event in EventParser(max_event_bytes=len(stream)).feed(stream):
        if event.data is not None and event.data != _LAST:
            yield parse_json(event.data)[0]
