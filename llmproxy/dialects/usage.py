"""Reads the tokens that providers report, by any vendor's names, for every dialect and surface.

OpenAI's prompt includes what a cache holds and Anthropic's excludes it; gateways between both mix names and sums. So
the total decides, where there is one: what it has above prompt and completion is what the answer's own members explain.
Members of a cache beside the prompt are input; all else is output, as from servers that hide what a model thought.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from llmproxy.dialects.protocol import PromptUsage, TokenUsage
from llmproxy.dialects.reading import count_of

# The names of each part, in small letters without underscores, since some servers write them with humps.
# Anthropic's and Bedrock's names of a prompt are the others; beside their names of a cache it excludes that.
_OPENAIS_PROMPT = ("prompttokens", "prompttokencount")
_PROMPT = (*_OPENAIS_PROMPT, "inputtokens", "inputtokencount")
_COMPLETION = (
    "completiontokens", "outputtokens", "completiontokencount", "outputtokencount", "candidatestokencount",
)  # fmt: skip
_TOTAL = ("totaltokens", "totaltokencount")
_ANTHROPICS_READ = ("cachereadinputtokens", "cachereadinputtokencount")
# OpenAI and most, DeepSeek, Codex, Google, LangChain and other gateways.
_READ = (
    "cachedtokens", "promptcachehittokens", "cachedinputtokens", "inputcachedtokens",
    "cachedprompttokens", "promptcachedtokens", "cachedcontenttokencount", "cachereadtokens", "cacheread",
    *_ANTHROPICS_READ,
)  # fmt: skip
_ANTHROPICS_WRITTEN = (
    "cachecreationinputtokens", "cachewriteinputtokens", "cachewriteinputtokencount",
)  # fmt: skip
# OpenAI and OpenRouter, LiteLLM, new-api, LangChain.
_WRITTEN = (
    "cachewritetokens", "cachecreationtokens", "cachedcreationtokens", "cachecreation", *_ANTHROPICS_WRITTEN,
)  # fmt: skip
# What was written to a cache for each time that it is kept, without a sum: Anthropic's, and new-api's.
_BY_TIME = (
    ("ephemeral5minputtokens", "ephemeral1hinputtokens"),
    ("claudecachecreation5mtokens", "claudecachecreation1htokens"),
)
_REASONING = (
    "reasoningtokens", "thinkingtokens", "thoughtstokens", "reasoningoutputtokens", "reasoningtokencount",
    "thoughtstokencount",
)  # fmt: skip
# A part of prompt or completion may be a text of digits. Neither of these may: they would be the whole report.
_DIGITS = re.compile(r"[0-9]{1,10}", re.ASCII)
# Details of details are the deepest that any server has.
_DEPTH = 3

Counts = dict[str, int]


@dataclass(frozen=True, slots=True)
class _Parts:
    """The counts that an answer has reported, as they were named; None: not yet.

    ``is_input``: the prompt has Anthropic's name. ``is_apart``: the caches have, and are no details of the prompt.
    """

    prompt: int | None = None
    completion: int | None = None
    total: int | None = None
    read: int | None = None
    written: int | None = None
    reasoning: int | None = None
    is_input: bool = False
    is_apart: bool = False


class Report:
    """What one answer has reported so far: a stream may report in parts, and each of them again.

    The last value of each part counts, and nothing is added up. A zero or an absence takes nothing back; a first zero
    is a report.
    """

    def __init__(self) -> None:
        self._parts = _Parts()
        self._known: TokenUsage | None = None

    def add(self, usage: Any, *, is_final: bool = True) -> TokenUsage | None:
        """The tokens reported by now; None unless this ``usage`` says something of them, and both kinds are known.

        What was reported of the output counts only where it is ``final``.
        """
        if not isinstance(usage, dict):
            return None
        given = _parts_of(usage)
        if not is_final:
            given = replace(given, completion=None, total=None)
        self._parts = _later(self._parts, given)
        known = _solved(self._parts)
        if known == self._known and not given.completion:
            return None
        self._known = known
        return known

    @property
    def prompt(self) -> PromptUsage | None:
        """The usage of the prompt alone."""
        parts = replace(self._parts, completion=None, total=None)
        if parts.prompt is None:
            return None
        read, written = parts.read or 0, parts.written or 0
        return PromptUsage(parts.prompt + _beside(parts, parts.prompt, 0), read, written)


def reported(usage: Any) -> TokenUsage | None:
    """The tokens of a ``usage`` object, None unless both kinds are known. An explicit zero is a report."""
    return Report().add(usage)


def reported_input(usage: dict[str, Any]) -> TokenUsage | None:
    """The tokens of embeddings, which have no output."""
    parts = _parts_of(usage)
    known = parts.total if parts.prompt is None else parts.prompt
    return None if known is None else TokenUsage(known, 0)


def merged(earlier: dict[str, Any], later: dict[str, Any]) -> dict[str, Any]:
    """Two usages of one answer as one, by the rule of ``Report``."""
    found = dict(earlier)
    for name, value in later.items():
        before = found.get(name)
        if isinstance(value, dict) and isinstance(before, dict):
            found[name] = merged(before, value)
        elif value is not None and not (count_of(value) == 0 and count_of(before)):
            found[name] = value
    return found


def _parts_of(usage: dict[str, Any]) -> _Parts:
    plain = _counts(each for each in _members(usage, depth=1) if not isinstance(each[1], str))
    top, within = _counts(_members(usage, depth=1)), _counts(_members(usage, depth=_DEPTH))
    by_time = max(sum(within.get(name, 0) for name in names) for names in _BY_TIME)
    details = _counts(
        each
        for name, value in usage.items()
        if isinstance(value, dict)
        for each in _members(value, depth=_DEPTH - 1)
    )
    apart = by_time or any(map(top.get, _ANTHROPICS_READ + _ANTHROPICS_WRITTEN))
    read, written = _largest(within, _READ), _largest(within, _WRITTEN)
    alone = _largest(within, _ANTHROPICS_READ)
    if alone is not None and read == alone + (written or by_time):
        # Some gateways call all that a cache has done cached.
        read = alone
    prompt = _first(plain, _PROMPT)
    return _Parts(
        prompt=prompt,
        completion=_first(plain, _COMPLETION),
        total=_first(top, _TOTAL),
        read=read,
        written=max(written or 0, by_time) or written,
        reasoning=_largest(within, _REASONING),
        is_input=prompt is not None and not any(map(plain.get, _OPENAIS_PROMPT)),
        is_apart=bool(apart) and not any(map(details.get, _READ + _WRITTEN)),
    )


def _members(usage: dict[str, Any], *, depth: int) -> Iterator[tuple[str, Any]]:
    for name, value in usage.items():
        if not isinstance(value, dict):
            yield name, value
        elif depth > 1:
            yield from _members(value, depth=depth - 1)


def _counts(members: Iterable[tuple[str, Any]]) -> Counts:
    """The counts among members, by their plain names; the largest where two have the same."""
    found: Counts = {}
    for name, given in members:
        value = int(given) if isinstance(given, str) and _DIGITS.fullmatch(given) else given
        if isinstance(value, int | float) and (count := count_of(value)) is not None:
            plain = name.replace("_", "").lower()
            found[plain] = max(count, found.get(plain, 0))
    return found


def _first(counts: Counts, names: tuple[str, ...]) -> int | None:
    """The first count by these names that is not zero; zero where all are."""
    given = [counts[name] for name in names if name in counts]
    return next(filter(None, given), 0 if given else None)


def _largest(counts: Counts, names: tuple[str, ...]) -> int | None:
    return max((counts[name] for name in names if name in counts), default=None)


def _later(before: _Parts, given: _Parts) -> _Parts:
    """The parts reported by now."""

    def last(name: str) -> Any:
        value, earlier = getattr(given, name), getattr(before, name)
        return value if value or earlier is None else earlier

    names = ("prompt", "completion", "read", "written", "reasoning")
    parts = _Parts(**{name: last(name) for name in names}, total=given.total or before.total)
    if before.total and not given.total and _both(before):
        # What the total had above prompt and completion is still there.
        parts = replace(parts, total=before.total + _both(parts) - _both(before))
    return replace(
        parts,
        is_input=given.is_input if given.prompt else before.is_input or given.is_input,
        is_apart=given.is_apart if given.read or given.written else before.is_apart,
    )


def _both(parts: _Parts) -> int:
    if parts.prompt is None or parts.completion is None:
        return 0
    return parts.prompt + parts.completion


def _solved(parts: _Parts) -> TokenUsage | None:
    prompt, completion = _prompt(parts), _completion(parts)
    if prompt is None or completion is None:
        return None
    reasoning = parts.reasoning or 0
    # Some servers write what was thought beside the output, without a total.
    thought = reasoning if reasoning > completion else 0
    beside = _beside(parts, prompt, completion)
    above = (parts.total or 0) - prompt - beside - completion
    return TokenUsage(
        input=prompt + beside,
        output=completion + max(above, thought, 0),
        cached_input=parts.read or 0,
        reasoning=reasoning,
        cache_write=parts.written or 0,
    )


def _prompt(parts: _Parts) -> int | None:
    """The prompt as it was named, or what the total leaves for it."""
    if parts.prompt is not None or parts.total is None or parts.completion is None:
        return parts.prompt
    reasoning = parts.reasoning or 0
    thought = reasoning if reasoning > parts.completion else 0
    return _not_below_zero(parts.total - parts.completion - thought)


def _completion(parts: _Parts) -> int | None:
    """The completion as it was named, or what the total leaves for it."""
    if parts.completion is not None or parts.total is None or parts.prompt is None:
        return parts.completion
    caches = _beside(replace(parts, total=None), parts.prompt, 0)
    left = parts.total - parts.prompt
    return _not_below_zero(left - caches if left >= caches else left)


def _not_below_zero(count: int) -> int | None:
    return None if count < 0 else count


def _beside(parts: _Parts, prompt: int, completion: int) -> int:
    """The tokens of caches that the prompt does not include."""
    read, written, reasoning = parts.read or 0, parts.written or 0, parts.reasoning or 0
    every = read + written
    # What is larger than the prompt cannot be within.
    certain: int = sum(each for each in (read, written) if each > prompt)
    usual = every if parts.is_input and parts.is_apart else certain
    if not parts.total:
        return every if every > prompt and not certain else usual
    above = parts.total - prompt - completion
    explained = {reasoning} if reasoning > completion else {0, reasoning}
    for caches in (usual, certain, *filter(None, (read, written, every))):
        if above - caches in explained:
            return caches
    return usual if above >= usual else certain
