"""What files and audio cost in a prompt, at most, by their length.

No provider publishes a rule that holds for all of them, and nothing is unpacked here: a compressed file that is read in
the server's process could stop it.
"""

from base64 import b64decode
from collections.abc import Mapping
from math import ceil
from struct import unpack
from typing import Any

# Gemini counts the most: 32 tokens a second.
AUDIO_TOKENS_PER_SECOND = 32
# The fewest bytes of a second of compressed audio, which MP3 takes for speech at 8 kbit/s.
AUDIO_BYTES_PER_SECOND = 1_000
# A page is read as its text and as an image of it.
PAGE_TOKENS = 4_000
# Documents and scans mostly have far more bytes for each token.
BYTES_PER_TOKEN = 8
BYTES_PER_TOKEN_OF_TEXT = 2
_WAV_HEADER = 44
_UNCOMPRESSED = frozenset({1, 3})


def audio_tokens(audio: Mapping[str, Any]) -> int:
    """The tokens of an ``input_audio`` part (``{data, format}``)."""
    data: str = audio["data"]
    rate = _bytes_per_second(data) or AUDIO_BYTES_PER_SECOND
    return ceil(_size(data) / rate * AUDIO_TOKENS_PER_SECOND)


def file_tokens(file: Mapping[str, Any]) -> int:
    """The tokens of a ``file`` part (``{file_data, filename}``)."""
    head, comma, data = file["file_data"].rpartition(",")
    if comma and head.startswith(("data:text/", "data:application/json")):
        return ceil(_size(data) / BYTES_PER_TOKEN_OF_TEXT)
    return max(PAGE_TOKENS, ceil(_size(data) / BYTES_PER_TOKEN))


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
