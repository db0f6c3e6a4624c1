"""The operators' pages about the ledger, latency, money, budgets, overrides, stops, refusals and running calls."""

from usage.admin import calls, latency, ledger, limits, overrides, refusals
from usage.admin.money import page

__all__ = ["calls", "latency", "ledger", "limits", "overrides", "page", "refusals"]
