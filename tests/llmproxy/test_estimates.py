"""The bound on what a prompt can cost, held to tokenizers in use.

Their vocabularies come with LiteLLM, so nothing is downloaded: two of OpenAI's, and Claude's first public one.
"""

import base64
import os
import re
import sys
import unicodedata
from collections.abc import Callable
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from string import ascii_letters, ascii_lowercase, digits, printable
from unicodedata import normalize
from unittest import mock

import pytest
import tiktoken
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from llmproxy import estimates
from llmproxy.estimates import (
    MAX_COMPOSED,
    MAX_EXPANSION,
    MAX_GROWTH,
    SLICE,
    WHOLE_WORDS,
    WHOLE_WORDS_WITHIN,
    delivered_tokens,
    prompt_tokens,
    text_tokens,
)

Count = Callable[[str], int]
JOINED = "abcdefghilmnoprstuw"

SAMPLES = {
    "prose": "The committee met on Tuesday to consider several proposals for improving public transport in the "
    "region. After a lengthy discussion, members agreed that frequency matters more than speed.",
    "chat": "Can you help me with this? I want to write a short note to my team about the new time table.",
    "German": "Die Katze saß auf der Fensterbank und schaute den Vögeln im Garten zu, während draußen der Regen "
    "langsam nachließ. Wir haben gestern beschlossen, dass die Veröffentlichung verschoben wird.",
    "code": Path(__file__).read_text(),
    "JSON": '{"id": "chatcmpl-123", "choices": [{"index": 0, "delta": {"content": "Hello"}, "usage": null}]}',
    "Chinese": "今天天气很好，我们一起去公园散步吧。人工智能正在改变世界，但也带来了新的挑战。",
    "Japanese": "昨日は友達と一緒に映画を見に行きました。とても面白かったです。",
    "Russian": "Сегодня хорошая погода, и мы пошли гулять в парк.",
    "base64": base64.b64encode(bytes(range(256)) * 4).decode(),
}
# How many times its real tokens a text may be held for. The newest tokenizers have more of other scripts.
SENSIBLE = {"Chinese": 5, "Japanese": 5, "Russian": 6.5, "German": 3.5}


@pytest.fixture(scope="module")
def tokenizers() -> dict[str, Count]:
    spec = find_spec("litellm")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    folder = Path(spec.submodule_search_locations[0], "litellm_core_utils", "tokenizers")
    with mock.patch.dict(os.environ, {"TIKTOKEN_CACHE_DIR": str(folder)}):
        openai = [tiktoken.get_encoding(name) for name in ("cl100k_base", "o200k_base")]
    claude = Tokenizer.from_file(str(folder / "anthropic_tokenizer.json"))
    return {
        **{each.name: lambda text, each=each: len(each.encode_ordinary(text)) for each in openai},
        "claude": lambda text: len(claude.encode(text).ids),
    }


def test_the_assumptions_of_the_bound_hold_for_real_tokenizers(
    tokenizers: dict[str, Count],
) -> None:
    for count in tokenizers.values():
        # A space joins what follows it, too.
        pairs = map("".join, product(" " + JOINED, JOINED))
        assert [pair for pair in pairs if count(pair) > 1] == []
        assert [word for word in WHOLE_WORDS if count(word.decode()) > 1] == []


