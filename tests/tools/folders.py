"""Folders of a local run: the private one beside the code, its locks, and a short path for sockets."""

import fcntl
import hashlib
import os
import pwd
import re
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.tools import Unready
from tests.tools.stops import pause

ROOT = Path(__file__).resolve().parents[2]
LOCAL = ROOT / ".local"
# The kernel takes 107 bytes for the path of a socket; this is the longest name in it.
LONGEST = 107 - len("/.s.PGSQL.5432.lock")
# A database address carries this folder as its host name, which parsers put in lower case.
PLAIN = re.compile(r"[a-z0-9/._-]+")
# A start waits this long for a run in the same folder, for one that stops, and for processes of a killed run.
RUNNING_SECONDS, STOPPING_SECONDS, LEFTOVER_SECONDS = 1.0, 60.0, 60.0


def claim(folder: Path) -> Path:
    """The folder, made if need be and closed to others; Unready if it is another user's."""
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
    except PermissionError:
        raise Unready(
            f"{folder.parent} is not yours to write in. Work in a copy of your own."
        ) from None
    owner = folder.stat().st_uid
    if owner != os.geteuid():
        raise Unready(
            f"{folder} was made by {_name_of(owner)} and you are {_name_of(os.geteuid())}.\n"
            f"Start as {_name_of(owner)}, or remove the folder; its data goes with it."
        )
    folder.chmod(0o700)
    return folder


class Hold:
    """The right to run in a folder, which ends with this process however it ends."""

    def __init__(self, file: int) -> None:
        self._file = file

    def note(self, state: str) -> None:
        """Writes ``running``, with an address or without, or ``stopping``, for a start that finds the folder held."""
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, f"{os.getpid()} {state}".encode(), 0)


@contextmanager
def held(folder: Path) -> Iterator[Hold]:
    """Holds the folder; Unready if another process does, or if children of a killed one live on.

    There are two locks. Children inherit the second one, so it is free once the last of them has ended.
    """
    own, family = _open(folder / "lock"), _open(folder / "children.lock")
    started = time.monotonic()
    try:
        while not _lock(own):
            holder, state, where = f"{os.pread(own, 512, 0).decode()}  ".split(" ", 2)
            waited = time.monotonic() - started
            if waited > (STOPPING_SECONDS if state == "stopping" else RUNNING_SECONDS):
                at = f" at {where.strip()}" if where.strip() else ""
                raise Unready(
                    f"This folder is running already{at} (process {holder}); stop that one first."
                )
            pause(0.05)
        hold = Hold(own)
        hold.note("running")
        while not _lock(family):
            if time.monotonic() - started > LEFTOVER_SECONDS:
                raise Unready(f"Processes of an earlier run in {folder} have not ended.")
            pause(0.05)
        os.set_inheritable(family, True)
        yield hold
    finally:
        os.close(family)
        os.close(own)


def is_held(folder: Path) -> bool:
    """Returns whether a process holds the folder, or a child of a process that did."""
    files = [_open(folder / name) for name in ("lock", "children.lock")]
    try:
        return not all([_lock(file) for file in files])  # noqa: C419 - both are tried
    finally:
        for file in files:
            os.close(file)


@contextmanager
def sockets_of(folder: Path) -> Iterator[Path]:
    """An empty folder for sockets: inside, or where that path would not do, a private one elsewhere."""
    sockets = folder / "sockets"
    if not _fits(sockets):
        digest = hashlib.sha256(os.fsencode(folder)).hexdigest()[:16]
        base = Path(tempfile.gettempdir())
        base = base if _fits(base / f"shell-{digest}") else Path("/tmp")
        sockets = base / f"shell-{digest}"
    if sockets.is_symlink():
        # Of an earlier starter, or a stranger's.
        sockets.unlink()
    for left in claim(sockets).iterdir():
        left.unlink()
    try:
        yield sockets
    finally:
        shutil.rmtree(sockets, ignore_errors=True)


def _fits(path: Path) -> bool:
    return len(os.fsencode(path)) <= LONGEST and PLAIN.fullmatch(str(path)) is not None


def _open(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT, 0o600)


def _lock(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _name_of(uid: int) -> str:
    with suppress(KeyError):
        return pwd.getpwuid(uid).pw_name
    return f"user {uid}"
