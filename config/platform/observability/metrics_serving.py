"""The metrics files of web processes, and the program that gunicorn's master runs to serve them.

The files are in shared memory. Their space is allocated before a process writes into them: touching a page that a full
file system cannot provide kills the process (SIGBUS).
"""

import logging
import os
import shutil
import socket
import sys
import tempfile
import time
from pathlib import Path
from threading import Event, Thread

log = logging.getLogger(__name__)

# The size that the declared metrics need at most, in steps of 64 KiB.
SMALL = 64 * 1024
SIZES = {"histogram": 32, "counter": 8, "gauge_livesum": 1, "gauge_livemin": 1}
# The id of no process; its files contain the counts of ended ones.
ENDED = 0
VARIABLE = "PROMETHEUS_MULTIPROC_DIR"
LOOK_SECONDS = 2.0
_MEMORY = Path("/dev/shm")  # nosec B108 # noqa: S108 - a folder of its own, which others may not read
_ROOT = Path(__file__).parents[3]


def lives(number: str | int) -> bool:
    return Path(f"/proc/{number}").exists()


def begin(port: int) -> None:
    """Creates the folder before the library is loaded, and removes those of killed services."""
    memory = _MEMORY if _MEMORY.is_dir() else Path(tempfile.gettempdir())
    prefix = f"shell-metrics-{port}-"
    for left in memory.glob(f"{prefix}*"):
        numbers = {file.stem.rpartition("_")[2] for file in left.glob("*.db")} - {str(ENDED)}
        if left.stat().st_uid == os.getuid() and not any(map(lives, numbers)):
            shutil.rmtree(left, ignore_errors=True)
    os.environ[VARIABLE] = folder = tempfile.mkdtemp(prefix=prefix, dir=memory)
    # The master only forks.
    reserve(Path(folder), os.getpid(), most=1)


def reserve(folder: Path, number: int, *, most: int = 32) -> None:
    """Allocates the space of a process's files; raises ``OSError`` where there is not enough."""
    for kind, size in SIZES.items():
        with (folder / f"{kind}_{number}.db").open("ab") as file:
            os.posix_fallocate(file.fileno(), 0, min(size, most) * SMALL)


def serve(host: str, port: int) -> None:
    """Listens, or fails the start, and runs a program that answers as long as any process of this service exists."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # During an upgrade a new master listens beside the old one.
    listener = socket.create_server((host, port), family=family, reuse_port=True)
    life, _write_end = os.pipe()
    for each in (listener.fileno(), life):
        os.set_inheritable(each, True)
    Thread(target=_keep, args=(os.getpid(), listener, life), daemon=True).start()
    log.info("metrics_served", extra={"port": port})


def _keep(master: int, listener: socket.socket, life: int) -> None:
    """Starts the program, and restarts it if it is killed."""
    program = "config.platform.observability.metrics_port"
    command = [sys.executable, "-m", program, str(listener.fileno()), str(life)]
    environ = {"PYTHONPATH": str(_ROOT), VARIABLE: os.environ[VARIABLE]}
    child = None
    while True:
        if os.getpid() != master:
            # A forked process inherits this thread without its work.
            Event().wait()
        if child is None or not lives(child):
            child = os.posix_spawn(sys.executable, command, environ)
        time.sleep(LOOK_SECONDS)
