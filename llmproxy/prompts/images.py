"""Token costs of images, by the published rules of OpenAI and Anthropic.

A rule needs the size of an image, which is in the first bytes of one that is given whole (``data:``). One that is
given by its address counts as the largest that the provider does not scale down.
"""

import re
from base64 import b64decode
from collections.abc import Mapping
from math import ceil
from struct import unpack
from typing import Any, NamedTuple

# Characters of an image, and segments of a JPEG, that are looked at: its size may stand behind a preview.
LOOKED_AT = 256 * 1024
MOST_SEGMENTS = 100
TILE = 512
LARGEST_SIDE = 2048
SHORTEST_SIDE = 768
PATCH = 32
MOST_PATCHES = 1536
PIXELS_PER_TOKEN = 750
# The tokens of the largest image that newer models of Anthropic do not scale down.
ANTHROPICS_LARGEST = 4_784


class Size(NamedTuple):
    """Pixels."""

    width: int
    height: int


class _Tiles(NamedTuple):
    """The tokens of an image in low detail, and of each tile of one in high detail."""

    base: int
    tile: int

    def tokens(self, size: Size, *, is_low: bool) -> int:
        if is_low:
            return self.base
        shrunk = min(1, LARGEST_SIDE / max(size))
        shrunk = min(shrunk, SHORTEST_SIDE / min(size))
        across, down = (ceil(round(side * shrunk) / TILE) for side in size)
        return self.base + across * down * self.tile


class _Patches(NamedTuple):
    """The tokens of each patch."""

    factor: float

    def tokens(self, size: Size, *, is_low: bool) -> int:
        patches = ceil(size.width / PATCH) * ceil(size.height / PATCH)
        return ceil(min(patches, MOST_PATCHES) * self.factor)


# The first that matches a provider's name for a model.
_OPENAI: tuple[tuple[re.Pattern[str], _Tiles | _Patches], ...] = (
    (re.compile(r"gpt-4o-mini"), _Tiles(2833, 5667)),
    (re.compile(r"gpt-(4\.1|5)-mini"), _Patches(1.62)),
    (re.compile(r"gpt-(4\.1|5)-nano"), _Patches(2.46)),
    (re.compile(r"o4-mini"), _Patches(1.72)),
    (re.compile(r"o[13](-|$)"), _Tiles(75, 150)),
    (re.compile(r"gpt-5"), _Tiles(70, 140)),
    (re.compile(r"gpt-|chatgpt-"), _Tiles(85, 170)),
)
# An image of 2048 by 2048 that is not scaled down, for models of others that speak OpenAI's dialect.
OTHERS_LARGEST = 2_805


def openai_tokens(image: Mapping[str, Any], *, model: str) -> int:
    """The tokens of an image (``{url, detail}``) for a model behind OpenAI's dialect."""
    family = model.rpartition("/")[2].lower()
    rule = next((rule for pattern, rule in _OPENAI if pattern.match(family)), None)
    if rule is None:
        return OTHERS_LARGEST
    size = size_of(image["url"]) or Size(LARGEST_SIDE, SHORTEST_SIDE)
    return rule.tokens(size, is_low=image.get("detail") == "low")


def anthropic_tokens(image: Mapping[str, Any]) -> int:
    """The tokens of an image for any model of Anthropic."""
    size = size_of(image["url"])
    if size is None:
        return ANTHROPICS_LARGEST
    return min(ceil(size.width * size.height / PIXELS_PER_TOKEN), ANTHROPICS_LARGEST)


def size_of(url: str) -> Size | None:
    """The size of an image that its address holds, or None."""
    head, comma, data = url[: LOOKED_AT + 100].partition(",")
    if not comma or not head.startswith("data:") or not head.endswith(";base64"):
        return None
    try:
        size = _size(b64decode(data[: min(LOOKED_AT, len(data)) // 4 * 4]))
    except (ValueError, LookupError):
        return None
    return size if size and min(size) > 0 else None


def _size(data: bytes) -> Size | None:
    if data.startswith(b"\x89PNG\r\n\x1a\n") and len(data) >= 24:
        return Size(*unpack(">II", data[16:24]))
    if data.startswith((b"GIF87a", b"GIF89a")) and len(data) >= 10:
        return Size(*unpack("<HH", data[6:10]))
    if data.startswith(b"\xff\xd8"):
        return _jpeg_size(data)
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP" and len(data) >= 30:
        return _webp_size(data)
    return None


def _jpeg_size(data: bytes) -> Size | None:
    """The size in the first frame, whose markers are C0 to CF without those of tables (C4, C8, CC)."""
    at = 2
    for _ in range(MOST_SEGMENTS):
        if at + 9 > len(data) or data[at] != 0xFF:
            break
        marker = data[at + 1]
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            height, width = unpack(">HH", data[at + 5 : at + 9])
            return Size(width, height)
        at += 2 + int.from_bytes(data[at + 2 : at + 4])
    return None


def _webp_size(data: bytes) -> Size | None:
    match data[12:16]:
        case b"VP8X":
            sides = (data[24:27], data[27:30])
            return Size(*(1 + int.from_bytes(side, "little") for side in sides))
        case b"VP8L":
            bits = int.from_bytes(data[21:25], "little")
            return Size(1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF))
        case b"VP8 ":
            return Size(*(side & 0x3FFF for side in unpack("<HH", data[26:30])))
    return None
