"""Formats amounts of money, which are stored as millionths of a dollar."""

from decimal import Decimal

DOLLAR = 1_000_000


def decimal(amount: int) -> Decimal:
    """Returns dollars with six decimals, for files."""
    return Decimal(amount).scaleb(-6)


def in_dollars(amount: int, places: int = 2) -> str:
    """Returns rounded dollars, for people."""
    return f"${decimal(amount):,.{places}f}"
