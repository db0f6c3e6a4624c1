"""Vendors by a provider's address: the dialects declare their own."""

from django.conf import settings

from config.platform.env.hosts import is_private
from llmproxy.dialects.by_name import DIALECTS
from llmproxy.dialects.openai.dialect import OPENAI
from llmproxy.models import Provider


def is_openai(address: str) -> bool:
    """Returns whether an address is OpenAI's own or Azure's."""
    return OPENAI.is_at_vendor(address)


def fetches(provider: Provider) -> bool:
    """Returns whether images and files by URL are passed on to a provider, as an operator says or by its address."""
    is_default = provider.name == Provider.DEFAULT
    address = settings.LLM_BASE_URL if is_default else provider.base_url
    chosen = (is_default and settings.LLM_FETCHES) or provider.fetches
    if chosen == Provider.Fetches.ADDRESS:
        return any(each.is_at_vendor(address) for each in DIALECTS.values())
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
