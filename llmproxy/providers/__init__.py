"""The model providers. Another provider is a module with a class and a line in ``settings``."""

from functools import cache

from django.conf import settings
from django.utils.module_loading import import_string

from llmproxy.providers.protocol import Provider


@cache
def provider() -> Provider:
    """The provider that settings name, one for the life of the process."""
    chosen: Provider = import_string(settings.LLM_PROVIDERS[settings.LLM_PROVIDER])()
    return chosen