WORD = st.text(ascii_lowercase, min_size=1, max_size=12)


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.one_of(
        st.text(max_size=60),
        st.text(printable, max_size=60),
        st.text(ascii_letters + digits, max_size=40),
        st.text(ascii_lowercase, max_size=40),
        st.text("qxzjvkwy", max_size=20),
        st.text("ab .'\n", max_size=40),
        st.lists(WORD).map(" ".join),
        st.lists(st.sampled_from(WHOLE_WORDS)).map(lambda words: b"".join(words).decode()),
        st.lists(st.sampled_from([*WHOLE_WORDS, b"X", b"'s", "é".encode(), b"7", b"("])).map(
            lambda words: b"".join(words).decode()
        ),
        st.lists(WORD).map("  ".join),
        st.lists(WORD).map(".".join),
        st.lists(WORD).map("_".join),
        st.lists(WORD).map(lambda words: "".join(map(str.title, words))),
        st.binary(max_size=40).map(lambda data: base64.b64encode(data).decode()),
        st.integers(1, 300).map(" ".__mul__),
        st.integers(1, 40).map("\n    x = y".__mul__),
    )
)
# Found by searching for words that are cut as finely as can be.
@example("\N{ARABIC LIGATURE SALLALLAHOU ALAYHE WASALLAM}\N{SQUARE APAATO}")
@example("uoohdsmgphdrrbmrpdhg")
@example("zrjxvqyqkqzqgqzjzjzr")
@example("uepirbgsnnpg we'll 're 'sabc")
def test_no_tokenizer_exceeds_the_bound(tokenizers: dict[str, Count], text: str) -> None:
    most = text_tokens(text)
    forms = (text, normalize("NFKC", text))
    assert most <= max(len(form.encode("utf-8", "surrogatepass")) for form in forms)
    if text.isascii() or text.encode("utf-8", "replace").decode() == text:
        assert {name: count(text) for name, count in tokenizers.items() if count(text) > most} == {}


@pytest.mark.parametrize("kind", SAMPLES)
def test_the_bound_is_not_far_too_high(tokenizers: dict[str, Count], kind: str) -> None:
    text = SAMPLES[kind]
    real = [count(text) for count in tokenizers.values()]
    assert max(real) <= text_tokens(text) <= SENSIBLE.get(kind, 3) * min(real)


