"""Asks a provider: by an exchange that its caller reads, or once and briefly."""

import time

from django.conf import settings

from config.platform.http.client import Client, Limits
from config.platform.http.exchange import Exchange
from config.platform.http.transfer import Head
from llmproxy.dialects.decoding import DecodedExchange
from llmproxy.dialects.protocol import ProviderRequest

_client = Client(ca_bundle=settings.LLM_CA_BUNDLE or None)


def begin(request: ProviderRequest, *, limits: Limits) -> Exchange:
    """Sends a request."""
    url, headers, body = request
    given = limits._replace(decodes=True)
    return DecodedExchange(_client, url=url, headers=headers, body=body, limits=given)


def ask_once(request: ProviderRequest, *, seconds: float, most_bytes: int) -> tuple[Head, bytes]:
    """The whole answer to a request, within so many seconds. Raises ``ExchangeError``."""
    limits = Limits(
        connect_timeout=settings.LLM_CONNECT_TIMEOUT,
        first_byte_timeout=seconds,
        read_timeout=seconds,
        deadline=time.monotonic() + seconds,
        max_bytes=most_bytes,
    )
    with begin(request, limits=limits) as exchange:
        return exchange.await_head(), exchange.body()
