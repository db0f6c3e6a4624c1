"""The journey of a shell, in the image as it is built, run by an ordinary user.

Not tried: a read-only file system and limits of memory and processes, which need more than a chroot.
"""

import json
import os
import subprocess
from collections.abc import Iterator
from functools import partial
from urllib.parse import quote, unquote, urlsplit

import pytest

from tests.served.conftest import Ground
from tests.served.image import Image, built_image, stop
from tests.served.service import HOST, UNLIMITED, Service
from tests.served.test_journey import (
    test_a_shell_signs_in_works_is_locked_out_and_works_again,
    test_a_suspension_ends_running_streams_too,
)
from tests.test_dockerfile import arguments, command_of
from tests.tools.children import Program
from tests.tools.ports import free
from tests.tools.run import healthy
from tests.tools.variables import NAMES
from tests.tools.wire import PATH

# Building takes minutes on a busy machine.
pytestmark = [pytest.mark.wire, pytest.mark.timeout(1200)]
# Its tests run here once more, against the service below.
__all__ = [
    "test_a_shell_signs_in_works_is_locked_out_and_works_again",
    "test_a_suspension_ends_running_streams_too",
]
SOCKET = ".s.PGSQL.5432"
DATABASE = "/run/database"
STOPPED_WITHIN = 60.0


@pytest.fixture(scope="module")
def image() -> Iterator[Image]:
    if os.geteuid() != 0:
        pytest.skip("NOT CHECKED: the image. Only root makes its base and builds it here.")
    with built_image() as image:
        yield image


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
def mounts(ground: Ground) -> list[str]:
    folder = unquote(urlsplit(ground.database.url).netloc.rpartition("@")[2])
    return [f"{folder}/{SOCKET}:{DATABASE}/{SOCKET}"]


@pytest.fixture(scope="module")
def service(
    ground: Ground, image: Image, given: dict[str, str], mounts: list[str]
) -> Iterator[Service]:
    program = Program(
        name="the image",
        command=image.command(*command_of(arguments("CMD")), environ=given, mounts=mounts),
        log=ground.folder / "image.log",
        environ={**os.environ, "PATH": PATH},
    )
    child = program.start()
    try:
        child.wait_until(partial(healthy, HOST, int(given["PORT"])), seconds=120)
        yield Service(child, given)
        stop(child.pid)
        child.wait_for_success()
    finally:
        child.stop()


def test_its_commands_run_as_an_ordinary_user_who_can_change_no_code(
    image: Image, given: dict[str, str], mounts: list[str]
) -> None:
    script = (
        "import json, os, subprocess, sys\n"
        "writable = [each for each in ('/', '/srv/service', '/opt/venv', '/srv/storage') "
        "if os.access(each, os.W_OK)]\n"
        "command = [sys.executable, 'manage.py', 'check', '--database', 'default']\n"
        "print(json.dumps([os.getuid(), writable, subprocess.run(command).returncode]))"
    )
    command = image.command("python", "-c", script, environ=given, mounts=mounts)
    environ = {**os.environ, "PATH": PATH}
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == [10001, ["/srv/storage"], 0]
