"""The operators' pages about the ledger, overrides, refusals and calls in flight."""

from usage.admin import calls, ledger, overrides, refusals

__all__ = ["calls", "ledger", "overrides", "refusals"]
