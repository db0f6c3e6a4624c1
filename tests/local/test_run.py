"""`make run` as a whole, on a folder of its own: started, refused twice, killed, taken over, stopped."""

import http.client
import json
import os
import re
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import redis

from tests.local.test_environment import manage
from tests.tools import environment
from tests.tools.folders import ROOT, is_held
from tests.tools.minisign import key_pair
from tests.tools.ports import same_or_free
from tests.tools.variables import outside
from tests.waiting import eventually

# The start of it all takes longer than most parts of the plain run.
pytestmark = pytest.mark.full

SECONDS = 280.0
# The folder as version 704cb02 left it, apart from its database: variables, demo, lock, and a link to sockets.
BEFORE = {
    "HOST": "127.0.0.1",
    "PORT": "8000",
    "BASE_URL": "http://127.0.0.1:8000",
    "ALLOWED_HOSTS": "127.0.0.1,localhost,[::1]",
    "DATABASE_URL": "postgresql://shell@%2Ftmp%2Fshell-gone/shell",
    "CACHE_URL": "unix:///tmp/shell-gone/redis.sock?db=0",
    "LLM_BASE_URL": "http://127.0.0.1:38571/v1",
    "CDN_URL": "http://127.0.0.1:38572",
    "CDN_PURGE": "purge",
    "LLM_PROVIDER": "openai",
    "LLM_DEFAULT_MODEL": "stand-in-small",
    "STORAGE_URL": "file:///gone/.local/storage",
    "EMAIL_URL": "file:///gone/.local/mail",
    "DEFAULT_FROM_EMAIL": "Shell <shell@example.test>",
    "OPERATOR_EMAILS": "operator@example.test",
    "SECRET_KEY": "k3y-of_before" * 5,
    "ENCRYPTION_KEYS": "Zm9yIHRlc3RzIG9ubHksIG9mIDMyIGJ5dGVzIGxlbmc=",
    "LLM_API_KEY": "key-of-before",
    "PUBLISH_SECRETS": "publish-secret-of-before-with-32-characters",
}
HALT = """
from django.utils import timezone
from accounts.audit import Actor
from releases.channel_control import halt
halt(channel="stable", reason="It crashes.", by=Actor(name="test"), now=timezone.now())
"""
PASSWORD = "a password of before"
SECRETS = ("SECRET_KEY", "ENCRYPTION_KEYS", "LLM_API_KEY", "PUBLISH_SECRETS", "UPDATE_PUBLIC_KEY")


