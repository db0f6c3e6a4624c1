"""The tables of language models, their providers, the routes between them, and personal keys."""

from llmproxy.models.language_models import PROMPTS_HOLD, LanguageModel
from llmproxy.models.personal_keys import PersonalKey, PersonalKeyQuerySet
from llmproxy.models.providers import Provider
from llmproxy.models.routes import Route, is_known_to_think, tokenizer_of

__all__ = [
    "PROMPTS_HOLD",
    "LanguageModel",
    "PersonalKey",
    "PersonalKeyQuerySet",
    "Provider",
    "Route",
    "is_known_to_think",
    "tokenizer_of",
]
