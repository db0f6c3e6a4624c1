"""The operators' pages about the ledger, overrides and calls in flight."""

from usage.admin import calls, ledger

__all__ = ["calls", "ledger"]
