"""Vendors by a provider's address: OpenAI, Azure and Anthropic are known."""

import re
from urllib.parse import urlsplit

from django.conf import settings

from config.platform.env.hosts import is_private
from llmproxy.models import Provider

_OPENAI = re.compile(
    r"(.+\.)?(api\.openai\.com|(openai|cognitiveservices|services\.ai)\.azure\.com)\.?"
)
_ANTHROPIC = re.compile(r"(.+\.)?api\.anthropic\.com\.?")


def is_openai(address: str) -> bool:
    """Returns whether an address is OpenAI's own or Azure's."""
    return _OPENAI.fullmatch(urlsplit(address).hostname or "") is not None


def is_anthropic(address: str) -> bool:
    return _ANTHROPIC.fullmatch(urlsplit(address).hostname or "") is not None


def fetches(provider: Provider) -> bool:
    """Returns whether images and files by URL are passed on to a provider, as an operator says or by its address."""
    is_default = provider.name == Provider.DEFAULT
    address = settings.LLM_BASE_URL if is_default else provider.base_url
    chosen = (is_default and settings.LLM_FETCHES) or provider.fetches
    if chosen == Provider.Fetches.ADDRESS:
        return is_openai(address) or is_anthropic(address)
    is_undecided = chosen == Provider.Fetches.BEFORE
    return chosen == Provider.Fetches.YES or (is_undecided and not is_private(address))


def fetching_warning() -> str | None:
    """A warning about providers of which nobody has said yet whether they fetch from the public internet alone."""
    rows = Provider.objects.filter(fetches=Provider.Fetches.BEFORE)
    if settings.LLM_FETCHES:
        rows = rows.exclude(name=Provider.DEFAULT)
    if not (names := ", ".join(each.name for each in rows if fetches(each))):
        return None
    return (
        f"Callers can have these providers fetch images and files, as before the upgrade: {names}. Say whether they "
        "reach the public internet alone: Change provider, or LLM_FETCHES for default."
    )
