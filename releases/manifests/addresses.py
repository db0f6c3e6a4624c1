"""Where an artifact may be: below the CDN's own address, at a path that names the version, and nowhere else.

Addresses are compared as they stand. Whatever a client would rewrite before it fetches (``..``, escapes,
backslashes, letters that it drops) is refused, so that what was checked here is what is fetched there.
"""

import re
from dataclasses import dataclass
from ipaddress import ip_address
from urllib.parse import SplitResult, urlsplit

from releases.manifests.platforms import base_of
from releases.versions import Version

SEGMENT = re.compile(r"[A-Za-z0-9_+~@=,-][A-Za-z0-9._+~@=,-]*")
# In this order: the first that an address holds names the fault.
FORBIDDEN = (
    (re.compile(r"[\s\x00-\x1f\x7f]"), "whitespace", "spaces or control characters"),
    (re.compile(r"\\"), "backslash", "a backslash"),
    (re.compile(r"%"), "percent_escape", "a percent escape; give the file a plain name"),
    (re.compile(r"\?"), "query", "a query"),
    (re.compile(r"#"), "fragment", "a fragment"),
    (re.compile(r"(?<=/)\.\.?(?=/|$)"), "dot_segment", "a path that climbs (. or ..)"),
)


@dataclass(frozen=True, slots=True)
class Misplaced:
    """Why an address is not taken: a word to grep for, and a sentence."""

    code: str
    detail: str


def misplaced(url: str, *, version: Version, platform: str, cdn_url: str) -> Misplaced | None:
    """What is wrong with an artifact's address, or None."""
    for pattern, code, what in FORBIDDEN:
        if pattern.search(url):
            return Misplaced(code, f"The address holds {what}.")
    parts = _split(url)
    if parts is None:
        return Misplaced("not_an_address", "This is not an absolute https address.")
    if parts.scheme != "https" and not is_loopback(cdn_url):
        return Misplaced("insecure", "Artifacts are served by https only.")
    folders = _folders(version, platform, cdn_url)
    folder = next((each for each in folders if url.startswith(each)), None)
    if folder is None:
        foreign = parts.netloc.lower() != urlsplit(cdn_url).netloc.lower()
        return Misplaced(
            "foreign_host" if foreign else "wrong_path",
            f"The artifacts of this version are under {' or '.join(folders)}",
        )
    segments = url.removeprefix(folder).split("/")
    if not all(SEGMENT.fullmatch(each) for each in segments):
        return Misplaced(
            "wrong_name",
            "The path ends in a file's name; names hold letters, digits and ._+~@=,- and begin without a dot.",
        )
    return None


def is_loopback(address: str) -> bool:
    """Whether an address is this machine's own."""
    host = urlsplit(address).hostname or ""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _split(url: str) -> SplitResult | None:
    try:
        parts = urlsplit(url)
    except ValueError:
        return None
    return parts if parts.scheme in {"http", "https"} and parts.netloc else None


def _folders(version: Version, platform: str, cdn_url: str) -> list[str]:
    """Where the artifacts of a version may be, for one platform."""
    ids = dict.fromkeys((platform, base_of(platform)))
    by_platform = [f"{cdn_url}/shell/{each}/{version}/" for each in ids]
    return [f"{cdn_url}/shell/{version}/", *by_platform]
