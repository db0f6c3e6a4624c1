"""Submitted forms: each counts once, and survives a second proof of the second factor."""
