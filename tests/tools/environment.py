"""The environment file of a local run, `.local/env`: plain ``NAME=value`` lines that manage.py reads too."""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from dotenv import dotenv_values

# Addresses of servers that tests and local runs may bring by themselves. Unlike a database's they hold no password.
KEPT_ADDRESSES = ("BASE_URL", "CDN_URL", "LLM_BASE_URL", "STRIPE_API_BASE")
# Values that mean themselves without quotes: no comment, nothing to be inserted, no blanks at the ends.
UNQUOTED = re.compile(r"(?!['\"\s#])(?!.*\s#)(?!.*\$\{)(?!.*\s$)[^\r\n]*")
HEADER = "# Written by `make run`; variables of the process environment take precedence.\n"


def read(path: Path) -> dict[str, str]:
    """The file's values by name; empty where there is no file."""
    return {name: value or "" for name, value in dotenv_values(path, interpolate=False).items()}


def write(path: Path, values: Mapping[str, str]) -> None:
    """Replaces the file in one step, with mode 600. Raises ValueError for a value that needs quotes."""
    for name, value in values.items():
        if not UNQUOTED.fullmatch(value):
            raise ValueError(f"{name} needs quotes")
    new = path.with_name(f"{path.name}.new")
    new.unlink(missing_ok=True)
    file = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(file, "w", encoding="utf-8") as out:
        out.write(HEADER)
        out.writelines(f"{name}={value}\n" for name, value in values.items())
    new.replace(path)


def missing(values: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, str]:
    """The values that the environment gives neither as ``NAME`` nor as ``NAME_FILE``."""
    return {name: value for name, value in values.items() if not given(name, environ)}


def given(name: str, environ: Mapping[str, str]) -> bool:
    """Returns whether the environment gives this variable, or the file that holds it."""
    return name in environ or f"{name}_FILE" in environ


def kept_addresses(environ: Mapping[str, str]) -> dict[str, str]:
    """The addresses that are set and hold no credentials, so that manage.py finds the same servers."""
    return {
        name: environ[name]
        for name in KEPT_ADDRESSES
        if name in environ and is_public(environ[name])
    }


def is_public(address: str) -> bool:
    """Returns whether an http(s) address holds nothing beyond host, port and path."""
    try:
        parts = urlsplit(address)
    except ValueError:
        return False
    hidden = (
        parts.username or parts.password or "@" in parts.netloc or parts.query or parts.fragment
    )
    return parts.scheme in {"http", "https"} and not hidden and bool(UNQUOTED.fullmatch(address))
