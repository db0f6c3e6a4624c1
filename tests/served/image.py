"""The image of the Dockerfile, built without a registry, and processes that run in it.

The base is made from Debian's own packages, as the source of this machine's has them, and named in the build argument.
"""

import os
import shutil
import signal
import ssl
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.tools.folders import ROOT
from tests.tools.wire import PATH

BASE, IMAGE = "localhost/base", "localhost/shell-backend"
PACKAGES = "python3,python3-venv,ca-certificates"
SOURCES = ["Created-By: Packages", "Origin: Debian"]


class Image:
    """A container of the image in a store of its own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._build()
        self._container = self._buildah("from", "--pull-never", IMAGE)

    def command(
        self, *arguments: str, environ: Mapping[str, str], mounts: Sequence[str] = ()
    ) -> list[str]:
        """What runs a program in it, as the image's own user and in this machine's network."""
        given = [part for name, value in environ.items() for part in ("--env", f"{name}={value}")]
        volumes = [part for each in mounts for part in ("--volume", each)]
        run = ["run", "--isolation", "chroot", *given, *volumes, self._container, "--"]
        return [*self._program(), *run, *arguments]

    def _build(self) -> None:
        root = self._folder / "root"
        site, suite = _source()
        _run("debootstrap", "--variant=minbase", f"--include={PACKAGES}", suite, str(root), site)
        (root / "usr" / "bin" / "python").symlink_to("python3")
        _run("tar", "--create", "--directory", str(root), "--file", f"{root}.tar", ".")
        shutil.rmtree(root)
        scratch = self._buildah("from", "scratch")
        self._buildah("add", scratch, f"{root}.tar", "/")
        self._buildah(
            "config", "--env", "PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", scratch
        )
        self._buildah("commit", "--rm", "--format", "docker", scratch, BASE)
        # pip finds the authorities that this machine trusts.
        trusted = ssl.get_default_verify_paths().cafile or "/etc/ssl/certs/ca-certificates.crt"
        options = [
            "--isolation",
            "chroot",
            "--pull-never",
            "--network",
            "host",
            "--format",
            "docker",
        ]
        options += ["--build-arg", f"PYTHON={BASE}", "--volume", f"{trusted}:{trusted}:ro"]
        self._buildah("bud", *options, "--tag", IMAGE, str(ROOT))

    def _buildah(self, *arguments: str) -> str:
        return _run(*self._program(), *arguments).strip()

    def _program(self) -> list[str]:
        places = ["--root", str(self._folder / "store"), "--runroot", str(self._folder / "running")]
        return ["buildah", "--storage-driver", "vfs", *places]


@contextmanager
def built_image() -> Iterator[Image]:
    # Not a folder of pytest's, which keeps them: it takes more than a gigabyte.
    with tempfile.TemporaryDirectory(prefix="shell-image-") as folder:
        yield Image(Path(folder))


def stop(pid: int) -> None:
    """Tells the server in a container to stop; told itself, buildah would kill it."""
    while not _is_server(pid):
        [pid] = [int(each) for each in _children_of(pid).split()]
    os.kill(pid, signal.SIGTERM)


def _children_of(pid: int) -> str:
    threads = Path(f"/proc/{pid}/task").glob("*/children")
    return " ".join(each.read_text() for each in threads)


def _is_server(pid: int) -> bool:
    program, *arguments = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    return not program.startswith(b"buildah") and b"python:config.gunicorn" in arguments


def _source() -> tuple[str, str]:
    """Where this machine gets Debian's packages from, and of which release."""
    lines = _run("apt-get", "indextargets", "--format", "$(SITE) $(RELEASE)", *SOURCES).splitlines()
    site, suite = lines[0].split()
    return site, suite


def _run(*command: str) -> str:
    environ = {**os.environ, "PATH": PATH}
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
    return done.stdout
