"""Contents of PDFs: their pages, and the text in compressed streams.

Nothing is parsed as a reader would, which takes minutes for a hostile file: page objects are counted where they stand,
streams are inflated piece by piece, and of a text stream the strings count. What lies beyond the bounds is not read.
The kind of a stream is read from its bytes: its head can name it in many disguises.
"""

import re
import time
import zlib
from base64 import a85decode
from collections.abc import Generator, Iterable, Iterator
from contextlib import suppress
from itertools import chain
from typing import NamedTuple

# Of all documents of a call: bytes that are inflated, and seconds of the processor.
MOST_INFLATED = 32 * 1024 * 1024
MOST_SECONDS = 0.5
# Of one document: what any may hold, and how often its own length. Texts and drawings shrink to a tenth, zeros to a
# thousandth: without this a document of 17 KB takes all there is, and whoever comes next waits.
LEAST_INFLATED = 1024 * 1024
MOST_TIMES = 100
# Bytes that are searched in one go, which holds the interpreter.
PIECE = 256 * 1024
# Layers of compression.
MOST_LAYERS = 3
# Bytes of a stream in ASCII85 that are read: the library is slow.
MOST_ASCII85 = 128 * 1024

# Strings within strings that go on in the next piece.
MOST_DEPTH = 100


def _name(text: str) -> bytes:
    """A pattern for a name, any letter of which may be escaped."""
    return b"/" + b"".join(b"(?:%c|#(?i:%02x))" % (ord(letter), ord(letter)) for letter in text)


# Named wherever it stands: what may come between it and its "/Type" has no bound.
_PAGE = re.compile(_name("Page") + rb"(?![^\s()<>\[\]{}/%])")
_COUNT = re.compile(_name("Count") + rb"\s+(\d{1,6})(?!\d)")
# The operator that begins text, apart from bytes of pictures and fonts that look like it: plain letters follow, or
# its end.
_BEGINS_TEXT = re.compile(rb"(?:\A|[\s>\])])BT[\s/(<\[]")
_PLAINLY = re.compile(_BEGINS_TEXT.pattern + rb"(?:[\s -~]{16}|[\s -~]{0,15}\Z)")
_ENDS_TEXT = re.compile(rb"[\s\])>'\"jJ]ET(?:\s|\Z)")
_PLAIN = bytes([9, 10, 13, *range(32, 127)])
_STREAM = re.compile(rb"(?<!end)stream\r?\n?")
_ESCAPE = re.compile(rb"\\.", re.DOTALL)
# Strings, which may hold pairs of parentheses; deeper ones leave some over.
_STRING = re.compile(rb"\((?:[^()]|\([^()]*\))*\)|<[0-9A-Fa-f\s]+>")


class Contents(NamedTuple):
    """Pages, where they are known, and bytes of text; ``is_whole``: whether all was within the bounds."""

    pages: int = 0
    text: int = 0
    is_whole: bool = True


class Bounds:
    """The rest of one call's allowance for reading documents, used by one thread at a time."""

    def __init__(self) -> None:
        self._left = MOST_INFLATED
        # The end of the document's own share.
        self._stop = 0
        self._seconds = MOST_SECONDS
        self.go_on()

    def go_on(self) -> None:
        """Counts the time of the calling thread from now on."""
        self._until = time.thread_time() + self._seconds

    def pause(self) -> None:
        """Keeps what is left of the time, for the same thread is used by others."""
        self._seconds = self._until - time.thread_time()

    @property
    def are_reached(self) -> bool:
        return self._left <= self._stop or time.thread_time() > self._until

    def begin(self, size: int) -> None:
        """Begins a document of so many bytes."""
        self._stop = max(0, self._left - LEAST_INFLATED - MOST_TIMES * size)

    def inflated(self, packed: Iterable[bytes]) -> Iterator[bytes]:
        """The pieces of compressed bytes, up to their end, a fault or the bounds."""
        inflate = zlib.decompressobj()
        with suppress(zlib.error):
            for part in packed:
                waiting = part
                while waiting and not (inflate.eof or self.are_reached):
                    piece = inflate.decompress(waiting, PIECE)
                    waiting = inflate.unconsumed_tail
                    self._left -= len(piece)
                    yield piece
                if inflate.eof:
                    return