class Run:
    """One `make run`, and what it has printed so far."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder = folder
        self._printed = folder.with_suffix(f".{port}.{len(list(folder.parent.iterdir()))}.txt")
        with self._printed.open("wb") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.tools", "run", "--folder", str(folder)],
                cwd=ROOT,
                env={**outside(os.environ), "PORT": str(port)},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                process_group=0,
            )

    @property
    def printed(self) -> str:
        return self._printed.read_text()

    def wait_for(self, words: str) -> None:
        eventually(
            lambda: words in self.printed or self.process.poll() is not None, seconds=SECONDS
        )
        assert words in self.printed, self.printed

    def ended(self) -> int:
        return self.process.wait(SECONDS)


@pytest.fixture(scope="module")
def port() -> int:
    return same_or_free(0)


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory, port: int) -> Iterator[Run]:
    folder = tmp_path_factory.mktemp("a run") / "local"
    folder.mkdir()
    lines = ["# Written by `make run`; what is set in the process environment goes before it."]
    lines += [f"{name}={value}" for name, value in BEFORE.items()]
    (folder / "env").write_text("\n".join(lines) + "\n")
    key_pair(folder, "update")
    key_pair(folder, "apps")
    (folder / "demo.json").write_text(
        json.dumps(
            {
                "base_url": "http://127.0.0.1:8000",
                "email": "ada@demo.test",
                "password": PASSWORD,
                "operator_email": "operator@demo.test",
                "operator_password": PASSWORD,
                "publish_secret": BEFORE["PUBLISH_SECRETS"],
            }
        )
    )
    (folder / "lock").write_text("4194304 stopping")
    (folder / "sockets").symlink_to("/tmp/shell-gone")
    run = Run(folder, port)
    try:
        run.wait_for("Ctrl-C stops it.")
        yield run
    finally:
        run.process.kill()
        run.process.wait()


def call(
    base: str, method: str, path: str, body: Any = None, *, bearer: str = ""
) -> tuple[int, Any]:
    with closing(http.client.HTTPConnection(urlsplit(base).netloc, timeout=30)) as connection:
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {bearer}"}
        connection.request(method, path, json.dumps(body), headers)
        response = connection.getresponse()
        return response.status, json.loads(response.read())


def is_well(base: str) -> bool:
    """Returns whether the service answers, and its database answered it in time."""
    return call(base, "GET", "/healthz")[0] == 200


def manage_beside(run: Run, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """manage.py in a folder that has the ``.local`` of a run."""
    local = folder / ".local"
    if not local.exists():
        local.symlink_to(run.folder)
    return manage(folder, *arguments)


def demo(run: Run) -> dict[str, str]:
    loaded: dict[str, str] = json.loads((run.folder / "demo.json").read_text())
    return loaded


def test_a_run_works_in_a_folder_of_an_earlier_version(first: Run) -> None:
    person, now = demo(first), environment.read(first.folder / "env")
    assert {name: now[name] for name in SECRETS[:4]} == {name: BEFORE[name] for name in SECRETS[:4]}
    eventually(lambda: is_well(person["base_url"]))
    login = {"email": person["email"], "password": PASSWORD}
    status, tokens = call(person["base_url"], "POST", "/v1/auth/login", login)
    assert (status, sorted(tokens)) == (200, ["access", "expires_in", "refresh"])


def test_a_shell_is_offered_the_app_of_the_demo(first: Run) -> None:
    person = demo(first)
    login = {"email": person["email"], "password": PASSWORD}
    _, tokens = call(person["base_url"], "POST", "/v1/auth/login", login)
    status, offer = call(
        person["base_url"], "GET", "/v1/apps/notes/manifest", bearer=tokens["access"]
    )
    assert (status, offer["version"]) == (200, "1.0.0")
    bundle = urlsplit(offer["url"])
    with closing(http.client.HTTPConnection(bundle.netloc, timeout=30)) as connection:
        connection.request("GET", bundle.path)
        assert sha256(connection.getresponse().read()).hexdigest() == offer["sha256"]


def test_the_blocks_of_the_readme_can_be_pasted(first: Run, tmp_path: Path) -> None:
    _, _, text = (ROOT / "README.md").read_text().partition("\n## A session\n")
    blocks = re.findall(
        r"^```bash\n(.*?)^```$", text.partition("\n## ")[0], re.DOTALL | re.MULTILINE
    )
    assert len(blocks) >= 2
    assert not any(line.startswith("$") for block in blocks for line in block.splitlines())
    (tmp_path / ".local").symlink_to(first.folder)
    (tmp_path / ".venv").symlink_to(sys.prefix)
    script = "\necho\n".join(blocks)
    for before, after in (
        ("http://127.0.0.1:8000", demo(first)["base_url"]),
        ("release 1.0.0", "release 1.0.0 --folder .local"),
    ):
        assert before in script
        script = script.replace(before, after)
    done = subprocess.run(
        ["bash", "-e", "-o", "pipefail", "-c", script],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for words in (
        '"status":"active"',
        '"chat.completion"',
        "data: [DONE]",
        '"calls":2',
        '"purged":true',
    ):
        assert words in done.stdout.replace('": ', '":'), done.stdout


def test_the_blocks_of_the_page_for_incidents_can_be_pasted(first: Run, tmp_path: Path) -> None:
    page = (ROOT / "docs" / "incidents.md").read_text()
    blocks = re.findall(r"^```sh\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    assert len(blocks) == page.count("\n```sh\n") == page.count("\n## ")
    halted = manage_beside(first, tmp_path, "shell", "--command", HALT)
    assert halted.returncode == 0, halted.stderr
    (tmp_path / ".venv").symlink_to(sys.prefix)
    for block in blocks:
        done = subprocess.run(
            ["bash", "-e", "-o", "pipefail", "-c", block],
            cwd=tmp_path,
            env={**outside(os.environ), "PYTHONPATH": str(ROOT), "BASE": demo(first)["base_url"]},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{block}\n{done.stdout}\n{done.stderr}"
        if comment := re.search(r"  # (.+)$", block, re.MULTILINE):
            assert done.stdout.strip() == comment[1]


def test_the_schema_is_changed_and_rows_are_added_beside_it(first: Run, tmp_path: Path) -> None:
    *_, before, _ = sorted(path.stem for path in (ROOT / "telemetry/migrations").glob("0*.py"))
    for command in (("migrate", "telemetry", before), ("migrate",), ("split_database_roles",)):
        done = manage_beside(first, tmp_path, *command)
        assert done.returncode == 0, done.stderr
    size = ("--rows", "100", "--people", "3", "--clients", "2", "--folder", str(first.folder))
    done = subprocess.run(
        [sys.executable, "-m", "tests.tools.grow", *size],
        cwd=ROOT,
        env=outside(os.environ),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.splitlines()[-1:][0].startswith("grow: "), done.stderr


def test_its_files_are_closed_to_others(first: Run) -> None:
    assert stat.S_IMODE(first.folder.stat().st_mode) == 0o700
    for name in ("env", "demo.json", "update.key", "apps.key"):
        assert stat.S_IMODE((first.folder / name).stat().st_mode) == 0o600


def test_a_second_start_in_the_same_folder_is_refused(first: Run, port: int) -> None:
    second = Run(first.folder, port)
    assert second.ended() == 1
    base = demo(first)["base_url"]
    assert f"running already at {base} (process {first.process.pid})" in second.printed
    eventually(lambda: is_well(base))


def test_a_copy_on_the_same_port_is_refused_before_anything_starts(
    first: Run, port: int, tmp_path: Path
) -> None:
    copy = Run(tmp_path / "copy", port)
    assert copy.ended() == 1
    assert f"Port {port} is taken" in copy.printed
    assert "make run" in copy.printed
    assert not (tmp_path / "copy" / "postgres").exists()


def test_the_run_goes_on_without_its_cache_and_starts_it_again(first: Run) -> None:
    base = demo(first)["base_url"]
    url = environment.read(first.folder / "env")["CACHE_URL"]
    with redis.Redis.from_url(url) as cache:
        os.kill(cache.info("server")["process_id"], signal.SIGKILL)
    first.wait_for("Redis is started again")
    eventually(lambda: call(base, "GET", "/healthz")[1]["checks"]["cache"] == "ok", seconds=SECONDS)
    eventually(lambda: is_well(base))
    assert first.process.poll() is None


def test_a_killed_run_is_taken_over_with_its_data_and_secrets_and_ctrl_c_ends_it(
    first: Run, port: int
) -> None:
    env, person = environment.read(first.folder / "env"), demo(first)
    first.process.kill()
    first.process.wait()
    second = Run(first.folder, port)
    second.wait_for("Ctrl-C stops it.")
    now = environment.read(first.folder / "env")
    assert {name: now[name] for name in SECRETS} == {name: env[name] for name in SECRETS}
    assert demo(second) == person
    login = {"email": person["email"], "password": person["password"]}
    assert call(person["base_url"], "POST", "/v1/auth/login", login)[0] == 200
    os.killpg(second.process.pid, signal.SIGINT)
    assert second.ended() == 0
    assert not is_held(first.folder)
    assert not (first.folder / "postgres" / "postmaster.pid").exists()
    with socket.create_server(("127.0.0.1", port)):
        pass


def test_a_termination_while_it_starts_leaves_nothing(first: Run, port: int) -> None:
    third = Run(first.folder, port)
    third.wait_for("PostgreSQL answers")
    third.process.terminate()
    assert third.ended() == 128 + signal.SIGTERM
    assert "Everything is stopped" in third.printed
    assert not is_held(first.folder)
