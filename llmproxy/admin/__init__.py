"""The operators' pages about language models, their routes and their providers."""

from llmproxy.admin import language_models, routes

__all__ = ["language_models", "routes"]
