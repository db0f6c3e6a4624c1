"""The operators' pages about language models, their routes and providers, spending limits, and personal keys."""

from llmproxy.admin import language_models, personal_keys, providers, routes, spend_limits

__all__ = ["language_models", "personal_keys", "providers", "routes", "spend_limits"]
