"""What a PDF holds: its pages, and the text in its compressed streams.

Nothing is parsed as a reader would, which takes minutes for a hostile file: page objects are counted where they stand,
streams are inflated piece by piece, and of a text stream the strings count. What lies beyond the bounds is not read.
"""

import re
import time
import zlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import NamedTuple

# Of all documents of a call: bytes that are inflated, and seconds of the processor.
MOST_INFLATED = 64 * 1024 * 1024
MOST_SECONDS = 0.3
# Bytes that are searched in one go, which holds the interpreter.
PIECE = 256 * 1024
# Layers of compression.
MOST_LAYERS = 3
_PAGE = re.compile(rb"/Type\s*/Page(?![A-Za-z])")
_COUNT = re.compile(rb"/Count\s+(\d{1,6})(?!\d)")
# Pictures, whose pixels are no text, and filters that are not undone here.
_NO_TEXT = re.compile(
    rb"/Subtype\s*/Image(?![A-Za-z])|/(?:ASCII|LZW|RunLength|DCT|JPX|CCITT|JBIG2)"
)
# The operator that begins text, apart from bytes of fonts that look like it.
_BEGINS_TEXT = re.compile(rb"(?:\A|[\s>\])])BT[\s/]")
_STRING = re.compile(rb"\([^()]*\)|<[0-9A-Fa-f\s]+>")


class Contents(NamedTuple):
    """Pages, where they are known, and bytes of text, each as far as it could be read."""

    pages: int = 0
    text: int = 0


class Bounds:
    """How much of the documents of one call may still be read; made and used by one thread."""

    def __init__(self) -> None:
        self._left = MOST_INFLATED
        self._until = time.thread_time() + MOST_SECONDS

    @property
    def are_reached(self) -> bool:
        return self._left <= 0 or time.thread_time() > self._until

    def inflated(self, data: bytes) -> Iterator[bytes]:
        """The pieces of compressed bytes, up to their end, a fault or the bounds."""
        inflate = zlib.decompressobj()
        with suppress(zlib.error):
            for part in _pieces(data):
                waiting = part
                while waiting and not self.are_reached:
                    piece = inflate.decompress(waiting, PIECE)
                    waiting = inflate.unconsumed_tail
                    self._left -= len(piece)
                    yield piece


def contents_of(document: bytes, bounds: Bounds) -> Contents:
    """What a PDF holds; nothing is known of another file."""
    if b"%PDF-" not in document[:1024]:
        return Contents()
    pages, counted = _pages_in(_pieces(document))
    text = 0
    for stream in _streams(document, bounds):
        has_begun = False
        for piece in stream:
            more, count = _pages_in([piece])
            pages, counted = pages + more, max(counted, count)
            has_begun = has_begun or (b"BT" in piece and _BEGINS_TEXT.search(piece) is not None)
            text += sum(map(len, _STRING.findall(piece))) if has_begun else 0
    return Contents(pages or counted, text)


def _pages_in(pieces: Iterable[bytes]) -> tuple[int, int]:
    """The number of page objects, and the largest count: the pages' root has one, and so has each heading."""
    pages = count = 0
    for piece in pieces:
        pages += len(_PAGE.findall(piece))
        count = max([count, *map(int, _COUNT.findall(piece))])
    return pages, count


def _streams(document: bytes, bounds: Bounds) -> Iterator[Iterator[bytes]]:
    """The pieces of each stream that may hold text or objects."""
    end = 0
    while not bounds.are_reached and (found := document.find(b"stream", end)) >= 0:
        head = document[max(end, document.rfind(b"obj", end, found)) : found]
        begin, end = found + len(b"stream"), document.find(b"endstream", found)
        end = len(document) if end < 0 else end + len(b"endstream")
        if _NO_TEXT.search(head):
            continue
        data, layers = document[begin:end].lstrip(b"\r\n"), min(head.count(b"/Fl"), MOST_LAYERS)
        for _ in range(layers - 1):
            data = b"".join(bounds.inflated(data))
        yield bounds.inflated(data) if layers else _pieces(data)


def _pieces(data: bytes) -> Iterator[bytes]:
    return (data[start : start + PIECE] for start in range(0, len(data), PIECE))
