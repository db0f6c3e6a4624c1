"""A disk that can be filled: a small one in memory, which only root can mount."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

SIZE = "480m"
PIECE = 1 << 20
# The file that fills a disk which is called full.
BALLAST = "ballast"


@contextmanager
def small_disk(folder: Path) -> Iterator[Path | None]:
    """Returns the folder of a small disk; None where none may be mounted."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={SIZE},mode=700", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode:
        yield None
        return
    try:
        yield folder
    finally:
        # Lazily: a child that is just ending may still be in it.
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@contextmanager
def filled(disk: Path) -> Iterator[None]:
    """Nothing more fits on it inside."""
    ballast = disk / BALLAST
    with ballast.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(b"\0" * PIECE)
    with ballast.open("ab", buffering=0) as file, suppress(OSError):
        while True:
            file.write(b"\0" * 4096)
    try:
        yield
    finally:
        ballast.unlink()
