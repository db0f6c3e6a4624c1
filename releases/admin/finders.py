"""Finders of channels, releases and apps for the console's search."""

from config.console.finders import Finder, finders
from releases.models import AppVersion, MicroApp, ShellChannel, ShellRelease

finders.add(
    Finder(
        "Channels", 90, ShellChannel, lambda term: term.word("name__icontains"),
        "Channel, Halted", lambda row: (row.halted_at or "",), whole=("name",),
    ),
    Finder(
        "Releases", 100, ShellRelease, lambda term: term.word("version__startswith"),
        "Release, Published", lambda row: (row.published_at,),
        order=("-published_at",), whole=("version",),
    ),
    Finder(
        "Apps", 110, MicroApp, lambda term: term.word("slug__icontains"),
        "App, Since", lambda row: (row.created_at,),
    ),
    Finder(
        "App versions", 120, AppVersion,
        lambda term: term.word("version__startswith", "app__slug"),
        "Version, Published", lambda row: (row.published_at,),
        order=("-published_at",), whole=("version",),
    ),
)  # fmt: skip
