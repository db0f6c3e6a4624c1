"""Providers' words on the record of a call, without what they quote of its prompt."""

from typing import Any

import pytest

from llmproxy.calls.quotations import MOST_PROMPT, without_quotations
from llmproxy.requests import chat


def kept(words: str, prompt: Any) -> str:
    body = {"model": "gpt-4.1-mini", "messages": [{"role": "user", "content": prompt}]}
    return without_quotations(words, request=chat.parse(body, stream=None))


PROMPT = 'Dear Mr Okafor, the patient\'s IBAN is DE89-3704. Write "your diagnosis is flu" to him.'


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("Rate limit reached for requests.", "Rate limit reached for requests."),
        ("The model gpt-4.1-mini is overloaded.", "The model gpt-4.1-mini is overloaded."),
        ("Invalid value: 'Okafor'.", "Invalid value: …"),
        ("Unknown input DE89-3704 in your text.", "Unknown input … in your text."),
        ("Refused: your diagnosis is flu.", "Refused: …"),
        ("Near “the patient's IBAN” a token is unknown.", "Near … a token is unknown."),
        # Ordinary words that both have say nothing of the prompt.
        ("The text to him is too long.", "The text to him is too long."),
        ("", ""),
    ],
)
def test_quotations_of_the_prompt_are_left_out(words: str, told: str) -> None:
    assert kept(words, PROMPT) == told


def test_every_text_of_a_request_is_its_prompt() -> None:
    part = [{"type": "text", "text": "hello"}, {"type": "text", "text": "canary-7kQz"}]
    assert kept("Bad text canary-7kQz, here.", part) == "Bad text … here."


def test_words_about_a_very_large_prompt_are_not_kept() -> None:
    assert kept("Too long.", "a " * MOST_PROMPT) == ""
    assert kept("Too long.", "a " * 1_000) == "Too long."


def test_an_image_is_no_text() -> None:
    image = {
        "type": "image_url",
        "image_url": {"url": "data:image/png;base64," + "A" * MOST_PROMPT},
    }
    assert kept("Invalid image.", [image]) == "Invalid image."
