"""The operators' pages about the ledger, budgets, overrides, stops, refusals and running calls."""

from usage.admin import calls, ledger, limits, overrides, refusals

__all__ = ["calls", "ledger", "limits", "overrides", "refusals"]
