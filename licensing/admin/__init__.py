"""The operators' pages about plans, licences and held suspensions."""

from licensing.admin import licences, plans, suspensions

__all__ = ["licences", "plans", "suspensions"]
