"""The operators' pages about the ledger, overrides, refusals and running calls."""

from usage.admin import calls, ledger, overrides, refusals

__all__ = ["calls", "ledger", "overrides", "refusals"]
