"""Members of calls that cost money outside the tokens of a call, or by another price: refused on every surface.

A surface whose schema knows such a member says there with which values it is taken. Elsewhere it is refused by its
name, also where an operator has opened the members of a provider.
"""

from collections.abc import Collection, Iterator
from typing import Any

from config.api.problems import Fault, pointer

_RUN = "What a provider searches, runs or fetches costs money outside tokens."
_UNREPORTED = "The provider would charge tokens that it does not report as usage."
_OTHER_PRICE = "This has prices of its own, which no budget here knows."
_OTHER_MODEL = "Another model than the one called has prices of its own."
_ONE_ANSWER = "One answer a call: each further one costs like a call."
REASONS = {
    **dict.fromkeys(
        ("web_search_options", "web_search", "search_parameters", "search_options", "enable_search", "plugins",
         "mcp_servers", "container"),
        _RUN,
    ),
    **dict.fromkeys(("compaction", "context_management", "moderation"), _UNREPORTED),
    **dict.fromkeys(
        ("service_tier", "speed", "inference_geo", "billing_policy", "cache_control"), _OTHER_PRICE
    ),
    **dict.fromkeys(("fallbacks", "models"), _OTHER_MODEL),
    **dict.fromkeys(("n", "best_of"), _ONE_ANSWER),
    "audio": "An answer is text: audio costs money outside tokens.",
    "modalities": "An answer is text: audio and images cost money outside tokens.",
}  # fmt: skip
# Values that change no price, beside null and false.
_FREE: dict[str, tuple[Any, ...]] = {
    "modalities": ([], ["text"]),
    "n": (1,),
    "best_of": (1,),
    "speed": ("standard",),
    "service_tier": ("auto", "default", "standard_only"),
}
_LIMITS = frozenset({
    "max_tokens", "max_completion_tokens", "max_output_tokens", "max_new_tokens", "max_tokens_to_sample",
    "max_length", "num_predict", "n_predict",
})  # fmt: skip
_SECOND_LIMIT = "The output limit has another name here: a second one could pass what was reserved."


def refused_members(data: dict[str, Any], *, known: Collection[str]) -> Iterator[Fault]:
    """Yields the faults of a body's members, but those that its surface knows."""
    # Of a call without an output limit none is reserved.
    limits = _LIMITS if _LIMITS.intersection(known) else frozenset[str]()
    for name, value in data.items():
        if name in known or value is None or value is False or value in _FREE.get(name, ()):
            continue
        if why := _SECOND_LIMIT if name in limits else REASONS.get(name):
            yield Fault(pointer((name,)), "invalid", why)
