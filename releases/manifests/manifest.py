"""Validation of the manifest document, as strict as a Tauri shell.

A shell parses the whole document before it looks for its platform: one fault anywhere leaves every shell without
updates.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from math import isfinite
from typing import Any

from config.platform.problems.problem import MAX_FAULTS, Fault, pointer
from config.platform.text.versions import NotAVersion, Version
from releases.manifests.addresses import misplaced
from releases.manifests.platforms import KNOWN, suggestion

# RFC 3339 as shells parse it: complete, with an offset.
PUB_DATE = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?"
    r"(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])"
)
SECOND_60 = re.compile(r"(?<=[0-9]{2}:[0-9]{2}):60(?=[.Z+-])")
LONG_FRACTION = re.compile(r"(\.[0-9]{9})[0-9]+")
BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class Artifact:
    """The file that one platform installs. ``signature``: base64 of its minisign file, not yet verified."""

    platform: str
    url: str
    signature: str

    @property
    def name(self) -> str:
        """The file name, which the signature has to name too."""
        return self.url.rpartition("/")[2]


@dataclass(frozen=True, slots=True)
class Manifest:
    """A valid document."""

    channel: str
    version: Version
    artifacts: tuple[Artifact, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """The requirements of this host for the manifests of a channel."""

    channel: str
    cdn_url: str
    platforms: Sequence[str]


def read(body: bytes, document: Mapping[str, Any], terms: Terms) -> Manifest | list[Fault]:
    """Returns the manifest of ``body``, or its faults: at most 20 of numbers and 20 of platforms."""
    version = _version(document)
    faults = [
        *_of_bytes(body),
        *([version] if isinstance(version, Fault) else []),
        *_of_channel(document, terms.channel),
        *_of_date(document),
        *_of_extras(document),
        *islice(_of_numbers(document), MAX_FAULTS),
    ]
    known = None if isinstance(version, Fault) else version
    faults += islice(_of_platforms(document.get("platforms"), known, terms), MAX_FAULTS)
    if faults or known is None:
        return faults
    artifacts = (
        Artifact(platform, entry["url"], entry["signature"])
        for platform, entry in sorted(document["platforms"].items())
    )
    return Manifest(terms.channel, known, tuple(artifacts))


def _of_bytes(body: bytes) -> Iterator[Fault]:
    if body.startswith(BYTE_ORDER_MARK):
        yield Fault("", "byte_order_mark", "Write the document in UTF-8 without a byte order mark.")


def _version(document: Mapping[str, Any]) -> Version | Fault:
    text = document.get("version")
    if text is None:
        hint = " Call it `version`, not `name`." if "name" in document else ""
        return Fault("/version", "required", f"A manifest needs a version.{hint}")
    if not isinstance(text, str):
        return Fault("/version", "invalid_type", "The version must be a string such as 1.2.3.")
    try:
        return Version.parse(text)
    except NotAVersion as error:
        return Fault("/version", "invalid_version", str(error))


def _of_channel(document: Mapping[str, Any], channel: str) -> Iterator[Fault]:
    given = document.get("channel")
    if given is None:
        yield Fault("/channel", "required", f'Add "channel": "{channel}": the signature covers it.')
    elif given != channel:
        yield Fault(
            "/channel",
            "channel_mismatch",
            f"The document names a different channel from `ch`, which is {channel}.",
        )


def _of_date(document: Mapping[str, Any]) -> Iterator[Fault]:
    given = document.get("pub_date")
    at = "/pub_date"
    if given is None:
        yield Fault(at, "required", "A manifest needs the date of its publication.")
    elif not isinstance(given, str):
        yield Fault(at, "invalid_type", "The date must be a string such as 2026-01-31T12:00:00Z.")
    elif not _is_read_by_shells(given):
        yield Fault(at, "invalid_date", _why_unread(given))


def _is_read_by_shells(date: str) -> bool:
    return PUB_DATE.fullmatch(date) is not None and _is_real(date)


def _is_real(date: str) -> bool:
    try:
        datetime.fromisoformat(date)
    except ValueError:
        return False
    return True


def _why_unread(date: str) -> str:
    """The reason that is true: RFC 3339 allows more than every shell's parser of dates reads."""
    if PUB_DATE.fullmatch(date) and _is_read_by_shells(SECOND_60.sub(":59", date)):
        return "Not every shell reads a second 60, even a true leap second: write 59."
    if PUB_DATE.fullmatch(date):
        return "There is no such day or time."
    if date != date.upper() and PUB_DATE.fullmatch(date.upper()):
        return "RFC 3339 allows a small t or z, but not every shell reads it: write T and Z."
    if _is_read_by_shells(LONG_FRACTION.sub(r"\1", date)):
        return "Shells read nine digits of a second at most: shorten the fraction."
    if PUB_DATE.fullmatch(f"{date}Z"):
        return "The date is not RFC 3339. It needs an offset, such as Z."
    return "The date is not RFC 3339. Write it like 2026-01-31T12:00:00Z."


