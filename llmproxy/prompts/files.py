"""Token costs of files and audio: documents by pages and text, others by length at most.

No provider publishes a rule that holds for all of them. Documents are read on a thread: a small one may hold much.
"""

import time
from base64 import b64decode
from collections.abc import Generator, Mapping, Sequence
from contextlib import suppress
from math import ceil
from struct import unpack
from typing import Any

from config.platform.concurrency.greenlets import WorkerThread
from config.platform.db.connections import release_connection
from llmproxy.prompts.documents import Bounds, Contents, read_contents

# Gemini counts the most: 32 tokens a second.
AUDIO_TOKENS_PER_SECOND = 32
# The fewest bytes of a second of compressed audio, which MP3 takes for speech at 8 kbit/s.
AUDIO_BYTES_PER_SECOND = 1_000
# Audio by URL has no known length: ten minutes, about as many tokens as a document by URL.
FETCHED_AUDIO_TOKENS = 600 * AUDIO_TOKENS_PER_SECOND
# A page is read as its text and as an image of it.
PAGE_TOKENS = 4_000
BYTES_PER_TOKEN_OF_DOCUMENTS = 4
# Documents and scans mostly have far more bytes for each token.
BYTES_PER_TOKEN = 8
BYTES_PER_TOKEN_OF_TEXT = 2
# Seconds of the processor for which one call's files are read before others' go on.
TURN_SECONDS = 0.05
_WAV_HEADER = 44
_UNCOMPRESSED = frozenset({1, 3})
_reading = WorkerThread("Many files are being read just now. Please try again in a moment.")


def audio_tokens(audio: Mapping[str, Any]) -> int:
    """The tokens of an ``input_audio`` part (``{data, format}``)."""
    data: str = audio["data"]
    if data.startswith("https://"):
        return FETCHED_AUDIO_TOKENS
    rate = _bytes_per_second(data) or AUDIO_BYTES_PER_SECOND
    return ceil(_size(data) / rate * AUDIO_TOKENS_PER_SECOND)


def files_tokens(files: Sequence[Mapping[str, Any]]) -> int:
    """The tokens of ``file`` parts (``{file_data, filename}``) of one call."""
    if not files:
        return 0
    # Not held while others' documents are read.
    release_connection()
    bounds = Bounds()
    reading = _tokens_of_all(files, bounds)
    while (tokens := _reading.run(_read_on, reading, bounds)) is None:
        # Others' files come in between: a person's large ones take half a second.
        continue
    return tokens


def _read_on(reading: Generator[None, None, int], bounds: Bounds) -> int | None:
    """Reads on in files for a while, and returns their tokens at the end."""
    bounds.go_on()
    until = time.thread_time() + TURN_SECONDS
    try:
        while time.thread_time() < until:
            next(reading)
    except StopIteration as end:
        tokens: int = end.value
        return tokens
    bounds.pause()
    return None


def _tokens_of_all(
    files: Sequence[Mapping[str, Any]], bounds: Bounds
) -> Generator[None, None, int]:
    tokens = 0
    for each in files:
        tokens += yield from _file_tokens(each, bounds)
        yield
    return tokens


def _file_tokens(file: Mapping[str, Any], bounds: Bounds) -> Generator[None, None, int]:
    head, comma, data = file["file_data"].rpartition(",")
    found = Contents()
    with suppress(ValueError):
        found = yield from read_contents(b64decode(data), bounds)
    known = max(found.pages * PAGE_TOKENS, ceil(found.text / BYTES_PER_TOKEN_OF_DOCUMENTS))
    if comma and head.startswith(("data:text/", "data:application/json")):
        # A PDF may be given for a text; the provider may look.
        return max(known, ceil(_size(data) / BYTES_PER_TOKEN_OF_TEXT))
    by_size = (
        0 if found.pages or (known and found.is_whole) else ceil(_size(data) / BYTES_PER_TOKEN)
    )
    return max(PAGE_TOKENS, known, by_size)


def _size(data: str) -> int:
    """The bytes of a text in base64."""
    return len(data) * 3 // 4


def _bytes_per_second(data: str) -> int | None:
    """The bytes of a second in a plain WAV file, by its head; None of any other."""
    try:
        head = b64decode(data[: _WAV_HEADER * 2])[:_WAV_HEADER]
    except ValueError:
        return None
    if len(head) < _WAV_HEADER or head[:4] + head[8:16] != b"RIFFWAVEfmt ":
        return None
    kind, channels, samples, _, _, bits = unpack("<HHIIHH", head[20:36])
    rate: int = samples * channels * bits // 8
    is_plain = kind in _UNCOMPRESSED and samples <= 96_000 and channels <= 8 and bits <= 32
    return rate if is_plain and rate else None
