"""Records what a release leaves behind: ``python -m tests.tools with -- python -m tests.drills.recording 213cb5a1``.

``tests/served/upgrade/<release>.txt`` is run by the code of that release. It writes ``<release>.sql.gz``, a dump of
its database, and ``<release>.json``, the secrets of the service and what people and browsers have of it.
"""

import gzip
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path

from tests.drills.history import code_of
from tests.served.database import new_database
from tests.tools.folders import ROOT
from tests.tools.owners import as_superuser
from tests.tools.postgres import pg_dump

FOLDER = ROOT / "tests" / "served" / "upgrade"
KEPT = ("SECRET_KEY", "ENCRYPTION_KEYS", "PUBLISH_SECRETS", "UPDATE_PUBLIC_KEY", "APPS_PUBLIC_KEY")
CREDENTIALS = ("email", "password", "operator_email", "operator_password")
DUMPED = ("--no-owner", "--no-privileges", "--inserts", "--rows-per-insert=100")


def main(release: str) -> None:
    with tempfile.TemporaryDirectory() as name, new_database(nullcontext) as database:
        folder = Path(name)
        code, url = code_of(release, folder / "code"), as_superuser(database.url)
        environ = {
            **os.environ,
            "DATABASE_URL": url,
            "DATABASE_OWNER_URL": url,
            "BASE_URL": "http://127.0.0.1:8777",
            "ALLOWED_HOSTS": "127.0.0.1",
            "CDN_URL": "http://127.0.0.1:8778",
            "EMAIL_URL": (folder / "mail").as_uri(),
            "DEMO": str(folder / "demo.json"),
        }
        (folder / "mail").mkdir()
        run(code, environ, "migrate", "--no-input")
        run(code, environ, "seed_demo", "--output", environ["DEMO"])
        left = run(code, environ, "shell", "-c", (FOLDER / f"{release}.txt").read_text())
        demo = json.loads((folder / "demo.json").read_text())
        whole = {
            "recorded_at": datetime.now(UTC).isoformat(),
            "environ": {name: environ[name] for name in (*KEPT, "CDN_URL")},
            "demo": {name: demo[name] for name in CREDENTIALS},
            **json.loads(left.splitlines()[-1]),
        }
        dump = subprocess.run([pg_dump(), *DUMPED, url], capture_output=True, check=True)
    # Its newer versions write commands of psql's own around the statements.
    lines = dump.stdout.splitlines(keepends=True)
    plain = b"".join(
        line for line in lines if not line.startswith((b"\\restrict", b"\\unrestrict"))
    )
    (FOLDER / f"{release}.json").write_text(json.dumps(whole, indent=1) + "\n")
    (FOLDER / f"{release}.sql.gz").write_bytes(gzip.compress(plain, mtime=0))


def run(code: Path, environ: Mapping[str, str], *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "manage.py", *arguments],
        cwd=code,
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


if __name__ == "__main__":
    main(sys.argv[1])
