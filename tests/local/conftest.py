"""Fixtures of the programs that only a local start runs."""

from tests.provider import provider, provider_process

__all__ = ["provider", "provider_process"]
