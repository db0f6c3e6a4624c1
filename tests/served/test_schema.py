"""The published schema against the running service: no 500, and no answer that it does not describe."""

import os
import subprocess
import sys
from pathlib import Path

from config.local.folders import ROOT
from tests.served.service import Service
from tests.served.shell import Shell

CONFIG = Path(__file__).with_name("schemathesis.toml")


def test_the_service_answers_as_its_schema_says(service: Service, shell: Shell, tmp_path: Path) -> None:
    command = [
        *(str(Path(sys.executable).with_name("schemathesis")), "--config-file", str(CONFIG), "run"),
        *(f"{service.url}/v1/schema", "--url", service.url),
        *("--header", f"Authorization: Bearer {shell.access}"),
    ]
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    Path("/tmp/served-work/st.out").write_text(done.stdout + done.stderr)
    assert done.returncode == 0, done.stdout