def _of_extras(document: Mapping[str, Any]) -> Iterator[Fault]:
    """Checks optional members that shells read too."""
    if not isinstance(document.get("notes"), str | None):
        yield Fault("/notes", "invalid_type", "The notes must be a string.")
    if "name" in document and "version" in document:
        yield Fault(
            "/name", "not_allowed", "Shells read `name` as the version; leave only `version`."
        )
    for member in ("url", "signature"):
        if document.get(member) is not None:
            yield Fault(
                f"/{member}",
                "not_allowed",
                f"Each platform has a {member} of its own; remove this one.",
            )


def _of_numbers(value: Any, *place: str | int) -> Iterator[Fault]:
    """Finds numbers at any depth that overflow a shell's 64-bit floats. The body limits bound the depth."""
    if isinstance(value, dict | list):
        for key, each in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _of_numbers(each, *place, key)
    elif isinstance(value, int | float) and not _is_held(value):
        yield Fault(pointer(place), "out_of_range", "This number is too large for a shell.")


def _is_held(number: float) -> bool:
    try:
        return isfinite(number)
    except OverflowError:
        return False


def _of_platforms(given: Any, version: Version | None, terms: Terms) -> Iterator[Fault]:
    if given is None:
        yield Fault("/platforms", "required", "A manifest needs its platforms.")
        return
    if not isinstance(given, dict):
        yield Fault(
            "/platforms",
            "invalid_type",
            "`platforms` is an object with a member for each platform.",
        )
        return
    for platform, entry in given.items():
        at = _at(platform)
        if platform not in KNOWN:
            detail = f"No shell has this id: <os>-<arch>[-<bundle>]{suggestion(platform)}."
            yield Fault(at, "unknown_platform", detail)
        else:
            yield from _of_entry(entry, at, platform, version, terms.cdn_url)
    for platform in terms.platforms:
        if platform not in given:
            detail = f"Every release needs {platform}; without it, its shells find no update."
            yield Fault(_at(platform), "required", detail)


def _at(platform: str) -> str:
    return pointer(("platforms", platform))


def _of_entry(
    entry: Any, at: str, platform: str, version: Version | None, cdn_url: str
) -> Iterator[Fault]:
    if not isinstance(entry, dict):
        yield Fault(at, "invalid_type", "A platform must be an object with `url` and `signature`.")
        return
    for member in ("url", "signature"):
        value = entry.get(member)
        if value is None or value == "":
            yield Fault(f"{at}/{member}", "required", f"A platform needs a {member}.")
        elif not isinstance(value, str):
            yield Fault(f"{at}/{member}", "invalid_type", f"The {member} must be a string.")
        elif member == "url" and version is not None:
            fault = misplaced(
                value, at=f"{at}/url", version=version, platform=platform, cdn_url=cdn_url
            )
            if fault is not None:
                yield fault
