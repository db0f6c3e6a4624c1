"""Reads the tokens that providers report, by any vendor's names, for every dialect and surface.

OpenAI's prompt includes what a cache holds and Anthropic's excludes it; gateways between both mix names and sums. So
the total decides, where there is one: what it has above prompt and completion is what the answer's own members explain.
Members of a cache beside the prompt are input; all else is output, as from servers that hide what a model thought.
"""

import re
from dataclasses import dataclass, replace
from typing import Any

from llmproxy.dialects.protocol import PromptUsage, TokenUsage
from llmproxy.dialects.reading import count_of

# The names of each part, in small letters without underscores, since some servers write them with humps. ``input`` is
# Anthropic's and Bedrock's name of a prompt, which beside their names of a cache (``read_apart``, ``written_apart``)
# excludes it. What was written may be told by how long it is kept, without a sum: Anthropic's, and new-api's.
_NAMES = {
    "prompt": "prompttokens prompttokencount",
    "input": "inputtokens inputtokencount",
    "completion": "completiontokens completiontokencount",
    "output": "outputtokens outputtokencount candidatestokencount",
    "total": "totaltokens totaltokencount",
    # OpenAI and most, DeepSeek, Codex, Google, LangChain and other gateways.
    "read": "cachedtokens promptcachehittokens cachedinputtokens inputcachedtokens cachedprompttokens "
    "promptcachedtokens cachedcontenttokencount cachereadtokens cacheread",
    "read_apart": "cachereadinputtokens cachereadinputtokencount",
    # OpenAI and OpenRouter, LiteLLM, new-api, LangChain.
    "written": "cachewritetokens cachecreationtokens cachedcreationtokens cachecreation",
    "written_apart": "cachecreationinputtokens cachewriteinputtokens cachewriteinputtokencount",
    "minutes": "ephemeral5minputtokens",
    "hour": "ephemeral1hinputtokens",
    "claude_minutes": "claudecachecreation5mtokens",
    "claude_hour": "claudecachecreation1htokens",
    "reasoning": "reasoningtokens thinkingtokens thoughtstokens reasoningoutputtokens reasoningtokencount "
    "thoughtstokencount",
}
_PARTS = {name: part for part, names in _NAMES.items() for name in names.split()}
_CACHES = ("read", "read_apart", "written", "written_apart")
# Without one of these there is no report. They are numbers; the others may be texts of digits.
_WHOLE = frozenset({"prompt", "input", "completion", "output"})
_DIGITS = re.compile(r"[0-9]{1,10}", re.ASCII)
_LONGEST_NAME = 40
# Details of details are the deepest that any server has.
_DEPTH = 2

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
    """The usage that one answer has reported so far; a stream may report in parts, and repeat them.

    The last value of each part counts, and nothing is added up. A zero or an absence takes nothing back; a first zero
    is a report.
    """

    def __init__(self) -> None:
        self._parts = _Parts()
        self._known: TokenUsage | None = None

    def add(self, usage: Any, *, is_final: bool = True) -> TokenUsage | None:
        """The tokens reported by now; None unless this ``usage`` has some of them, and both kinds are known.

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
    top: Counts = {}
    within: Counts = {}
    for name, value in usage.items():
        if isinstance(value, dict):
            _note_all(value, within, depth=_DEPTH)
        else:
            _note(name, value, top)

    def most(*parts: str) -> int | None:
        found = [counts[part] for counts in (top, within) for part in parts if part in counts]
        return max(found, default=None)

    times = (("minutes", "hour"), ("claude_minutes", "claude_hour"))
    by_time = max(sum(most(each) or 0 for each in some) for some in times)
    read, apart = most("read", "read_apart"), most("read_apart")
    written = most("written", "written_apart")
    written = max(written or 0, by_time) or written
    if apart is not None and read == apart + (written or 0):
        # Some gateways call all that a cache has done cached.
        read = apart
    return _Parts(
        prompt=_either(top, "prompt", "input"),
        completion=_either(top, "completion", "output"),
        total=top.get("total"),
        read=read,
        written=written,
        reasoning=most("reasoning"),
        is_input=not top.get("prompt") and "input" in top,
        is_apart=any((by_time, top.get("read_apart"), top.get("written_apart")))
        and not any(map(within.get, _CACHES)),
    )


def _note_all(members: dict[str, Any], found: Counts, *, depth: int) -> None:
    for name, value in members.items():
        if not isinstance(value, dict):
            _note(name, value, found)
        elif depth > 1:
            _note_all(value, found, depth=depth - 1)


def _note(name: str, given: Any, found: Counts) -> None:
    """Notes a count by its part, the largest where it has several names."""
    if len(name) > _LONGEST_NAME or (part := _PARTS.get(name.replace("_", "").lower())) is None:
        return
    is_text = isinstance(given, str) and part not in _WHOLE and _DIGITS.fullmatch(given)
    count = count_of(int(given) if is_text else given)
    if count is not None:
        found[part] = max(count, found.get(part, 0))


def _either(counts: Counts, first: str, second: str) -> int | None:
    """The count by the first name, unless it is zero or missing."""
    given = counts.get(first), counts.get(second)
    return given[0] or given[1] or (0 if given != (None, None) else None)


def _later(before: _Parts, given: _Parts) -> _Parts:
    """The parts reported by now."""

    def last(name: str) -> Any:
        value, earlier = getattr(given, name), getattr(before, name)
        return value if value or earlier is None else earlier

    names = ("prompt", "completion", "read", "written", "reasoning")
    parts = _Parts(**{name: last(name) for name in names}, total=given.total or before.total)
    if before.total and not given.total and _both(before):
        # Tokens of the total above prompt and completion are kept.
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
    # Counts larger than the prompt cannot be within it.
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
