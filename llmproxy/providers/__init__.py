"""Where model calls go. A further provider is a module with a class of its own and a line here."""

from functools import cache

from django.conf import settings

from llmproxy.providers.anthropic import Anthropic
from llmproxy.providers.openai import OpenAI
from llmproxy.providers.protocol import Provider

PROVIDERS: dict[str, type[Provider]] = {"openai": OpenAI, "anthropic": Anthropic}


@cache
def provider() -> Provider:
    """The provider that settings name, one for the life of the process."""
    return PROVIDERS[settings.LLM_PROVIDER]()
