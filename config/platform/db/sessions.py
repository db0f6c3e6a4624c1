"""The settings of every database session, whatever its server, role or address sets: limits and styles."""

import os
from collections.abc import Mapping
from typing import Any

# Output formats and transaction defaults. A role, a database or an address may set others, which the driver and our
# statements do not expect.
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
    """Sets the limits of every connection of this process and its children; limits that are already set win."""
    os.environ["PGOPTIONS"] = f"{limits} {os.environ.get('PGOPTIONS', '')}".strip()


def with_session(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the parameters of a connection with everything that its session needs.

    The driver uses an address's ``options`` instead of ``PGOPTIONS``. Here both apply, and the server takes the last
    value of a name: limits of the address win over ours, and our styles over everything.
    """
    parts = os.environ.get("PGOPTIONS", ""), str(parameters.get("options") or ""), STYLES
    return {**parameters, "options": " ".join(filter(None, parts))}
