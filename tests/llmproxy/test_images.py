"""Token costs of images, by the published rules."""

from base64 import b64encode
from struct import pack

import pytest

from llmproxy.prompts.images import (
    ANTHROPICS_LARGEST,
    OTHERS_LARGEST,
    Size,
    anthropic_tokens,
    openai_tokens,
    size_of,
)


def data_url(data: bytes) -> str:
    return f"data:image/any;base64,{b64encode(data).decode()}"


def png(width: int, height: int) -> bytes:
    return b"\x89PNG\r\n\x1a\n" + pack(">I4sII", 13, b"IHDR", width, height) + b"\x08\x06" * 50


def jpeg(width: int, height: int, *, preview: int = 0) -> bytes:
    preview_segment = b"\xff\xe1" + pack(">H", preview + 2) + b"\0" * preview
    tables = b"\xff\xc4" + pack(">H", 4) + b"\0\0"
    frame = b"\xff\xc2" + pack(">HBHH", 11, 8, height, width) + b"\0" * 40
    return b"\xff\xd8" + preview_segment + tables + frame


def webp(kind: bytes, rest: bytes) -> bytes:
    return b"RIFF\0\0\0\0WEBP" + kind + rest + b"\0" * 20


IMAGES = {
    "png": png(640, 480),
    "gif": b"GIF89a" + pack("<HH", 640, 480) + b"\0" * 20,
    "jpeg": jpeg(640, 480),
    "jpeg with a preview": jpeg(640, 480, preview=60_000),
    "webp": webp(b"VP8 ", b"\0" * 10 + pack("<HH", 640, 480)),
    "lossless webp": webp(b"VP8L", b"\0" * 4 + b"\x2f" + pack("<I", 639 | 479 << 14)),
    "extended webp": webp(b"VP8X", b"\0" * 8 + pack("<I", 639)[:3] + pack("<I", 479)[:3]),
}


@pytest.mark.parametrize("kind", IMAGES)
def test_the_size_of_an_image_is_read_from_its_beginning(kind: str) -> None:
    assert size_of(data_url(IMAGES[kind])) == Size(640, 480)
    assert size_of(data_url(IMAGES[kind] + b"\0" * 3_000_000)) == Size(640, 480)


@pytest.mark.parametrize(
    "url",
    [
        "https://pictures.test/1.png", "data:image/png;base64,", "data:image/png;base64,AAAA", "data:image/png,AAAA",
        "data:image/png;base64,é", data_url(png(0, 480)), data_url(IMAGES["jpeg"][:20]), data_url(b"\xff\xd8" * 9),
        data_url(b"\xff\xd8" + b"\xff\xe0\0\x02" * 40_000 + IMAGES["jpeg"][2:]),
    ],
    ids=lambda url: url[:30],
)  # fmt: skip
def test_the_size_of_anything_else_is_unknown(url: str) -> None:
    assert size_of(url) is None


@pytest.mark.parametrize(
    ("model", "width", "height", "detail", "tokens"),
    [
        ("gpt-4o", 1024, 1024, "high", 85 + 4 * 170),
        ("gpt-4o", 2048, 4096, "high", 85 + 6 * 170),
        ("gpt-4o", 4096, 8192, "low", 85),
        ("gpt-4.1", 300, 200, None, 85 + 170),
        ("openai/gpt-4o-mini", 1024, 1024, "auto", 2833 + 4 * 5667),
        ("gpt-5.1", 1024, 1024, "high", 70 + 4 * 140),
        ("o1", 1024, 1024, "high", 75 + 4 * 150),
        ("gpt-4.1-mini", 1024, 1024, None, 1659),
        ("gpt-5-nano", 5000, 5000, None, 3779),
        ("llava", 300, 200, None, OTHERS_LARGEST),
    ],
)
def test_openais_models_count_tiles_or_patches(
    model: str, width: int, height: int, detail: str | None, tokens: int
) -> None:
    image = {"url": data_url(png(width, height)), "detail": detail}
    assert openai_tokens(image, model=model) == tokens


def test_an_image_of_unknown_size_counts_as_the_largest() -> None:
    address = {"url": "https://pictures.test/1.png"}
    for model in ("gpt-4o", "gpt-4o-mini", "gpt-5", "gpt-5-mini", "o4-mini"):
        largest = openai_tokens(address, model=model)
        for size in ((2048, 768), (768, 2048), (3000, 3000), (100, 9000), (1, 1)):
            assert openai_tokens({"url": data_url(png(*size))}, model=model) <= largest
    assert anthropic_tokens(address) == ANTHROPICS_LARGEST


@pytest.mark.parametrize(
    ("width", "height", "tokens"),
    [(200, 200, 54), (1000, 1000, 1334), (1092, 1092, 1590), (9000, 9000, ANTHROPICS_LARGEST)],
)
def test_anthropics_models_count_pixels(width: int, height: int, tokens: int) -> None:
    assert anthropic_tokens({"url": data_url(png(width, height))}) == tokens
