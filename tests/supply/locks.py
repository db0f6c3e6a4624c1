"""The packages that the lock files name."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

# A requirement begins a line; its hashes and comments are indented.
PIN = re.compile(r"^[A-Za-z0-9][^\\\n]*", re.MULTILINE)


class Pin(NamedTuple):
    """A package, by its normalised name, at its only version."""

    name: str
    version: Version


def pins(lock: Path) -> Iterator[Pin]:
    """Every package of a lock file, for whatever platform it is; ``ValueError`` for one without a version."""
    for line in PIN.findall(lock.read_text()):
        requirement = Requirement(line.strip())
        (exact,) = requirement.specifier
        if exact.operator != "==":
            raise ValueError(f"{lock.name} does not pin {requirement.name}")
        yield Pin(canonicalize_name(requirement.name), Version(exact.version))
