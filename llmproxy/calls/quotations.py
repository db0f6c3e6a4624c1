"""Providers' words without what they quote of the prompt, because a record keeps no content."""

import re
from collections.abc import Iterator
from typing import Any

from llmproxy.requests.call_request import CallRequest

# Characters of text that are looked through for each word. What is said of larger prompts is not kept.
MOST_PROMPT = 1024 * 1024
RUN = 3  # Words in a row that are no coincidence.
_WORD = re.compile(r"\S+")
_QUOTED = re.compile(r"""['"`“‘](.+?)['"`”’]""")
_AROUND = ".,:;!?()[]{}<>'\"`“”‘’"
# A name, a number, a code: nothing that a sentence has by itself.
_UNUSUAL = re.compile(r".[A-Z]|[\d_@/\\-]|[^\x00-\x7f]")
_GAP = re.compile(r"…(?:\s+…)+")


def without_quotations(words: str, *, request: CallRequest) -> str:
    """Returns a provider's words with … for quotations of the prompt.

    A quotation is three words in a row, whatever stands in quotation marks, or one unusual word, where the prompt has
    it too. Without a bounded prompt nothing is returned.
    """
    texts = _texts(request)
    if not words or texts is None:
        return ""
    found = list(_WORD.finditer(words))
    bare = [each[0].strip(_AROUND) for each in found]
    hidden = {
        place
        for place, word in enumerate(bare)
        if len(word) > 1 and _UNUSUAL.search(word) and _is_in(word, texts)
    }
    for first in range(len(found) - RUN + 1):
        run = words[found[first].start() : found[first + RUN - 1].end()].strip(_AROUND)
        if _is_in(run, texts):
            hidden.update(range(first, first + RUN))
    for quoted in _QUOTED.finditer(words):
        if _is_in(quoted[1], texts):
            hidden.update(
                place
                for place, each in enumerate(found)
                if each.start() < quoted.end() and each.end() > quoted.start()
            )
    for place in sorted(hidden, reverse=True):
        words = words[: found[place].start()] + "…" + words[found[place].end() :]
    return _GAP.sub("…", words)


def _is_in(part: str, texts: list[str]) -> bool:
    return any(part in text for text in texts)


def _texts(request: CallRequest) -> list[str] | None:
    """The texts of a prompt; None for one of too many characters."""
    texts = []
    left = MOST_PROMPT
    for text in _strings({**request.members, "model": None}):
        if not text.startswith("data:"):
            texts.append(text)
            left -= len(text)
        if left < 0:
            return None
    return texts


def _strings(value: Any) -> Iterator[str]:
    waiting = [value]
    while waiting:
        each = waiting.pop()
        if isinstance(each, str):
            yield each
        elif isinstance(each, dict):
            waiting += each.values()
        elif isinstance(each, list):
            waiting += each
