"""Matches the lock files with an OSV export: ``python -m tests.supply.advisories [<folder or zip>]``.

Without an argument the variable ``OSV_EXPORT`` names the export: JSON records, one a file, as osv.dev and others give
them away. Nothing is fetched. A record that was withdrawn counts for nothing, and records that are aliases of each
other count as one. ``pyproject.toml`` lists those that are accepted, each with its reason.
"""

import json
import os
import sys
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import ZipFile

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from tests.supply.locks import Pin, pins
from tests.tools.folders import ROOT

VARIABLE = "OSV_EXPORT"
# The service's own first, so that a package is named with the smallest lock that has it.
LOCKS = ("requirements.lock", "requirements-local.lock", "requirements-test.lock")
LOCKS += ("requirements-wire.lock",)

Record = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Finding:
    """One weakness of one locked package, under all its names."""

    pin: Pin
    names: frozenset[str]
    fixed: tuple[str, ...]

    def __str__(self) -> str:
        mend = f"fixed in {', '.join(self.fixed)}" if self.fixed else "no fixed version is known"
        return f"{self.pin.name} {self.pin.version}: {', '.join(sorted(self.names))}; {mend}"


def main(arguments: list[str]) -> int:
    """0 if nothing is known against any locked package, or nothing was checked; else 1."""
    given = arguments[0] if arguments else os.environ.get(VARIABLE, "")
    if not given:
        print(f"NOT CHECKED for known weaknesses: {VARIABLE} names no OSV export.")
        return 0
    read = list(records(Path(given)))
    newest = max((each.get("modified", "") for each in read), default="")
    if not newest:
        print(f"{given} holds no OSV record.")
        return 1
    where: dict[Pin, str] = {}
    for name in LOCKS:
        for pin in pins(ROOT / name):
            where.setdefault(pin, name)
    unaccepted, accepted = 0, _accepted()
    for finding in findings(read, where):
        reasons = [accepted[name] for name in sorted(finding.names & accepted.keys())]
        unaccepted += not reasons
        print(f"{where[finding.pin]}: {finding}" + "".join(f"; accepted: {r}" for r in reasons))
    print(f"{len(where)} packages matched with {len(read)} records, the newest of {newest}.")
    return 1 if unaccepted else 0


def records(export: Path) -> Iterator[Record]:
    """Every record of a folder (with its folders) or a zip file."""
    if export.is_dir():
        for path in sorted(export.rglob("*.json")):
            yield json.loads(path.read_bytes())
        return
    with ZipFile(export) as archive:
        for name in archive.namelist():
            if name.endswith(".json"):
                yield json.loads(archive.read(name))


def findings(read: Iterable[Record], locked: Iterable[Pin]) -> list[Finding]:
    """Returns the known weaknesses of these packages: one finding for each package and weakness."""
    by_name: dict[str, list[Pin]] = {}
    for pin in locked:
        by_name.setdefault(pin.name, []).append(pin)
    found: list[Finding] = []
    for record in read:
        if record.get("withdrawn"):
            continue
        names = frozenset((record["id"], *record.get("aliases", ())))
        for affected in record.get("affected", ()):
            package = affected.get("package", {})
            if package.get("ecosystem", "").partition(":")[0] != "PyPI":
                continue
            for pin in by_name.get(canonicalize_name(package["name"]), ()):
                if is_affected(pin.version, affected):
                    _add(found, Finding(pin, names, _fixes(affected)))
    return sorted(found, key=str)


def is_affected(version: Version, affected: Record) -> bool:
    """Returns whether an ``affected`` entry lists this version or has it in a range.

    A bound that is no version is taken for one that this version has not passed: better a false alarm.
    """
    if any(_version(each) == version for each in affected.get("versions", ())):
        return True
    return any(
        _in_range(version, each.get("events", ()))
        for each in affected.get("ranges", ())
        if each.get("type") != "GIT"
    )


def _in_range(version: Version, events: Iterable[dict[str, str]]) -> bool:
    """Follows the events from the oldest to the newest that this version has reached."""
    reached: list[tuple[Version, bool]] = []
    for event in events:
        ((kind, text),) = event.items()
        at = Version("0.dev0") if text == "0" else _version(text)
        if kind == "introduced" and (at is None or at <= version):
            reached.append((at or Version("0.dev0"), True))
        elif at is not None and (
            (kind == "fixed" and at <= version) or (kind == "last_affected" and at < version)
        ):
            reached.append((at, False))
    # At the same version, an end of one stretch comes before the beginning of the next.
    return bool(reached) and max(reached)[1]


def _version(text: str) -> Version | None:
    try:
        return Version(text)
    except InvalidVersion:
        return None


def _fixes(affected: Record) -> tuple[str, ...]:
    ranges = [each for each in affected.get("ranges", ()) if each.get("type") != "GIT"]
    events = [event for each in ranges for event in each.get("events", ())]
    return tuple(dict.fromkeys(event["fixed"] for event in events if "fixed" in event))


def _add(found: list[Finding], new: Finding) -> None:
    """Adds a finding, merged with those of the same package that share a name with it."""
    same = [each for each in found if each.pin == new.pin and each.names & new.names]
    for each in same:
        found.remove(each)
        new = Finding(
            new.pin, new.names | each.names, tuple(dict.fromkeys((*each.fixed, *new.fixed)))
        )
    found.append(new)


def _accepted() -> dict[str, str]:
    """The weaknesses that are accepted, and why."""
    tools = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]
    accepted: dict[str, str] = tools["advisories"]["accepted"]
    return accepted


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