@given(st.text("  abqA'.\n\0", max_size=60))
def test_runs_and_gaps_cost_the_documented_tokens(text: str) -> None:
    runs = [len(run) for run in re.findall(f" ?[{JOINED}]+", text)]
    gaps = [len(gap) for gap in re.findall(" +(?= )", text)]
    joined = sum((2 * run + 1) // 3 for run in runs) + sum(1 + gap // 4 for gap in gaps)
    words = [
        word for word in re.findall(" [a-z]++(?![A-Z'])", text) if word.encode() in WHOLE_WORDS
    ]
    spared = sum((2 * len(word) + 1) // 3 - 1 for word in words)
    assert text_tokens(text) == len(text) - sum(runs) - sum(gaps) + joined - spared


def test_the_constants_about_compatibility_forms_are_right() -> None:
    texts = [chr(code) for code in range(sys.maxunicode + 1) if not 0xD800 <= code < 0xE000]
    sizes = [len(text.encode()) for text in texts]
    canonical, compatible = (
        [len(normalize(form, text).encode()) for text in texts] for form in ("NFD", "NFKD")
    )
    composed = [
        apart - size
        for text, size, apart in zip(texts, sizes, canonical, strict=True)
        if apart != size and normalize("NFC", text) == text
    ]
    assert 0 < min(composed) <= max(composed) == MAX_COMPOSED
    ratios = [apart / size for size, apart in zip(sizes, compatible, strict=True)]
    assert max(ratios) == MAX_EXPANSION


@given(
    st.text(
        "AQΩα\u00c4\u1f80\uac00\u1100\u1161\u11a8\u304b\u3099\uff9e\u0cc6\u0cd5\u0cc2", max_size=3
    ),
    st.text(
        "QΩ\u0301\u0308\u0313\u0316\u0323\u0327\u0345\u0f71\u0f73\u3099\uff9e\u00a0", min_size=1
    ),
)
# Of the whole, the mark behind the cut composes, and the one before it, which saves more, does not.
@example("\u00c4", "\u0323")
def test_no_form_has_more_bytes_than_the_bound_cut_or_whole(base: str, marks: str) -> None:
    for before in range(SLICE - len(base), SLICE + 1):
        text = "Q" * before + base + marks * 3
        assert len(normalize("NFKC", text).encode()) <= text_tokens(text)


def test_a_letter_that_composes_across_a_cut_does_not_join_the_run() -> None:
    text = "Q" * (SLICE - 2) + "sa\u0323"
    assert text_tokens(text) >= SLICE - 2 + len("s\u1ea1".encode())


@pytest.mark.parametrize(
    "text",
    ["a" + "\u0301\u0316" * 20_000, "\ufdfa" * 100_000, "½" * 1_000_000, "Grüße\u00a0an alle. " * 10_000],
    ids=["marks", "ligatures", "fractions", "prose"],
)  # fmt: skip
def test_any_text_is_normalized_in_small_pieces_up_to_a_limit(
    monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    taken, given = [], []

    def counted(form: str, piece: str) -> str:
        made = unicodedata.normalize(form, piece)
        taken.append(len(piece))
        given.append(len(made))
        return made

    monkeypatch.setattr(estimates, "normalize", counted)
    text_tokens(text)
    assert max(taken) <= 100
    assert sum(taken) <= len(text)
    assert sum(given) <= sum(taken) + MAX_GROWTH + 18 * 100


def test_a_text_with_a_far_longer_form_counts_as_the_worst_expansion() -> None:
    text = "\ufdfa" * (MAX_GROWTH // 17)
    worst = len(normalize("NFKC", text).encode())
    assert worst - 5 * len(text) < text_tokens(text) <= worst == MAX_EXPANSION * len(text.encode())
    assert text_tokens(text + "½" * 2000) == MAX_EXPANSION * (len(text.encode()) + 4000)


def test_words_beyond_the_limit_count_as_letters() -> None:
    within = WHOLE_WORDS_WITHIN // 4
    assert text_tokens(" the" * within) == within
    assert text_tokens(" the" * (within + 10)) == within - 1 + 11 * 3
    assert text_tokens("x" * WHOLE_WORDS_WITHIN + " the") == WHOLE_WORDS_WITHIN + 3


def of(content: object, *, image_tokens: int = 0) -> int:
    """What a message costs beside its frame."""
    bare, message = {"role": "user", "content": None}, {"role": "user", "content": content}
    return prompt_tokens({"messages": [message]}, image_tokens=image_tokens) - prompt_tokens(
        {"messages": [bare]}, image_tokens=image_tokens
    )


def test_an_image_costs_the_same_however_large_its_bytes() -> None:
    part = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 100_000}}
    assert of([part, part], image_tokens=700) == 1_400


def test_parts_cost_what_their_text_costs() -> None:
    parts = [{"type": "text", "text": "Good morning."}, {"type": "refusal", "refusal": "No."}]
    assert of(parts) == of("Good morning.") + of("No.")


def test_tools_choices_and_forms_count(tokenizers: dict[str, Count]) -> None:
    plain = {"messages": [{"role": "user", "content": "x"}]}
    tool = {"type": "function", "function": {"name": "f", "description": "does something useful"}}
    form = {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object"}}}
    for more in ({"tools": [tool]}, {"response_format": form}, {"tool_choice": tool}):
        added = prompt_tokens({**plain, **more}, image_tokens=0)
        added -= prompt_tokens(plain, image_tokens=0)
        assert added >= max(count(str(*more.values())) for count in tokenizers.values()) - 8


def test_calls_and_their_results_count() -> None:
    call = {"id": "call_1", "function": {"name": "weather", "arguments": '{"city": "Kiel"}'}}
    called = {"role": "assistant", "content": None, "tool_calls": [call]}
    result = {"role": "tool", "tool_call_id": "call_1", "content": "rain"}
    said = ["call_1", "weather", '{"city": "Kiel"}', "call_1", "rain"]
    # The prompt's frame, and one for each message and call.
    assert prompt_tokens({"messages": [called, result]}, image_tokens=0) == (
        16 + 3 * 8 + sum(map(text_tokens, said))
    )


def test_half_a_character_does_not_stop_the_count() -> None:
    assert text_tokens("\ud800") == 3


@pytest.mark.parametrize(
    ("deltas", "size", "tokens"), [(0, 0, 0), (5, 5, 5), (1, 400, 100), (3, 13, 4)]
)
def test_unreported_output_is_counted_by_deltas_or_bytes(
    deltas: int, size: int, tokens: int
) -> None:
    assert delivered_tokens(deltas=deltas, size=size) == tokens
