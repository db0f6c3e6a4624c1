"""The journey of a shell, in the image as it is built: read-only, with limits, run by an ordinary user."""

import json
import os
import signal
from collections.abc import Iterator
from functools import partial
from urllib.parse import quote, unquote, urlsplit

import pytest

from tests.served.conftest import Ground
from tests.served.deployed.engine import Engine
from tests.served.service import HOST, UNLIMITED, Service
from tests.served.test_journey import (
    test_a_shell_signs_in_works_is_locked_out_and_works_again,
    test_a_suspension_ends_running_streams_too,
)
from tests.test_dockerfile import arguments, command_of, services
from tests.tools.children import Program
from tests.tools.ports import free
from tests.tools.run import healthy
from tests.tools.variables import NAMES

# Building takes minutes on a busy machine.
pytestmark = [pytest.mark.wire, pytest.mark.timeout(2400)]
# Its tests run here once more, against the service below.
__all__ = [
    "test_a_shell_signs_in_works_is_locked_out_and_works_again",
    "test_a_suspension_ends_running_streams_too",
]
SOCKET = ".s.PGSQL.5432"
DATABASE = "/run/database"


@pytest.fixture(scope="module")
def given(ground: Ground) -> dict[str, str]:
    """The variables of the service in its container."""
    port = free(HOST, 0)
    all_of_it = {**os.environ, **ground.environ}
    database = urlsplit(all_of_it["DATABASE_URL"])
    inside = f"{database.username}@{quote(DATABASE, safe='')}"
    del all_of_it["DATABASE_OWNER_URL"]
    return {
        **{name: all_of_it[name] for name in NAMES if name in all_of_it},
        "DATABASE_URL": database._replace(netloc=inside).geturl(),
        # Its socket is for this user alone.
        "CACHE_URL": "",
        "STORAGE_URL": "file:///srv/storage",
        "EMAIL_URL": "file:///tmp/mail",
        "HOST": HOST,
        "PORT": str(port),
        "BASE_URL": f"http://{HOST}:{port}",
        "ALLOWED_HOSTS": HOST,
        "WEB_WORKERS": "2",
        "RATE_LIMITS": UNLIMITED,
        "OPERATOR_SECOND_FACTOR": "off",
    }


@pytest.fixture(scope="module")
def container(ground: Ground, image: str, given: dict[str, str]) -> list[str]:
    """Runs a program in a container confined as the web service of compose.yaml is."""
    folder = unquote(urlsplit(ground.database.url).netloc.rpartition("@")[2])
    web = services()["web"]
    confined = [
        "--read-only",
        *(f"--cap-drop={each}" for each in web["cap_drop"]),
        *(f"--security-opt={each}" for each in web["security_opt"]),
        f"--tmpfs={web['tmpfs']}",
        f"--memory={web['mem_limit']}",
        f"--pids-limit={web['pids_limit']}",
        # Made with the image's owner, and gone with the container.
        "--volume=/srv/storage",
    ]
    variables = [f"--env={name}={value}" for name, value in given.items()]
    socket = f"--volume={folder}/{SOCKET}:{DATABASE}/{SOCKET}"
    # Its commands and the test call each other.
    return ["docker", "run", "--rm", "--network=host", socket, *confined, *variables, image]


@pytest.fixture(scope="module")
def service(
    ground: Ground, engine: Engine, container: list[str], given: dict[str, str]
) -> Iterator[Service]:
    program = Program(
        name="the image",
        command=[*container, *command_of(arguments("CMD"))],
        log=ground.folder / "image.log",
        environ=engine.environ,
    )
    child = program.start()
    try:
        child.wait_until(partial(healthy, HOST, int(given["PORT"])), seconds=120)
        yield Service(child, given)
        # Docker hands it on.
        os.kill(child.pid, signal.SIGTERM)
        child.wait_for_success()
    finally:
        child.stop()


def test_its_commands_run_as_an_ordinary_user_who_can_change_no_code(
    engine: Engine, container: list[str]
) -> None:
    script = (
        "import json, os, subprocess, sys\n"
        "writable = [each for each in ('/', '/srv/service', '/opt/venv', '/srv/storage', '/tmp') "
        "if os.access(each, os.W_OK)]\n"
        "command = [sys.executable, 'manage.py', 'check', '--database', 'default']\n"
        "print(json.dumps([os.getuid(), writable, subprocess.run(command).returncode]))"
    )
    said = engine.run(*container, "python", "-c", script)
    assert json.loads(said.splitlines()[-1]) == [10001, ["/srv/storage", "/tmp"], 0]
