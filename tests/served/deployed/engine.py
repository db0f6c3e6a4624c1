"""A container engine of this test run's own: Debian's Docker, with its data in a temporary folder.

It shares this machine's network and changes nothing of it but for the bridges of its own networks.
"""

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from tests.tools.children import Child, Program
from tests.tools.wire import PATH
from tests.waiting import eventually

# Containers reach each other and this machine by their bridges, and nothing else.
APART = ("--bridge=none", "--iptables=false", "--ip6tables=false", "--ip-forward=false")
STARTED_WITHIN = 60.0
# Building the image takes minutes on a busy machine.
PATIENCE = 1800
# A start of everything does, too.
in_time = partial(eventually, seconds=300)


class Engine:
    """Its commands; a failed one fails the test with what it said."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._socket = folder / "docker.sock"
        self.environ = {
            **os.environ,
            "PATH": PATH,
            "DOCKER_HOST": f"unix://{self._socket}",
            # The builder within the engine: the other is a package of its own.
            "DOCKER_BUILDKIT": "0",
            "COMPOSE_HTTP_TIMEOUT": str(PATIENCE),
        }

    def start(self) -> Child:
        places = [f"--{name}={self.folder / name}" for name in ("data-root", "exec-root")]
        child = Program(
            name="Docker",
            command=[
                *("dockerd", f"--host=unix://{self._socket}", f"--pidfile={self.folder}/pid"),
                *(*places, *APART),
            ],
            log=self.folder / "dockerd.log",
            environ=self.environ,
            # It ends its containers, which a killed one leaves.
            orphaned_by=signal.SIGTERM,
            patience=60,
        ).start()
        try:
            child.wait_until(self._answers, seconds=STARTED_WITHIN)
        except BaseException:
            child.stop()
            raise
        return child

    def run(self, *command: str, cwd: Path | None = None, given: bytes = b"") -> str:
        """Returns the output of a command that must succeed."""
        done = self.tried(*command, cwd=cwd, given=given)
        assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout[-4000:]}"
        return done.stdout

    def tried(
        self, *command: str, cwd: Path | None = None, given: bytes = b""
    ) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            command,
            cwd=cwd,
            env=self.environ,
            input=given,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
            timeout=PATIENCE,
        )
        return subprocess.CompletedProcess(command, done.returncode, done.stdout.decode())

    def _answers(self) -> bool:
        return self.tried("docker", "version").returncode == 0


@contextmanager
def running_engine() -> Iterator[Engine]:
    """Unready where none can run."""
    installed = shutil.which("dockerd", path=PATH)
    assert installed, "Docker is not installed; make test-wire installs it"
    # Not a folder of pytest's, which keeps them: it takes gigabytes.
    with tempfile.TemporaryDirectory(prefix="shell-engine-") as folder:
        engine = Engine(Path(folder))
        child = engine.start()
        try:
            yield engine
        finally:
            child.stop()
            _unmount(folder)


def _unmount(folder: str) -> None:
    """Unmounts the leftovers of an engine that was killed."""
    lines = Path("/proc/mounts").read_text().splitlines()
    for place in reversed([line.split()[1] for line in lines]):
        if place.startswith(folder):
            subprocess.run(["umount", "--lazy", place], check=False)
