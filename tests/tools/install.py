"""Makes the environment in ``.venv`` from locked requirements: ``python -m tests.tools.install local|test|wire``.

Runs on the Python of the machine, so it uses the standard library only. A second run does nothing until a lock
changes; what was interrupted is made again from the start.
"""

import fcntl
import hashlib
import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from tests.tools import Unready
from tests.tools.children import die_with
from tests.tools.folders import ROOT

# Of another Python, it is elsewhere (`tests.checks.interpreters`).
VENV = Path(os.environ.get("VENV") or ROOT / ".venv")
PYTHON = VENV / "bin" / "python"
STAMP = VENV / "installed.json"
UNFINISHED = VENV / "unfinished"
LOG = VENV / "install.log"
# Each lock begins with the one before it (``-r``), and names what it adds.
LOCKS = {name: ROOT / f"requirements-{name}.lock" for name in ("local", "test", "wire")}
# Wheels only: no package runs code of its own while it is installed.
SAFELY = ["--require-hashes", "--only-binary", ":all:", "--requirement"]
PIP = ["-m", "pip", "install", "--no-input", "--disable-pip-version-check", "--progress-bar", "off"]
# Copies: a file that is linked to uv's cache would change with an edit in any environment.
UV = ["-m", "uv", "pip", "install", "--no-progress", "--link-mode", "copy", "--python", str(PYTHON)]
# The settings of pip, and uv's variables for them.
SETTINGS = {"index-url": "UV_DEFAULT_INDEX", "cert": "SSL_CERT_FILE"}
REPORT_SECONDS = 5.0


def install(wanted: str) -> None:
    """Brings ``.venv`` to a set of requirements; Unready with what is missing, or the end of pip's log."""
    with _alone():
        if not _usable():
            _make()
        done = json.loads(STAMP.read_text()) if STAMP.exists() else {}
        enough = list(LOCKS)[list(LOCKS).index(wanted) :]
        if any(done.get(each) == _digest(each) for each in enough):
            return
        UNFINISHED.touch()
        _install(LOCKS[wanted])
        # The environment now matches the locks; an older lock that comes back is installed again.
        now = {each: _digest(each) for each in LOCKS}
        STAMP.write_text(
            json.dumps(
                {name: now[name] for name in now if name == wanted or done.get(name) == now[name]}
            )
        )
        UNFINISHED.unlink()


@contextmanager
def _alone() -> Iterator[None]:
    """One at a time in this folder, because `make run` and `make test` may be started together.

    What this starts inherits the lock, so the next one waits also for what a killed one has started.
    """
    folder = os.open(ROOT, os.O_RDONLY)
    try:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _say("Waiting for another make that is working on the environment")
            fcntl.flock(folder, fcntl.LOCK_EX)
        os.set_inheritable(folder, True)
        yield
    finally:
        os.close(folder)


def _usable() -> bool:
    """Returns whether there is an environment that was finished, for this Python and this folder, and still works."""
    if UNFINISHED.exists():
        return False
    try:
        pairs = (line.partition(" = ") for line in (VENV / "pyvenv.cfg").read_text().splitlines())
    except FileNotFoundError:
        return False
    made = {name: value for name, _, value in pairs}
    here = made.get("version", "").split(".")[:2] == [str(part) for part in sys.version_info[:2]]
    return (
        here
        and made.get("command", "").endswith(f" {VENV}")
        and _runs([str(PYTHON), "-m", "pip", "--version"])
    )


def _make() -> None:
    if importlib.util.find_spec("ensurepip") is None:
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        raise Unready(
            f"{sys.executable} cannot make environments: the module ensurepip is missing.\n"
            f"On Debian and Ubuntu it is in a package of its own: apt-get install python{version}-venv"
        )
    _say("Making the environment in .venv (the first time, about a minute)")
    if VENV.exists():
        shutil.rmtree(VENV)
    VENV.mkdir()
    UNFINISHED.touch()
    with _start([sys.executable, "-m", "venv", str(VENV)]) as making:
        words = making.communicate()[0]
    if making.returncode != 0:
        raise Unready(f"The environment could not be made:\n{words}")


