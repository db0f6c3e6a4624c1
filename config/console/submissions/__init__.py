"""Submitted forms: each takes effect once, and is kept across a repeated proof of the second factor."""
