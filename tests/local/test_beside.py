"""``python -m tests.tools with CMD``: servers for one command, and nothing once it is over."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.local.processes import alive
from tests.tools.folders import ROOT, is_held
from tests.tools.throwaway import PREFIX, YOUNG_SECONDS
from tests.waiting import eventually

WITH = [sys.executable, "-m", "tests.tools", "with", "--"]
# Says where its servers are and what it inherited, and ends with a number of its own.
QUESTION = """
import os, sys, psycopg, redis
from tests.tools.owners import as_superuser
with psycopg.connect(as_superuser(os.environ["DATABASE_URL"])) as connection:
    print(connection.execute("SHOW data_directory").fetchone()[0])
    print(connection.execute("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'").fetchone()[0])
print(os.environ["BASE_URL"], os.environ.get("SENTRY_DSN"))
if url := os.environ["CACHE_URL"]:
    redis.Redis.from_url(url).ping()
sys.exit(7)
"""
# Says the number of its database server, then waits.
WAIT = """
import os, time, psycopg
from tests.tools.owners import as_superuser
from pathlib import Path
with psycopg.connect(as_superuser(os.environ["DATABASE_URL"])) as connection:
    data = Path(connection.execute("SHOW data_directory").fetchone()[0])
print((data / "postmaster.pid").read_text().split()[0], data.parent, flush=True)
time.sleep(600)
"""


def beside(code: str, folder: Path) -> subprocess.Popen[str]:
    environ = {**os.environ, "TMPDIR": str(folder), "SENTRY_DSN": "https://key@127.0.0.1/1"}
    command = [*WITH, sys.executable, "-c", code]
    return subprocess.Popen(command, cwd=ROOT, env=environ, stdout=subprocess.PIPE, text=True)


def test_a_command_has_fresh_servers_and_gives_its_exit_code(tmp_path: Path) -> None:
    with beside(QUESTION, tmp_path) as run:
        said = run.communicate()[0].splitlines()
    assert run.returncode == 7
    assert Path(said[0]).is_relative_to(tmp_path)
    assert said[1:] == ["0", "https://shell.test None"]
    assert list(tmp_path.glob(f"{PREFIX}*")) == []


def test_a_termination_ends_the_command_then_the_servers(tmp_path: Path) -> None:
    with beside(WAIT, tmp_path) as run:
        assert run.stdout is not None
        server = int(run.stdout.readline().split()[0])
        run.terminate()
    assert run.returncode == 128 + signal.SIGTERM
    assert not alive(server)
    assert list(tmp_path.glob(f"{PREFIX}*")) == []


def test_nothing_outlives_a_kill_and_its_folder_goes_with_the_next_run(tmp_path: Path) -> None:
    with beside(WAIT, tmp_path) as run:
        assert run.stdout is not None
        pid, folder = run.stdout.readline().split()
        run.kill()
    # Its last process has ended when nobody holds the folder.
    eventually(lambda: not alive(int(pid)) and not is_held(Path(folder)))
    assert Path(folder).exists()
    long_ago = time.time() - YOUNG_SECONDS - 60
    os.utime(Path(folder) / "lock", (long_ago, long_ago))
    with beside("", tmp_path) as run:
        pass
    assert run.returncode == 0
    assert not Path(folder).exists()
