"""The published schema against the running service: no 500, and no answer that it does not describe."""

import subprocess
import sys
from pathlib import Path

from config.local.folders import ROOT
from tests.served.service import Service
from tests.served.shell import Shell

CONFIG = Path(__file__).with_name("schemathesis.toml")


def test_the_service_answers_as_its_schema_says(
    service: Service, shell: Shell, tmp_path: Path
) -> None:
    tool = Path(sys.executable).with_name("schemathesis")
    done = subprocess.run(
        [tool, "--config-file", CONFIG, "run", f"{service.url}/v1/schema", "--url", service.url],
        cwd=tmp_path,
        env={**service.environ, "PYTHONPATH": str(ROOT), "ACCESS_TOKEN": shell.access},
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert service.errors() == []
