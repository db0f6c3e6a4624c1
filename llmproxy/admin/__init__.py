"""The operators' pages about language models, their routes and providers, and personal keys."""

from llmproxy.admin import language_models, personal_keys, providers, routes

__all__ = ["language_models", "personal_keys", "providers", "routes"]
