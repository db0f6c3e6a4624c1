"""Tables of releases: the shell's, and those of micro apps."""

from releases.models.apps import AppChannel, AppPin, AppVersion, MicroApp
from releases.models.publishers import ServedToken
from releases.models.shell import (
    AN_OPERATOR,
    CHANNEL,
    CHANNEL_LENGTH,
    WHOLE,
    Publication,
    Purge,
    ShellArtifact,
    ShellChannel,
    ShellRelease,
)

__all__ = [
    "AN_OPERATOR",
    "CHANNEL",
    "CHANNEL_LENGTH",
    "WHOLE",
    "AppChannel",
    "AppPin",
    "AppVersion",
    "MicroApp",
    "Publication",
    "Purge",
    "ServedToken",
    "ShellArtifact",
    "ShellChannel",
    "ShellRelease",
]
