"""Fixtures of the programs that only a local start runs."""

from tests.standins.provider_process import provider, provider_process

__all__ = ["provider", "provider_process"]
