"""Estimates of prompts and of answers, held to the tokenizers and the counts that others have published.

The vocabularies of the tokenizers come with LiteLLM, so nothing is downloaded: two of OpenAI's, and Claude's first.
"""

import json
import os
import struct
import subprocess
import sys
from base64 import b64encode
from collections.abc import Callable
from decimal import Decimal
from importlib.util import find_spec
from pathlib import Path
from unittest import mock

import pytest
import tiktoken
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from llmproxy.dialects.anthropic.overhead import prompt_overhead
from llmproxy.prompts.estimates import Measure, delivered_tokens, prompt_estimate, text_tokens
from llmproxy.prompts.tokenizers import PER_TEXT, PIECE, counting, tokens_in
from llmproxy.prompts.tool_definitions import frames_and_texts
from tests.effort import takes_at_most
from tests.llmproxy.corpus import KINDS, text_of

Count = Callable[[str], int]
OPENAI = ("o200k_base", "cl100k_base")
ONE = Decimal(1)
EXACT = (Measure("o200k_base", ONE),)
# Of a prompt, after the last token of its texts.
TOLERANCE = 16


@pytest.fixture(scope="module")
def tokenizers() -> dict[str, Count]:
    spec = find_spec("litellm")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    folder = Path(spec.submodule_search_locations[0], "litellm_core_utils", "tokenizers")
    with mock.patch.dict(os.environ, {"TIKTOKEN_CACHE_DIR": str(folder)}):
        openai = [tiktoken.get_encoding(name) for name in OPENAI]
    claude = Tokenizer.from_file(str(folder / "anthropic_tokenizer.json"))
    return {
        **{each.name: lambda text, each=each: len(each.encode_ordinary(text)) for each in openai},
        "claude": lambda text: len(claude.encode(text).ids),
    }


def estimate(members: dict[str, object], *measures: Measure, images: int = 0) -> int:
    return prompt_estimate(members, measures=measures or EXACT, images=images).tokens


def saying(content: object) -> dict[str, object]:
    return {"messages": [{"role": "user", "content": content}]}


