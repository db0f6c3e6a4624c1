"""Where things lie: the private folder beside the code, its hold, and a folder short enough for sockets."""

import fcntl
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
# The kernel takes 107 bytes for the path of a socket; this is the longest name that is added.
LONGEST = 107 - len("/.s.PGSQL.5432.lock")
# A database address carries this folder as its host name, which parsers put in lower case.
PLAIN = re.compile(r"[a-z0-9/._-]+")
# How long a start waits for one that runs (it may have been told to stop this moment), and for one that stops.
RUNNING_SECONDS, STOPPING_SECONDS = 1.0, 60.0


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
        """Tells a start that finds the folder held what this process does: ``running`` or ``stopping``."""
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, f"{os.getpid()} {state}".encode(), 0)


@contextmanager
def held(folder: Path) -> Iterator[Hold]:
    """Holds the folder for this process; Unready if another one does and is not about to end."""
    file = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    started = time.monotonic()
    try:
        while not _lock(file):
            holder, _, state = os.pread(file, 64, 0).decode().partition(" ")
            waited = time.monotonic() - started
            if waited > (STOPPING_SECONDS if state == "stopping" else RUNNING_SECONDS):
                raise Unready(
                    f"This folder is running already (process {holder}); stop that one first."
                )
            pause(0.05)
        hold = Hold(file)
        hold.note("running")
        yield hold
    finally:
        os.close(file)


def is_held(folder: Path) -> bool:
    """Whether a living process holds the folder."""
    file = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        return not _lock(file)
    finally:
        os.close(file)


@contextmanager
def sockets_of(folder: Path) -> Iterator[Path]:
    """An empty folder for sockets: inside, or where that path would not do, a private one elsewhere for as long."""
    inside = folder / "sockets"
    if _fits(inside):
        if inside.is_symlink():
            inside.unlink()
        inside.mkdir(mode=0o700, exist_ok=True)
        yield _emptied(inside)
        return
    elsewhere = _elsewhere(folder, inside)
    try:
        yield _emptied(elsewhere)
    finally:
        inside.unlink()
        shutil.rmtree(elsewhere)


def _elsewhere(folder: Path, link: Path) -> Path:
    """The short folder that the link names if it is still there and ours, else a new one."""
    if link.is_symlink():
        target = link.readlink()
        with suppress(OSError):
            # A copy of the project brings the link along, but the folder names the project it was made for.
            if target.stat().st_uid == os.geteuid() and (target / "for").readlink() == folder:
                return target
        link.unlink()
    elif link.exists():
        shutil.rmtree(link)
    base = Path(tempfile.gettempdir())
    if not _fits(base / "shell-12345678"):
        base = Path("/tmp")
    target = Path(tempfile.mkdtemp(prefix="shell-", dir=base))
    (target / "for").symlink_to(folder)
    link.symlink_to(target)
    return target


def _emptied(folder: Path) -> Path:
    """Without the sockets and socket locks of a run that was killed; they may name a process that is not ours."""
    for left in folder.iterdir():
        if left.name != "for":
            left.unlink()
    return folder


def _fits(path: Path) -> bool:
    return len(os.fsencode(path)) <= LONGEST and PLAIN.fullmatch(str(path)) is not None


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
