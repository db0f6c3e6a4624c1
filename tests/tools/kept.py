"""Files kept between test runs outside of the checkout: of this user, and safe to remove at any time."""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from tests.tools import Unready
from tests.tools.folders import ROOT
from tests.tools.postgres import MIGRATED, SPLIT, Postgres
from tests.tools.variables import outside

# 80 MB each; more than are in use at once.
KEPT = 6
# Files that determine the databases, beside the migrations of this project.
MAKERS = (
    "requirements.lock",
    "requirements-local.lock",
    "config/platform/db/roles.py",
    "config/management/commands/split_database_roles.py",
    "tests/tools/owners.py",
    "tests/tools/postgres.py",
)


def cache() -> Path:
    """The folder for it; another one where there is no home to write in."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(home) / "shell-backend"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        folder = Path(tempfile.gettempdir()) / f"shell-backend-{os.geteuid()}"
        folder.mkdir(mode=0o700, exist_ok=True)
    return folder


def lay_out(server: Postgres, environ: Mapping[str, str]) -> None:
    """Gives a server that has no data yet the databases to copy, made once for each state of the migrations."""
    kept = cache() / f"postgres-{_digest()}"
    if not kept.exists():
        print("Making the databases that tests copy", file=sys.stderr, flush=True)
        _make(kept, server, environ)
    os.utime(kept)
    shutil.copytree(kept, server.data)


def _digest() -> str:
    """Returns a digest of everything that the databases are made of."""
    digest = hashlib.sha256(b"%d" % os.geteuid())
    for pattern in ("*/migrations/*.py", *MAKERS):
        for path in sorted(ROOT.glob(pattern)):
            digest.update(path.relative_to(ROOT).as_posix().encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def _make(kept: Path, like: Postgres, environ: Mapping[str, str]) -> None:
    """Makes them aside, on the sockets of the server that is started afterwards, and renames the folder."""
    with tempfile.TemporaryDirectory(dir=kept.parent, prefix="making-") as aside:
        server = Postgres(folder=Path(aside), sockets=like.sockets, log=like.log, durable=False)
        owner = {**outside(os.environ), **environ, "CACHE_URL": ""}
        child = server.start()
        try:
            server.create(MIGRATED)
            _manage({**owner, "DATABASE_URL": server.url_of(MIGRATED)}, "migrate")
            server.create(SPLIT, like=MIGRATED)
            _manage(
                {
                    **owner,
                    "DATABASE_URL": server.service_url_of(SPLIT),
                    "DATABASE_OWNER_URL": server.url_of(SPLIT),
                },
                "split_database_roles",
            )
        finally:
            child.stop()
        try:
            server.data.rename(kept)
        except OSError:
            # Another run was faster.
            if not kept.exists():
                raise
    folders = sorted(kept.parent.glob("postgres-*"), key=lambda each: each.stat().st_mtime)
    for old in folders[:-KEPT]:
        shutil.rmtree(old, ignore_errors=True)


def _manage(environ: Mapping[str, str], command: str) -> None:
    done = subprocess.run(
        [sys.executable, "manage.py", command],
        cwd=ROOT,
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise Unready(f"manage.py {command} failed:\n{done.stderr}")
