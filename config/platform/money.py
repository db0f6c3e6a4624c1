"""Amounts of money, kept as whole millionths of a dollar."""

from decimal import Decimal

DOLLAR = 1_000_000


def decimal(amount: int) -> Decimal:
    """Dollars with six decimals, as files have them."""
    return Decimal(amount).scaleb(-6)


def in_dollars(amount: int, places: int = 2) -> str:
    """Dollars as people read them, rounded."""
    return f"${decimal(amount):,.{places}f}"
