"""The environment file: plain ``NAME=value`` lines, kept to its owner, always under what is already set.

Standard library only, because ``manage.py`` reads it before anything else.
"""

import os
from collections.abc import Mapping, MutableMapping
from contextlib import suppress
from pathlib import Path

FILE = Path(__file__).resolve().parents[2] / ".local" / "env"


def load(path: Path = FILE) -> None:
    """Sets what the file names and the process environment does not; nothing where there is no file."""
    try:
        values = read(path)
    except PermissionError:
        raise SystemExit(
            f"{path} belongs to another user; run as that user, or in a copy of your own."
        ) from None
    os.environ.update(missing(values, os.environ))


def read(path: Path) -> dict[str, str]:
    """The file's values by name; empty where there is no file."""
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except FileNotFoundError:
        return {}
    pairs = (line.partition("=") for line in lines if line and not line.startswith("#"))
    return {name: value for name, separator, value in pairs if separator}


def write(path: Path, values: Mapping[str, str]) -> None:
    """Replaces the file in one step, with mode 600. Raises ValueError for a value that has a newline."""
    for name, value in values.items():
        if "\n" in value:
            raise ValueError(f"{name} has a newline")
    new = path.with_name(f"{path.name}.new")
    new.unlink(missing_ok=True)
    file = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(file, "w", encoding="utf-8") as out:
        out.write(
            "# Written by `make run`; what is set in the process environment goes before it.\n"
        )
        out.writelines(f"{name}={value}\n" for name, value in values.items())
    new.replace(path)


def missing(values: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, str]:
    """Of the values, those that the environment does not give, be it as ``NAME`` or as ``NAME_FILE``."""
    return {name: value for name, value in values.items() if not given(name, environ)}


def read_files(environ: MutableMapping[str, str], *names: str) -> None:
    """Gives these by themselves where files hold them; what cannot be read is for the service to name."""
    for name in names:
        with suppress(OSError, ValueError):
            if path := environ.get(f"{name}_FILE"):
                environ[name] = Path(path).read_text().strip()
                del environ[f"{name}_FILE"]


def given(name: str, environ: Mapping[str, str]) -> bool:
    """Whether the environment gives this variable itself or the file that holds it."""
    return name in environ or f"{name}_FILE" in environ
