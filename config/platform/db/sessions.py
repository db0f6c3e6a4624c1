"""The settings of every session of the database, whatever its server, role or address says: limits and styles."""

import os
from collections.abc import Mapping
from typing import Any

# How the server writes values and begins transactions. A role, a database and an address may have others, which the
# driver and our statements do not know.
_STYLES = {
    "array_nulls": "on",
    "bytea_output": "hex",
    "DateStyle": "ISO,MDY",
    "default_transaction_isolation": r"read\ committed",
    "extra_float_digits": "1",
    "IntervalStyle": "postgres",
    "standard_conforming_strings": "on",
    "TimeZone": "UTC",
    "transform_null_equals": "off",
}
STYLES = " ".join(f"-c {name}={value}" for name, value in _STYLES.items())


def limit_statements(limits: str) -> None:
    """Gives the limits to every connection of this process and its children; limits that are set already win."""
    os.environ["PGOPTIONS"] = f"{limits} {os.environ.get('PGOPTIONS', '')}".strip()


def with_session(given: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters of a connection with all that its session needs.

    The driver takes an address's ``options`` in place of ``PGOPTIONS``. Here both hold, and the server takes the last
    of a name: the address's wins over a limit that it names, and our styles over all.
    """
    parts = os.environ.get("PGOPTIONS", ""), str(given.get("options") or ""), STYLES
    return {**given, "options": " ".join(filter(None, parts))}
