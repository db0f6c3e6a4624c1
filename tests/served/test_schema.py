"""The published schema against the running service: no 500, and no answer that it does not describe."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.served.conftest import SignIn, unexpected
from tests.served.database import Database
from tests.served.people import add_person
from tests.served.service import Service
from tests.served.shell import Shell
from tests.tools.folders import ROOT

CONFIG = Path(__file__).with_name("schemathesis.toml")


# All operations, with one example each and none of the corners.
SHORT = ("--max-examples=1", "--phases=examples,fuzzing")


@pytest.mark.timeout(600)
@pytest.mark.parametrize("options", [SHORT, pytest.param((), marks=pytest.mark.full)])
def test_the_service_answers_as_its_schema_says(
    service: Service,
    database: Database,
    shell: Shell,
    sign_in: SignIn,
    tmp_path: Path,
    options: tuple[str, ...],
) -> None:
    tool = Path(sys.executable).with_name("schemathesis")
    tokens = {
        "ACCESS_TOKEN": shell.access,
        "OTHERS_ACCESS_TOKEN": sign_in(service, add_person(database)).access,
    }
    schema = f"{service.url}/v1/schema"
    done = subprocess.run(
        [tool, "--config-file", CONFIG, "run", schema, "--url", service.url, *options],
        cwd=tmp_path,
        env={**service.environ, "PYTHONPATH": str(ROOT), **tokens},
        capture_output=True,
        text=True,
        timeout=580,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert unexpected(service.errors()) == []