def contents_of(document: bytes, bounds: Bounds) -> Contents:
    """Returns the contents of a PDF; nothing is known of other files."""
    reading = read_contents(document, bounds)
    while True:
        try:
            next(reading)
        except StopIteration as end:
            found: Contents = end.value
            return found


def read_contents(document: bytes, bounds: Bounds) -> Generator[None, None, Contents]:
    """Finds what a PDF holds, in steps of a few milliseconds."""
    if b"%PDF-" not in document[:1024]:
        return Contents()
    bounds.begin(len(document))
    pages = counted = text = 0
    for piece in _pieces(document):
        pages, counted = _pages_beside(pages, counted, piece)
        yield
    for stream in _streams(document, bounds):
        has_begun, before = False, b""
        for piece in stream:
            pages, counted = _pages_beside(pages, counted, piece)
            has_begun = has_begun or _begins_text(piece)
            if has_begun:
                length, before = _text_in(before + piece)
                text += length
            yield
            if bounds.are_reached or (not has_begun and _is_binary(piece)):
                break
    return Contents(pages or counted, text, is_whole=not bounds.are_reached)


def _begins_text(piece: bytes) -> bool:
    if not _BEGINS_TEXT.search(piece):
        return False
    return bool(_PLAINLY.search(piece) or _ENDS_TEXT.search(piece))


def _is_binary(piece: bytes) -> bool:
    """Returns whether this is of a picture or a font, the rest of which is not read."""
    return 2 * len(piece.translate(None, _PLAIN)) > len(piece)


def _text_in(piece: bytes) -> tuple[int, bytes]:
    """The bytes of its strings, or of all where they are nested deeply; and what goes on in the next piece."""
    # The last one may be cut at the border.
    closed = _ESCAPE.sub(b".", piece) + b")"
    strings = _STRING.findall(closed)
    deep = closed.count(b"(") - b"".join(strings).count(b"(")
    is_cut = bool(strings) and closed.endswith(strings[-1])
    length = len(closed) if deep else sum(map(len, strings))
    return length, b"(" * min(deep + is_cut, MOST_DEPTH) + b"\\" * closed.endswith(b"\\)")


def _pages_beside(pages: int, count: int, piece: bytes) -> tuple[int, int]:
    """The number of page objects, and the largest count, with those of a piece.

    The pages' root has a count, and so has each heading.
    """
    return pages + len(_PAGE.findall(piece)), max([count, *map(int, _COUNT.findall(piece))])


def _streams(document: bytes, bounds: Bounds) -> Iterator[Iterator[bytes]]:
    """The pieces of each stream."""
    end = 0
    while not bounds.are_reached and (mark := _STREAM.search(document, end)):
        end = document.find(b"endstream", mark.end())
        end = len(document) if end < 0 else end
        # Compressed bytes end by themselves, and may hold the word.
        if _is_zlib(document[mark.end() : mark.end() + 2]):
            pieces = _pieces(document, mark.end())
        else:
            pieces = _pieces(_from_ascii(document[mark.end() : end]))
        yield _unpacked(pieces, bounds)


def _from_ascii(data: bytes) -> bytes:
    """The bytes that a stream of ASCII85 or hexadecimal digits stands for, as its end shows."""
    digits, mark, _ = data.rpartition(b">")
    with suppress(ValueError):
        if mark and digits.endswith(b"~"):
            return a85decode(digits[:-1][:MOST_ASCII85])
        if mark:
            return bytes.fromhex(digits.decode("ascii"))
    return data


def _unpacked(pieces: Iterator[bytes], bounds: Bounds) -> Iterator[bytes]:
    for _ in range(MOST_LAYERS):
        first = next(pieces, b"")
        pieces = chain([first], pieces)
        if not _is_zlib(first):
            break
        pieces = bounds.inflated(pieces)
    return pieces


def _is_zlib(data: bytes) -> bool:
    """Returns whether it begins like compressed bytes (RFC 1950)."""
    return len(data) > 1 and data[0] & 15 == zlib.DEFLATED and (data[0] << 8 | data[1]) % 31 == 0


def _pieces(data: bytes, begin: int = 0) -> Iterator[bytes]:
    return (data[start : start + PIECE] for start in range(begin, len(data), PIECE))
