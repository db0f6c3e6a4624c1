"""The operators' pages about the ledger, money, budgets, overrides, stops, refusals and running calls."""

from usage.admin import calls, ledger, limits, overrides, refusals
from usage.admin.money import page

__all__ = ["calls", "ledger", "limits", "overrides", "page", "refusals"]
