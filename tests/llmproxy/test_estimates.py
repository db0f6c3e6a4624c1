"""The bound on what a prompt can cost."""

import base64

import pytest

from llmproxy.estimates import IMAGE_TOKENS, delivered_tokens, prompt_tokens


def of(text: str) -> int:
    return prompt_tokens({"messages": [{"role": "user", "content": text}]}) - prompt_tokens(
        {"messages": [{"role": "user", "content": None}]}
    )


@pytest.mark.parametrize(
    ("text", "least", "most"),
    [
        # The least is what a tokenizer in use makes of it, or more; the most is what is not silly.
        ("the quick brown fox jumps over the lazy dog", 9, 22),
        ("aLtErNaTiNg cAsE", 12, 16),
        ("CamelPairsOfLetters", 10, 19),
        ("XQZJVK", 6, 6),
        ("0123456789", 10, 10),
        ("{}[]();", 7, 7),
        ("\n\n\n\n", 4, 4),
        ("日本語", 3, 9),
        (base64.b64encode(bytes(range(256))).decode(), 256, 344),
    ],
)
def test_the_bound_is_no_less_than_real_and_no_more_than_sensible(
    text: str, least: int, most: int
) -> None:
    assert least <= of(text) <= most


def test_an_image_costs_the_same_however_large_its_bytes() -> None:
    part = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 100_000}}
    with_image = prompt_tokens({"messages": [{"role": "user", "content": [part]}]})
    without = prompt_tokens({"messages": [{"role": "user", "content": None}]})
    assert with_image - without == IMAGE_TOKENS


def test_tools_and_formats_count() -> None:
    plain = {"messages": [{"role": "user", "content": "x"}]}
    tool = {"type": "function", "function": {"name": "f", "description": "does something useful"}}
    assert prompt_tokens({**plain, "tools": [tool]}) > prompt_tokens(plain) + 20
    assert prompt_tokens({**plain, "response_format": {"type": "json_object"}}) > prompt_tokens(
        plain
    )


def test_half_a_character_does_not_stop_the_count() -> None:
    assert of("\ud800") == 3


@pytest.mark.parametrize(
    ("deltas", "size", "tokens"), [(0, 0, 0), (5, 5, 5), (1, 400, 100), (3, 13, 4)]
)
def test_what_nobody_reported_is_counted_by_deltas_or_bytes(
    deltas: int, size: int, tokens: int
) -> None:
    assert delivered_tokens(deltas=deltas, size=size) == tokens
