"""Estimates the tokens of a call: those of its prompt before a provider has counted them, and of an unreported answer.

A call reserves the estimate of its prompt and is charged the tokens that the provider reports. OpenAI's tokenizers are
public, and so is how its chat completions frame messages and write tools, so its prompts are counted. The tokenizers of
others are not: their prompts are counted in ``o200k_base`` and multiplied by a factor that each route learns from the
provider's reports.
"""

from collections.abc import Iterator, Sequence
from decimal import ROUND_CEILING, Decimal
from json import dumps
from typing import Any, NamedTuple

from llmproxy.prompts.files import audio_tokens, files_tokens
from llmproxy.prompts.tokenizers import tokens_in
from llmproxy.prompts.tool_definitions import frames_and_texts

# As OpenAI documents it: three tokens begin and end a message, its role is one, a name costs one beside its text, and
# three begin the reply.
MESSAGE_FRAME = 4
NAME_FRAME = 1
PROMPT_FRAME = 3
# A call of a tool, as OpenAI's open models write it: a message to the function, with its format.
CALL_FRAME = 8
# The tokenizer of a route with a factor.
COUNTED_BY = "o200k_base"
# The longest token of both vocabularies is so many spaces.
LONGEST_TOKEN = 128
# Bytes per token of an answer that was cut without a report.
BYTES_PER_DELIVERED_TOKEN = 4


class Measure(NamedTuple):
    """The tokenizer of a route's prompts, or ``factor`` and the factor."""

    tokenizer: str
    factor: Decimal

    @property
    def is_exact(self) -> bool:
        return self.tokenizer != "factor"


class Estimate(NamedTuple):
    """The tokens of a prompt: as counted for the first route, and the most that any route makes of it.

    ``exact``: those of its texts alone, where the tokenizer of the first route is known. ``files``: those of its files.
    """

    counted: int
    tokens: int
    exact: int | None = None
    files: int = 0


def prompt_estimate(
    members: dict[str, Any],
    *,
    measures: Sequence[Measure],
    images: int = 0,
    overhead: int = 0,
    files: int | None = None,
) -> Estimate:
    """The estimate for the prompt of a valid call. ``overhead`` are tokens that the provider adds to any prompt.

    Its ``images`` count so many tokens, whatever the factor, and so do audio and ``files``, where they are known.
    """
    if files is None:
        files = files_tokens([*files_in(members)])
    images += files + sum(map(audio_tokens, _parts(members, "input_audio")))
    counts = [overhead + _counted(members, measure) for measure in measures]
    most = max(
        count if measure.is_exact else int((count * measure.factor).to_integral(ROUND_CEILING))
        for count, measure in zip(counts, measures, strict=True)
    )
    exact = counts[0] if measures[0].is_exact else None
    return Estimate(counts[0] + images, most + images, exact, files)


def least_tokens(members: dict[str, Any]) -> int:
    """Returns a lower bound of a valid call's messages by their lengths alone. No prompt is empty."""
    texts = (
        text for message in members["messages"] for text in _content(message.get("content")) if text
    )
    return max(1, sum(map(len, texts)) // LONGEST_TOKEN)


def text_tokens(*texts: str) -> int:
    """The tokens of all texts, before any factor."""
    return tokens_in(texts, tokenizer=COUNTED_BY)


def delivered_tokens(*, deltas: int, size: int) -> int:
    """The estimate for an answer without a report: one token per delta or per four bytes, whichever is more."""
    return max(deltas, -(-size // BYTES_PER_DELIVERED_TOKEN))


def _counted(members: dict[str, Any], measure: Measure) -> int:
    """The tokens of messages and tools, before any factor."""
    tokenizer = measure.tokenizer if measure.is_exact else COUNTED_BY
    texts = [text for text in _texts(members, measure) if text]
    frames = PROMPT_FRAME
    for message in members["messages"]:
        frames += MESSAGE_FRAME + NAME_FRAME * bool(message.get("name"))
        frames += CALL_FRAME * len(message.get("tool_calls") or ())
    if (tools := members.get("tools")) and measure.is_exact:
        frame, written = frames_and_texts(tools, tokenizer=tokenizer)
        frames += frame
        texts += written
    return frames + tokens_in(texts, tokenizer=tokenizer)


def _parts(members: dict[str, Any], kind: str) -> Iterator[Any]:
    """Yields the contents of the parts of a kind in a valid call's messages."""
    for message in members["messages"]:
        if isinstance(content := message.get("content"), list):
            yield from (part[kind] for part in content if part["type"] == kind)


def _texts(members: dict[str, Any], measure: Measure) -> Iterator[str | None]:
    for message in members["messages"]:
        yield from _content(message.get("content"))
        yield message.get("name")
        yield message.get("refusal")
        yield from _thoughts(message)
        for call in message.get("tool_calls") or ():
            called = call.get("function") or call["custom"]
            yield called["name"]
            yield called.get("arguments") or called.get("input")
            yield _json(call.get("extra_content"))
            # OpenAI's models do not see the ids of calls.
            yield None if measure.is_exact else call["id"]
        yield None if measure.is_exact else message.get("tool_call_id")
    # Parts of a prediction that do not come true are paid for as output, beside the answer.
    yield from _content((members.get("prediction") or {}).get("content"))
    yield from (_json(each) for each in members.get("unlisted", ()))
    # Members that a provider may write into its prompt in a way that is not known.
    for name in ("response_format", "tool_choice") if measure.is_exact else _JSON_MEMBERS:
        if isinstance(members.get(name), dict | list):
            yield _json(members[name])


_JSON_MEMBERS = ("tools", "response_format", "tool_choice")


def _json(value: Any) -> str | None:
    return dumps(value, ensure_ascii=False) if value else None


def _thoughts(message: dict[str, Any]) -> Iterator[str | None]:
    """Returns the thoughts of an answer. Some servers repeat one text in several members."""
    said = {message.get("reasoning_content"), message.get("reasoning")}
    for member, text in (("reasoning_details", "text"), ("thinking_blocks", "thinking")):
        parts = message.get(member) or ()
        texts = [part.get(text) for part in parts if isinstance(part, dict)]
        said.add("".join(each for each in texts if isinstance(each, str)))
        # Signatures and hidden thoughts stand for tokens too.
        yield _json([_unsaid(part, text) for part in parts])
    yield from said - {None}
    yield _json(message.get("extra_content"))


def _unsaid(part: Any, text: str) -> Any:
    """A part of reasoning without its text."""
    if not isinstance(part, dict) or not isinstance(part.get(text), str):
        return part
    return {name: value for name, value in part.items() if name != text}


def _content(content: Any) -> Iterator[str | None]:
    if not isinstance(content, list):
        yield content
        return
    for part in content:
        text = part.get("text") or part.get("refusal") or part.get("thinking")
        yield text if isinstance(text, str) else _json(text)


def images_in(members: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The images in a valid call, each with its ``url``."""
    return _parts(members, "image_url")


def files_in(members: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The files in a valid call, each with its ``file_data``."""
    return _parts(members, "file")
