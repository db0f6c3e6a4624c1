"""The platform ids that a Tauri shell looks for: ``<os>-<arch>`` and ``<os>-<arch>-<bundle>``."""

import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches

ARCHITECTURES: Mapping[str, tuple[str, ...]] = {
    "darwin": ("aarch64", "x86_64"),
    "linux": ("aarch64", "armv7", "i686", "riscv64", "x86_64"),
    "windows": ("aarch64", "i686", "x86_64"),
}
BUNDLES: Mapping[str, tuple[str, ...]] = {
    "darwin": ("app",),
    "linux": ("appimage", "deb", "rpm"),
    "windows": ("msi", "nsis"),
}
KNOWN = frozenset(
    f"{system}-{arch}{suffix}"
    for system, archs in ARCHITECTURES.items()
    for arch in archs
    for suffix in ("", *(f"-{bundle}" for bundle in BUNDLES[system]))
)
# Names that other tools use.
OTHER_NAMES: Mapping[str, str] = {
    "macos": "darwin", "osx": "darwin", "mac": "darwin",
    "win": "windows", "win32": "windows", "win64": "windows",
    "universal": "aarch64", "arm64": "aarch64", "amd64": "x86_64", "x64": "x86_64", "i386": "i686", "x86": "i686",
    "armhf": "armv7", "dmg": "app", "exe": "nsis",
}  # fmt: skip
# The most probable platform of a system named alone.
USUAL: Mapping[str, str] = {
    "darwin": "darwin-aarch64",
    "linux": "linux-x86_64",
    "windows": "windows-x86_64",
}


def near_miss(platform: str) -> str | None:
    """Returns the known id closest to an unknown one: ``darwin-universal`` → ``darwin-aarch64``."""
    lowered = platform.lower().replace("x86-64", "x86_64")
    parts = re.sub(r"^([a-z0-9]+)_", r"\1-", lowered).split("-")
    renamed = "-".join(OTHER_NAMES.get(part, part) for part in parts)
    if renamed in USUAL:
        return USUAL[renamed]
    close = [renamed] if renamed in KNOWN else get_close_matches(renamed, sorted(KNOWN), 1, 0.75)
    return close[0] if close else None


def suggestion(platform: str) -> str:
    """The end of a sentence about an unknown id."""
    meant = near_miss(platform)
    return f"; {meant} was probably meant" if meant else ""


def base_of(platform: str) -> str:
    """``linux-x86_64-deb`` → ``linux-x86_64``."""
    return "-".join(platform.split("-")[:2])


def faults(platforms: Iterable[str]) -> dict[str, str]:
    """Returns a sentence about PUBLISH_PLATFORMS if it names an unknown platform, which no release could have."""
    sentences = [
        f"Its platform {number} is unknown{suggestion(platform)}."
        for number, platform in enumerate(platforms, 1)
        if platform not in KNOWN
    ]
    return {"PUBLISH_PLATFORMS": " ".join(sentences)} if sentences else {}
