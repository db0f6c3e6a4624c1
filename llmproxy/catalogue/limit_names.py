"""The name by which a server takes the output limit of chat completions: from its row, its address or its answers."""

from django.conf import settings

from llmproxy.catalogue.vendors import is_openai
from llmproxy.dialects.protocol import Target
from llmproxy.models import Provider

# The name by which a model at an address has answered. It is this process's alone.
_answered: dict[tuple[str, str], str] = {}


def limit_name(provider: Provider, *, model: str = "") -> str:
    """The name that calls begin with."""
    is_default = provider.name == Provider.DEFAULT
    chosen = (is_default and settings.LLM_LIMIT_NAME) or provider.limit_name
    if chosen != Provider.LimitName.ADDRESS:
        return chosen
    address = settings.LLM_BASE_URL if is_default else provider.base_url
    names = Provider.LimitName
    name = names.MAX_COMPLETION_TOKENS if is_openai(address) else names.MAX_TOKENS
    return _answered.get((address, model), name.value)


def other_limit_name(name: str) -> str:
    names = Provider.LimitName
    is_old = name == names.MAX_TOKENS
    return (names.MAX_COMPLETION_TOKENS if is_old else names.MAX_TOKENS).value


def note_answer(target: Target) -> None:
    """Notes the name by which a target has answered, for later calls. A refusal may only repeat a caller's text."""
    _answered[target.base_url, target.model] = target.limit_name
