"""The operators' pages about the ledger, overrides and calls in flight."""

from usage.admin import calls, ledger, overrides

__all__ = ["calls", "ledger", "overrides"]
