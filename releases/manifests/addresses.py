"""Checks of artifact addresses: below the CDN's address, at a path that names the version.

Addresses are compared literally. Parts that a client would rewrite before it fetches (``..``, escapes,
backslashes, dropped characters) are refused, so that a client fetches the address that was checked.
"""

import re
from urllib.parse import SplitResult, urlsplit

from config.platform.env.hosts import is_loopback
from config.platform.problems.problem import Fault
from config.platform.text.versions import Version
from releases.manifests.platforms import base_of

SEGMENT = re.compile(r"[A-Za-z0-9_+~@=,-][A-Za-z0-9._+~@=,-]*")
OTHER_SIGNS = re.compile(r"[^A-Za-z0-9._+~@=,-]")
# The file's name comes from the shell's own configuration, and its signature names it too.
RENAME = (
    "Tauri names files after `productName`: give it only letters, digits and hyphens, or rename the file before "
    "it is signed, because its signature names it."
)
# The first match names the fault.
FORBIDDEN = (
    (re.compile(r"[\s\x00-\x1f\x7f]"), "whitespace", f"spaces or control characters. {RENAME}"),
    (re.compile(r"\\"), "backslash", "a backslash"),
    (re.compile(r"%"), "percent_escape", f"a percent escape. {RENAME}"),
    (re.compile(r"\?"), "query", "a query"),
    (re.compile(r"#"), "fragment", "a fragment"),
    (re.compile(r"(?<=/)\.\.?(?=/|$)"), "dot_segment", "a path that climbs (. or ..)"),
)


def misplaced(url: str, *, at: str, version: Version, platform: str, cdn_url: str) -> Fault | None:
    """Returns the fault of an artifact's address, whose pointer is ``at``, or None."""
    for pattern, code, what in FORBIDDEN:
        if pattern.search(url):
            return Fault(at, code, f"The address has {what.removesuffix('.')}.")
    parts = _split(url)
    if parts is None:
        return Fault(at, "not_an_address", "This is not an absolute https address.")
    if parts.scheme != "https" and not is_loopback(cdn_url):
        return Fault(at, "insecure", "An artifact needs an https address.")
    folders = _folders(version, platform, cdn_url)
    folder = next((each for each in folders if url.startswith(each)), None)
    if folder is None:
        foreign = parts.netloc.lower() != urlsplit(cdn_url).netloc.lower()
        detail = f"The artifacts of this version are under {' or '.join(folders)}"
        return Fault(at, "foreign_host" if foreign else "wrong_path", detail)
    segments = url.removeprefix(folder).split("/")
    if not all(SEGMENT.fullmatch(each) for each in segments):
        detail = "The path ends in a file name. Names have letters, digits and ._+~@=,- and no leading dot."
        advice = f" {RENAME}" if any(map(OTHER_SIGNS.search, segments)) else ""
        return Fault(at, "wrong_name", detail + advice)
    return None


def _split(url: str) -> SplitResult | None:
    try:
        parts = urlsplit(url)
    except ValueError:
        return None
    return parts if parts.scheme in {"http", "https"} and parts.netloc else None


def _folders(version: Version, platform: str, cdn_url: str) -> list[str]:
    """The allowed folders of a version's artifacts for one platform."""
    ids = dict.fromkeys((platform, base_of(platform)))
    by_platform = [f"{cdn_url}/shell/{each}/{version}/" for each in ids]
    return [f"{cdn_url}/shell/{version}/", *by_platform]