def _install(lock: Path) -> None:
    """Runs uv, where the lock names it, and pip where uv cannot; their own words go to a log."""
    _say(f"Installing from {lock.name}")
    started = time.monotonic()
    with LOG.open("w") as log:
        if not _installed_by_uv(lock, log):
            _install_by_pip(lock, log)
    _say(f"The environment is ready after {time.monotonic() - started:.0f} s")


def _installed_by_uv(lock: Path, log: TextIO) -> bool:
    """Returns whether uv has installed everything. It knows fewer settings than pip, so its failure is no end."""
    uv = re.search(r"^uv==.*(\n[ \t].*)*", written(lock), re.MULTILINE)
    if uv is None:
        return False
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as alone:
        alone.write(uv.group())
        alone.flush()
        if not _logged([*PIP, *SAFELY, alone.name], log, {}):
            return False
    # uv may end half way: then no lock is the one that is installed.
    STAMP.unlink(missing_ok=True)
    return _logged([*UV, *SAFELY, str(lock)], log, _settings_of_pip())


def _settings_of_pip() -> dict[str, str]:
    """Returns uv's variables for what pip is set to use here, a variable before a file."""
    with _start([str(PYTHON), "-m", "pip", "config", "list"]) as asked:
        listed = re.findall(r"^(.+)\.([\w-]+)='(.*)'$", asked.communicate()[0], re.MULTILINE)
    by_weight = sorted(listed, key=lambda found: found[0].startswith(":env:"))
    return {SETTINGS[name]: value for _, name, value in by_weight if name in SETTINGS}


def _logged(arguments: list[str], log: TextIO, environ: dict[str, str]) -> bool:
    with _start([str(PYTHON), *arguments], environ) as process:
        log.writelines(process.stdout or ())
    return process.returncode == 0


def _install_by_pip(lock: Path, log: TextIO) -> None:
    """Runs pip, with a line of progress every few seconds; Unready with the end of its log."""
    total = sum(line[:1].isalpha() for line in written(lock).splitlines())
    started = reported = time.monotonic()
    fetched, doing = 0, "fetching"
    with _start([str(PYTHON), *PIP, *SAFELY, str(lock)]) as pip:
        for line in pip.stdout or ():
            log.write(line)
            fetched += line.startswith("Collecting ")
            doing = "installing" if line.startswith("Installing collected") else doing
            if time.monotonic() - reported > REPORT_SECONDS:
                reported = time.monotonic()
                _say(f"  {reported - started:3.0f} s, {doing}: {fetched} of {total}")
    if pip.returncode != 0:
        if doing == "fetching":
            # pip has changed nothing, and uv installs over what it left.
            UNFINISHED.unlink()
        log.flush()
        words = "\n".join(f"  | {line}" for line in LOG.read_text().splitlines()[-15:])
        raise Unready(f"pip could not install {lock.name}. The end of {LOG}:\n{words}")


def _start(command: list[str], environ: Mapping[str, str] | None = None) -> "subprocess.Popen[str]":
    """A command that ends with this process."""
    parent = os.getpid()
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        # A person's own setting must not put packages beside the environment.
        env={**os.environ, "PIP_USER": "0", **(environ or {})},
        close_fds=False,
        preexec_fn=lambda: die_with(parent, signal.SIGKILL),  # noqa: PLW1509 - only two system calls
    )


def _runs(command: list[str]) -> bool:
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def written(lock: Path) -> str:
    """Returns the lines of a lock, after those of the locks that it includes."""
    own = lock.read_text()
    smaller = re.findall(r"^-r (.+)$", own, re.MULTILINE)
    return "".join([*(written(lock.with_name(name)) for name in smaller), own])


def _digest(wanted: str) -> str:
    return hashlib.sha256(written(LOCKS[wanted]).encode()).hexdigest()


def _say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    try:
        install(sys.argv[1])
    except Unready as error:
        sys.exit(f"\n{error}")
    except PermissionError:
        sys.exit(f"\n{VENV} is not yours to change. Work in a copy of your own.")
    except KeyboardInterrupt:
        sys.exit(130)
