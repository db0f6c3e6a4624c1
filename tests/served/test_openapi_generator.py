"""Clients that openapi-generator makes of the published schema: they are whole, and call the service."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.served.people import PASSWORD, Person
from tests.served.service import Service
from tests.served.shell import Shell
from tests.tools.folders import ROOT

pytestmark = [pytest.mark.wire, pytest.mark.timeout(300)]

WIRE = ROOT / "tests" / "wire"
PROGRAMS = WIRE / "node_modules" / ".bin"
GENERATOR = Path(sys.executable).with_name("openapi-generator-cli")
# As a project has them that uses the client; `strict` is what theirs is mostly.
TSC = ["--strict", "--noEmitOnError", "--target", "es2022", "--module", "commonjs"]
TSC += ["--lib", "es2022,dom", "--types", "node", "--skipLibCheck", "--outDir", "build"]


def run(*command: str | Path, cwd: Path, **environ: str) -> str:
    done = subprocess.run(
        command,
        cwd=cwd,
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def generate(service: Service, folder: Path, generator: str, *options: str) -> Path:
    """Writes a client into ``folder/client``; no part of the schema is past what the generator knows."""
    (folder / "schema.json").write_text(Shell(service.url).get("/v1/schema").text)
    command = [GENERATOR, "generate", "-i", "schema.json", "-g", generator, "-o", "client"]
    told = run(*command, *options, cwd=folder)
    assert "ERROR" not in told
    return folder


def told_by(text: str) -> dict[str, Any]:
    members: dict[str, Any] = json.loads(text)
    assert "Hello" in members.pop("text")
    return members


def test_the_python_client_imports_and_calls(
    service: Service, person: Person, tmp_path: Path
) -> None:
    folder = generate(service, tmp_path, "python", "--package-name", "shell_client")
    shutil.copy(WIRE / "generated.py", folder / "client")
    who = {"BASE_URL": service.url, "EMAIL": person.email, "PASSWORD": PASSWORD}
    members = told_by(run(sys.executable, "generated.py", cwd=folder / "client", **who))
    assert members.pop("modules") > 300
    assert members == {
        "licence": "active",
        "refused": "invalid_credentials",
        "seen": "not_entitled",
    }


def test_the_typescript_client_compiles_strictly_and_calls(
    service: Service, person: Person, tmp_path: Path
) -> None:
    folder = generate(service, tmp_path, "typescript-fetch")
    shutil.copy(WIRE / "generated.ts", folder)
    (folder / "node_modules").symlink_to(WIRE / "node_modules")
    run(PROGRAMS / "tsc", *TSC, "generated.ts", cwd=folder)
    who = {"BASE_URL": service.url, "EMAIL": person.email, "PASSWORD": PASSWORD}
    assert told_by(run("node", "build/generated.js", cwd=folder, **who)) == {
        "licence": "active",
        "refused": "invalid_credentials",
        "seen": "not_entitled",
    }