class TestTexts:
    @pytest.mark.parametrize("name", OPENAI)
    @pytest.mark.parametrize("kind", KINDS)
    def test_texts_of_any_kind_and_length_count_as_openai_counts_them(
        self, tokenizers: dict[str, Count], kind: str, name: str
    ) -> None:
        for characters in (800, 20_000, 160_000):
            text = text_of(kind, characters=characters)
            real = tokenizers[name](text)
            assert real >= 150
            assert abs(tokens_in([text], tokenizer=name) - real) <= real / 100 + TOLERANCE
        assert real >= 30_000

    @settings(max_examples=300, deadline=None)
    @given(st.text(st.characters(exclude_categories=["Cs"]), max_size=60))
    def test_a_short_text_is_counted_exactly(self, tokenizers: dict[str, Count], text: str) -> None:
        for name in OPENAI:
            assert tokens_in([text], tokenizer=name) == tokenizers[name](text)

    def test_the_names_of_special_tokens_are_text_like_any_other(
        self, tokenizers: dict[str, Count]
    ) -> None:
        text = "<|endoftext|><|endofprompt|>"
        assert text_tokens(text) == tokenizers["o200k_base"](text) > 2

    def test_half_a_character_does_not_stop_the_count(self) -> None:
        assert 1 <= text_tokens("\ud800") <= 3

    @pytest.mark.parametrize(
        "text",
        [
            "a\u0301\u0316", "\ufdfa", "½", "a", " ", "\n", "!", "1", "aA", " a", "今", "\U00020000",
            "\U0001f9d1\u200d", "\ud800", "qxzjvkwy", "SALLALLAHOU", "\t\x00",
        ],
        ids=ascii,
    )  # fmt: skip
    def test_no_text_takes_more_than_linear_time(self, text: str) -> None:
        text_tokens("")
        # The slowest text takes a few tenths of a microsecond for a character. A square would take minutes.
        assert takes_at_most(100, lambda: text_tokens(text * (400_000 // len(text))))

    def test_a_long_prompt_lets_other_requests_run(self) -> None:
        share, ticks = pauses(
            'tokens_in(["The committee met. " * 420_000], tokenizer="o200k_base")'
        )
        assert share < 1 / 5
        assert ticks > 8_000_000 / PIECE / 8

    def test_a_prompt_of_very_many_parts_lets_other_requests_run_too(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A tool that lists its values, and ids of calls that Anthropic takes in another form."""
        # The characters that are counted in one go, and then others have their turn.
        at_once: list[int] = []

        def run(count: Callable[..., int], encode: object, pieces: list[str]) -> int:
            at_once.append(sum(len(each) + PER_TEXT for each in pieces))
            return count(encode, pieces)

        monkeypatch.setattr(counting, "run", run)
        parameters = {"type": "object", "properties": {"a": {"enum": list(range(90_000))}}}
        tools = [{"type": "function", "function": {"name": "f", "parameters": parameters}}]
        # Not a text of each value, which would take as long to list as to count.
        assert len(frames_and_texts(tools, tokenizer="o200k_base")[1]) < 10
        prompt_estimate({"messages": [], "tools": tools}, measures=EXACT)
        assert max(at_once) <= PIECE + PER_TEXT < sum(at_once) / 20

        at_once.clear()
        ids = [f"call.{number}" * 6 for number in range(20_000)]
        turns = [{"role": "tool", "tool_call_id": each, "content": "x"} for each in ids]
        prompt_overhead({"messages": turns})
        # Before and after.
        assert max(at_once) <= PIECE + PER_TEXT
        assert sum(at_once) > 2 * sum(len(each) + PER_TEXT for each in ids) - 3 * PIECE


def pauses(work: str) -> tuple[float, float]:
    """In a process like a server's: the longest time without another greenlet, as a share of all, and their number.

    By the time of the processor, so that a busy machine pauses nothing.
    """
    program = f"""
from gevent import monkey
monkey.patch_all()
import django, gevent, time
django.setup()
from llmproxy.prompts.tokenizers import load, tokens_in
load()
tokens_in([" a" * 100_000], tokenizer="o200k_base")
pauses, last = [], time.process_time()
def tick():
    global last
    while True:
        time.sleep(0.001)
        pauses.append(time.process_time() - last)
        last = time.process_time()
gevent.spawn(tick)
time.sleep(0.01)
pauses.clear()
start = time.process_time()
{work}
time.sleep(0.005)
print(max(pauses) / (time.process_time() - start), len(pauses))
"""
    said = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "DJANGO_SETTINGS_MODULE": "config.settings"},
        check=True,
        capture_output=True,
        text=True,
    )
    share, number = map(float, said.stdout.split())
    return share, number


def answering(**members: object) -> dict[str, object]:
    return {"messages": [{"role": "assistant", "content": None, **members}]}


class TestWhatIsGivenBack:
    LONG = "The committee met at the lake. " * 100

    def test_a_prediction_counts_although_it_is_no_prompt(self) -> None:
        for content in (self.LONG, [{"type": "text", "text": self.LONG}]):
            predicted = {**saying("Hi"), "prediction": {"type": "content", "content": content}}
            assert estimate(predicted) - estimate(saying("Hi")) == text_tokens(self.LONG)

    @pytest.mark.parametrize(
        "members",
        [
            {"reasoning_content": LONG},
            {"reasoning": LONG},
            {"reasoning_details": [{"type": "reasoning.text", "text": LONG}]},
            {"reasoning_details": [{"type": "reasoning.encrypted", "data": LONG}]},
            {"reasoning_details": [[LONG]]},
            {"thinking_blocks": [{"type": "thinking", "thinking": LONG, "signature": "x"}]},
            {"thinking_blocks": [{"type": "redacted_thinking", "data": LONG}]},
            {"extra_content": {"google": {"thought_signature": LONG}}},
            {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": LONG}]}]},
            {"tool_calls": [{"id": "c", "type": "custom", "custom": {"name": "f", "input": LONG}}]},
            {
                "tool_calls": [
                    {
                        "id": "c",
                        "function": {"name": "f", "arguments": ""},
                        "extra_content": {"google": {"thought_signature": LONG}},
                    }
                ]
            },
        ],
    )
    def test_thoughts_and_signatures_count_once(self, members: dict[str, object]) -> None:
        least = text_tokens(self.LONG)
        assert least <= estimate(answering(**members)) <= least + 60

    def test_a_thought_that_a_server_says_in_several_members_counts_once(self) -> None:
        details = [{"type": "reasoning.text", "text": part} for part in self.LONG.partition("at")]
        members = answering(
            reasoning=self.LONG, reasoning_content=self.LONG, reasoning_details=details
        )
        least = text_tokens(self.LONG)
        assert least <= estimate(members) <= least + 60
        other = answering(reasoning=self.LONG, reasoning_content=self.LONG[1:])
        assert estimate(other) >= 2 * least - 10

    def test_the_format_of_a_custom_tool_counts(self) -> None:
        grammar = {"type": "grammar", "grammar": {"syntax": "lark", "definition": self.LONG}}
        tool = {"type": "custom", "custom": {"name": "shell", "format": grammar}}
        for measure in (*EXACT, Measure("factor", ONE)):
            assert estimate({**saying("Hi"), "tools": [tool]}, measure) >= text_tokens(self.LONG)


def wav_head(*, kind: int, channels: int, rate: int, bits: int) -> bytes:
    shape = (16, kind, channels, rate, 0, 0, bits)
    return struct.pack("<4sI4s4sIHHIIHH4sI", b"RIFF", 0, b"WAVE", b"fmt ", *shape, b"data", 0)


class TestFiles:
    def test_a_plain_wav_counts_by_its_length_in_seconds(self) -> None:
        rate, seconds = 16_000, 10
        head = wav_head(kind=1, channels=1, rate=rate, bits=16)
        audio = {"data": b64encode(head + bytes(2 * rate * seconds)).decode(), "format": "wav"}
        part = {"type": "input_audio", "input_audio": audio}
        assert 320 <= estimate(saying([part])) <= 340

    def test_other_audio_counts_as_the_most_compressed(self) -> None:
        """A minute of speech at 8 kbit/s, of 32 tokens a second at most; no head is believed that is not plain."""
        minute = bytes(60_000)
        fast = wav_head(kind=1, channels=8, rate=2**31, bits=32)
        odd = wav_head(kind=2, channels=1, rate=8_000, bits=4)
        for data in (minute, fast + minute, odd + minute, b"RIFF"):
            audio = {"data": b64encode(data).decode(), "format": "wav"}
            part = {"type": "input_audio", "input_audio": audio}
            assert estimate(saying([part])) >= 32 * len(data) // 1_000

    def test_audio_by_url_counts_ten_minutes(self) -> None:
        audio = {"data": "https://a.test/b.wav", "format": "wav"}
        part = {"type": "input_audio", "input_audio": audio}
        assert 19_200 <= estimate(saying([part])) <= 19_220

    def test_a_document_counts_by_its_bytes_and_as_a_page_at_least(self) -> None:
        def tokens(head: str, size: int) -> int:
            file = {"file_data": head + b64encode(bytes(size)).decode()}
            return estimate(saying([{"type": "file", "file": file}]))

        pdf = "data:application/pdf;base64,"
        assert 4_000 <= tokens(pdf, 1_000) <= 4_020
        assert 50_000 <= tokens(pdf, 400_000) <= 50_020
        assert tokens("", 400_000) == tokens(pdf, 400_000)
        assert 200_000 <= tokens("data:text/csv;base64,", 400_000) <= 200_020

    def test_the_factor_of_a_route_is_of_texts_alone(self) -> None:
        file = {"file_data": "data:application/pdf;base64,JVBERi0xLjQK"}
        members = saying([{"type": "file", "file": file}])
        assert estimate(members, Measure("factor", Decimal(2))) < 4_030


class TestFrames:
    TOOL = {
        "type": "function",
        "function": {
            "name": "next_ferry",
            "description": "Finds the next ferry from a harbour.",
            "parameters": {
                "type": "object",
                "properties": {
                    "harbour": {"type": "string", "description": "Where to start"},
                    "deck": {
                        "type": "string",
                        "description": "Where the car stands.",
                        "enum": ["upper", "lower"],
                    },
                },
                "required": ["harbour"],
            },
        },
    }

    @pytest.mark.parametrize("name", OPENAI)
    def test_messages_have_the_frames_that_openai_documents(
        self, tokenizers: dict[str, Count], name: str
    ) -> None:
        messages = [
            {"role": "system", "content": "You know all ferries."},
            {"role": "user", "name": "captain", "content": "When does the next one leave?"},
        ]
        count = tokenizers[name]
        # Three for each message, one for the name, and three for the reply.
        texts = [value for message in messages for value in message.values()]
        assert estimate({"messages": messages}, Measure(name, ONE)) == (
            2 * 3 + 1 + 3 + sum(map(count, texts))
        )

    @pytest.mark.parametrize(("name", "function"), [("o200k_base", 7), ("cl100k_base", 10)])
    def test_tools_have_the_frames_that_openai_documents(
        self, tokenizers: dict[str, Count], name: str, function: int
    ) -> None:
        count, measure = tokenizers[name], Measure(name, ONE)
        lines = (
            "next_ferry:Finds the next ferry from a harbour",
            "harbour:string:Where to start",
            "deck:string:Where the car stands",
            "upper",
            "lower",
        )
        # A function, its parameters, two of them, an enumeration of two values, and all tools together.
        frames = function + 3 + 2 * 3 - 3 + 2 * 3 + 12
        tools = estimate({**saying("x"), "tools": [self.TOOL]}, measure)
        assert tools - estimate(saying("x"), measure) == frames + sum(map(count, lines))

    @pytest.mark.parametrize(
        "schema",
        [
            {"properties": {"a": {"type": "object", "properties": {"b": {"description": "{}"}}}}},
            {"properties": {"a": {"type": "array", "items": {"enum": ["{}"]}}}},
            {"properties": {"a": {"anyOf": [{"description": "{}"}]}}},
            {"properties": {"a": {"type": ["{}", "null"]}, "b": True}},
            {"$defs": {"a": {"const": "{}"}}},
            {"enum": ["{}", 7, None]},
            {"description": "", "properties": {"a": {"description": ["{}"]}}},
        ],
    )
    @pytest.mark.parametrize("measure", [*EXACT, Measure("factor", ONE)])
    def test_no_part_of_a_tool_is_free(self, schema: dict[str, object], measure: Measure) -> None:
        def costing(text: str) -> int:
            filled = json.loads(json.dumps(schema).replace("{}", text))
            tool = {"type": "function", "function": {"name": "f", "parameters": filled}}
            return estimate({**saying("x"), "tools": [tool]}, measure)

        long = "umbrella " * 500
        assert costing(long) - costing("") >= text_tokens(long) - 3

    def test_choices_and_forms_count(self) -> None:
        form = {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object"}}}
        for more in ({"response_format": form}, {"tool_choice": self.TOOL}):
            added = estimate({**saying("x"), **more}) - estimate(saying("x"))
            assert added >= text_tokens(str(*more.values())) - 8

    def test_parts_cost_what_their_text_costs(self) -> None:
        parts = [{"type": "text", "text": "Good morning."}, {"type": "refusal", "refusal": "No."}]
        said = estimate(saying("Good morning.")) + text_tokens("No.")
        assert estimate(saying(parts)) == said

    def test_an_image_costs_the_same_however_large_its_bytes_and_the_factor(self) -> None:
        url = "data:image/png;base64," + "A" * 100_000
        image = {"type": "image_url", "image_url": {"url": url}}
        bare = [{"type": "text", "text": "What is it?"}]
        for measure in (*EXACT, Measure("factor", Decimal(2))):
            asked = estimate(saying([*bare, image, image]), measure, images=1_400)
            assert asked - estimate(saying(bare), measure) == 1_400

    def test_calls_and_their_results_count(self) -> None:
        call = {"id": "call_1", "function": {"name": "weather", "arguments": '{"city": "Kiel"}'}}
        called = {"role": "assistant", "content": None, "tool_calls": [call]}
        result = {"role": "tool", "tool_call_id": "call_1", "content": "rain"}
        members = {"messages": [called, result]}
        said = sum(map(text_tokens, ("weather", '{"city": "Kiel"}', "rain")))
        assert 0 <= estimate(members) - said <= TOLERANCE + 3
        # Other providers' models may or may not see the ids.
        ids = 2 * text_tokens("call_1")
        assert estimate(members, Measure("factor", ONE)) == estimate(members) + ids


class TestFactors:
    def test_a_factor_raises_the_estimate_and_not_the_count(self) -> None:
        members = saying("x" * 999)
        plain = estimate(members)
        found = prompt_estimate(members, measures=(Measure("factor", Decimal("1.35")),))
        assert found.counted == plain
        assert 0 <= found.tokens - plain * Decimal("1.35") < 1

    def test_the_highest_of_all_routes_counts_and_the_first_is_kept(self) -> None:
        members = saying(text_of("russian", characters=2_000))
        o200k, cl100k = (estimate(members, Measure(name, ONE)) for name in OPENAI)
        assert cl100k > 1.2 * o200k
        measures = (Measure("factor", Decimal("1.1")), Measure("cl100k_base", ONE))
        assert prompt_estimate(members, measures=measures)[:2] == (o200k, cl100k)
        last = Measure("factor", Decimal(2))
        assert estimate(members, *measures, last) == 2 * o200k

    def test_the_tokens_that_a_provider_adds_are_counted_before_the_factor(self) -> None:
        measures = (Measure("factor", Decimal(2)),)
        found = prompt_estimate(saying("x"), measures=measures, overhead=10)
        assert found.counted == estimate(saying("x")) + 10
        assert found.tokens == 2 * found.counted

    def test_the_first_factor_covers_what_is_known_of_claudes_tokenizer_in_english_and_code(
        self, tokenizers: dict[str, Count]
    ) -> None:
        for kind in ("english", "python", "rust", "go", "typescript", "java", "sql", "json"):
            text = text_of(kind, characters=5_000)
            assert text_tokens(text) * 1.35 >= tokenizers["claude"](text)


@pytest.mark.parametrize(
    ("deltas", "size", "tokens"), [(0, 0, 0), (5, 5, 5), (1, 400, 100), (3, 13, 4)]
)
def test_unreported_output_is_counted_by_deltas_or_bytes(
    deltas: int, size: int, tokens: int
) -> None:
    assert delivered_tokens(deltas=deltas, size=size) == tokens
