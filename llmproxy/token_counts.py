"""Counts the tokens of a prompt without asking it: by the provider's count, or else by our own estimate.

A count costs nothing, so it reserves nothing and leaves no record.
"""

import time
from contextlib import suppress

from django.conf import settings

from config.db.connections import release_connection
from licensing.callers import Caller
from llmproxy import image_addresses
from llmproxy.calls import estimate_of
from llmproxy.catalogue import choose
from llmproxy.providers.anthropic.messages import count_request
from llmproxy.providers.protocol import Target
from llmproxy.providers.reading import count_of, parse_json_exactly
from llmproxy.providers.refusals import problem_of
from llmproxy.surfaces.messages import Messages
from llmproxy.upstream.exchange import Exchange, ExchangeError, Limits
from llmproxy.upstream.provider_session import ProviderSession

# A slower provider is not waited for: the estimate is nearly as good.
SECONDS = 10.0
MAX_ANSWER = 64 * 1024
OK = 200
# The caller's own faults. Other refusals, such as of servers that count nothing, leave the estimate.
REFUSALS = frozenset({400, 413, 422})

_session = ProviderSession(ca_bundle=settings.LLM_CA_BUNDLE or None)


def count_tokens(*, caller: Caller, request: Messages) -> int:
    """The tokens of a prompt.

    Raises ``UnknownModel``, ``NotEntitled`` and ``InvalidRequest`` as a call does, and ``ProviderRejected``.
    """
    model = choose(request.model, surface=request.surface, caller=caller)
    release_connection()
    target = model.targets[0]
    target.check(request)
    image_addresses.check(request.fetched_images(), base_url=target.base_url)
    counted = _providers_count(request, target)
    return estimate_of(request, [target], model=model).tokens if counted is None else counted


def _providers_count(request: Messages, target: Target) -> int | None:
    """The count of the target's provider; None where it gives none."""
    outgoing = count_request(request, target=target)
    limits = Limits(
        connect_timeout=settings.LLM_CONNECT_TIMEOUT,
        first_byte_timeout=SECONDS,
        read_timeout=SECONDS,
        deadline=time.monotonic() + SECONDS,
        max_bytes=MAX_ANSWER,
    )
    url, headers, body = outgoing
    with (
        suppress(ExchangeError),
        Exchange(_session, url=url, headers=headers, body=body, limits=limits) as exchange,
    ):
        head, answer = exchange.head(SECONDS), exchange.body()
        if head is not None and head.status in REFUSALS:
            raise problem_of(head.status, head.headers, answer, key=target.key())
        if head is not None and head.status == OK:
            return _count_in(answer)
    return None


def _count_in(answer: bytes) -> int | None:
    try:
        return count_of(parse_json_exactly(answer)["input_tokens"])
    except (ValueError, LookupError, TypeError, RecursionError):
        return None
