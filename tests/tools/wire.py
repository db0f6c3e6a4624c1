"""Installs what is needed beyond Python packages: ``python -m tests.tools.wire [PROGRAM...]``.

Without a name, what `make test-wire` needs: programs from Debian, packages from npm. With names, those programs alone.
"""

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.tools import Unready
from tests.tools.folders import ROOT

# Program, and the Debian package that has it.
PROGRAMS = {
    "chromium": "chromium",
    "nginx": "nginx",
    "pgbouncer": "pgbouncer",
    "minisign": "minisign",
    "prometheus": "prometheus",
    "node": "nodejs",
    "npm": "npm",
    "curl": "curl",
    "dockerd": "docker.io",
    "docker-compose": "docker-compose",
    "debootstrap": "debootstrap",
    "redis-server": "redis-server",
    "WebKitWebDriver": "webkit2gtk-driver",
    "Xvfb": "xvfb",
    # Comes with a server of the release's own version.
    "pg_createcluster": "postgresql",
}
# A file of a package that has no program.
MODULE = Path("/usr/lib/nginx/modules/ngx_http_headers_more_filter_module.so")
FILES = {MODULE: "libnginx-mod-http-headers-more-filter"}
# Programs that `make bench` and `make faults` request by name.
MEASURING = {"wrk": "wrk", "faketime": "faketime"}
# Folders of servers, which an ordinary user's path leaves out.
PATH = os.pathsep.join(
    [os.environ.get("PATH", os.defpath), "/usr/local/sbin", "/usr/sbin", "/sbin"]
)
NODE = ROOT / "tests" / "wire"


def main(names: Sequence[str]) -> None:
    """Installs only what is missing."""
    known = PROGRAMS | MEASURING
    wanted = [known[name] for name in names or PROGRAMS if shutil.which(name, path=PATH) is None]
    if not names:
        wanted += [package for file, package in FILES.items() if not file.exists()]
    if wanted:
        install_from_debian(wanted)
    if not names and (NODE / "package-lock.json").exists():
        install_from_npm()


def install_from_debian(packages: Sequence[str]) -> None:
    """Unready where there is no Debian, or no right to install."""
    print(f"Installing from Debian: {' '.join(packages)}", flush=True)
    if shutil.which("apt-get") is None:
        raise Unready(f"Only Debian's packages are known; install yourself: {' '.join(packages)}")
    _apt("update", "-q")
    _apt("install", "-q", "-y", "--no-install-recommends", *packages)


def install_from_npm() -> None:
    """Exactly what the lock says, without running any package's scripts; again only when the lock changes."""
    digest = hashlib.sha256((NODE / "package-lock.json").read_bytes()).hexdigest()
    stamp = NODE / "node_modules" / ".installed"
    if stamp.exists() and stamp.read_text() == digest:
        return
    print("Installing from npm", flush=True)
    _run(["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"], cwd=str(NODE))
    stamp.parent.mkdir(exist_ok=True)
    stamp.write_text(digest)


def _apt(*arguments: str) -> None:
    command = ["apt-get", *arguments]
    if os.geteuid() != 0:
        if shutil.which("sudo") is None:
            raise Unready(
                f"Only root may install them and there is no sudo; as root: {' '.join(command)}"
            )
        asks = [] if sys.stdin.isatty() else ["--non-interactive"]
        command = ["sudo", *asks, "env", "DEBIAN_FRONTEND=noninteractive", *command]
    _run(command)


def _run(command: list[str], cwd: str | None = None) -> None:
    environ = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    done = subprocess.run(command, cwd=cwd, env=environ, check=False)
    if done.returncode != 0:
        raise Unready(f"{' '.join(command)} ended with {done.returncode}")


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except Unready as error:
        sys.exit(f"\n{error}")
