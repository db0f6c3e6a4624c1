"""Formats amounts of money, which are stored as millionths of a dollar."""

from decimal import Decimal

DOLLAR = 1_000_000


def decimal(amount: int) -> Decimal:
    """Returns dollars with six decimals, for files."""
    return Decimal(amount).scaleb(-6)


def in_dollars(amount: int, places: int = 2) -> str:
    """Returns rounded dollars, for people."""
    return f"${decimal(amount):,.{places}f}"


def readable_dollars(amount: int, least: int = 2) -> str:
    """Returns dollars with at least so many decimals, and more where fewer than two digits of the amount would show.

    No amount looks like zero: the last of six decimals is the unit that is stored.
    """
    whole = str(abs(amount)).lstrip("0")
    places = max(least, min(6, 8 - len(whole))) if whole else least
    digits, _, decimals = in_dollars(amount, places).partition(".")
    return f"{digits}.{decimals[:least]}{decimals[least:].rstrip('0')}"
