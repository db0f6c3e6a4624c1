"""A clock of the service's own processes that jumps: Debian's libfaketime, which is told by a file."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from tests.faults.stage import Stage

LIBRARIES = "/usr/lib/*/faketime/libfaketimeMT.so.1"


def library() -> Path | None:
    return next(iter(sorted(Path("/").glob(LIBRARIES.removeprefix("/")))), None)


def environ(folder: Path) -> dict[str, str]:
    """Variables of a process whose clock :func:`at_hours` moves; intervals are measured as ever."""
    _file(folder).write_text("+0\n")
    return {
        "LD_PRELOAD": str(library()),
        "FAKETIME_TIMESTAMP_FILE": str(_file(folder)),
        "FAKETIME_CACHE_DURATION": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }


def at_hours(hours: int) -> Callable[[Stage], AbstractContextManager[None]]:
    @contextmanager
    def moved(stage: Stage) -> Iterator[None]:
        file = _file(stage.folder)
        file.write_text(f"{hours:+d}h\n")
        try:
            yield
        finally:
            file.write_text("+0\n")

    return moved


def _file(folder: Path) -> Path:
    return folder / "clock"
