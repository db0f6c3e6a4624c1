"""Clients that generators make of the published schema: they are complete, compile, and call the service."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
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
EXAMPLE = ROOT / "docs" / "examples" / "typescript"
# Pieces of the right program, and what must not compile in their place.
WRONG_IN_TYPESCRIPT = [
    ('[{ role: "user"', '[{ role: "robot"'),
    ("store: false", "store: true"),
    ("max_tokens: 30 } });\nif", "max_token: 30 } });\nif"),
    ("stream: false", "stream: true"),
    ('choice: Schemas["ChatRequest"]["tool_choice"] = ', 'choice: "always" = '),
    ("tool_choice: choice", 'tool_choice: "always"'),
    ('name: "weather" } };\nconst choice', "} };\nconst choice"),
    ("text: string = said?.content", "text: number = said?.content"),
    ("whole.error.dimension", "whole.error.dimensions"),
    ('=== "monthly_cap_exceeded"', '=== "rate_limited"'),
    ('!== "invalid_credentials"', '!== "wrong_password"'),
    ("error?.status", "error?.status === 418"),
    ('name: "typed", occurred_at', 'name: "typed", ocurred_at'),
    ("password: PASSWORD, ", ""),
    ('"/v1/apps/{slug}/manifest", { params: { path: { slug', '"/v1/apps/{slug}/manifest", { params: { path: { name'),
    ('api.POST("/v1/telemetry"', 'api.PUT("/v1/telemetry"'),
]  # fmt: skip
WRONG_IN_PYTHON = [
    ("MessageRole.USER", "MessageRole.ROBOT"),
    ("role=MessageRole.USER, ", ""),
    ("LlmCompleteBody(messages=[])", "LlmCompleteBody(messages=[], verbose=True)"),
    ("body=LoginRequest(email=EMAIL, password=os", "body=LoginRequest(password=os"),
    ("refused.status == 401", "refused.status == 418"),
    ("wrong.error.message", "wrong.error.massage"),
    ("text = whole.choices[0].message.content", "text: int = whole.choices[0].message.content"),
]


def run(*command: str | Path, cwd: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        cwd=cwd,
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )


def spoilt(right: str, pieces: Sequence[tuple[str, str]]) -> list[str]:
    """The right program with one piece wrong, once for each piece."""
    assert all(right.count(piece) == 1 for piece, _ in pieces)
    return [right.replace(piece, wrong) for piece, wrong in pieces]


@pytest.fixture(scope="module")
def typescript(service: Service, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as the example's, with the types of this service."""
    folder = tmp_path_factory.mktemp("typescript")
    shutil.copytree(EXAMPLE, folder, dirs_exist_ok=True)
    shutil.copy(WIRE / "typed.ts", folder)
    (folder / "node_modules").symlink_to(WIRE / "node_modules")
    made = run(
        PROGRAMS / "openapi-typescript", f"{service.url}/v1/schema", "-o", "schema.d.ts", cwd=folder
    )
    assert made.returncode == 0, made.stderr
    assert "⚠" not in made.stdout + made.stderr
    return folder


@pytest.fixture(scope="module")
def python(service: Service, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the package of this service."""
    folder = tmp_path_factory.mktemp("python")
    # Its formatter would be the only program that it needs beside itself.
    (folder / "config.yaml").write_text("post_hooks: []\n")
    shutil.copy(WIRE / "typed.py", folder)
    command = [Path(sys.executable).with_name("openapi-python-client"), "generate"]
    options = ["--config", "config.yaml", "--meta", "none", "--output-path", "shell_client"]
    (folder / "schema.json").write_text(Shell(service.url).get("/v1/schema").text)
    made = run(*command, "--path", "schema.json", *options, cwd=folder)
    assert made.returncode == 0, made.stdout + made.stderr
    assert "warning" not in (made.stdout + made.stderr).lower()
    return folder


def who(service: Service, person: Person) -> dict[str, str]:
    return {"BASE_URL": service.url, "EMAIL": person.email, "PASSWORD": PASSWORD}


def printed(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """The members that a program printed, on however many lines."""
    assert done.returncode == 0, done.stdout + done.stderr
    members: dict[str, Any] = {}
    for line in done.stdout.splitlines():
        members |= json.loads(line)
    return members


def test_types_for_typescript_leave_nothing_empty(typescript: Path) -> None:
    lines = (typescript / "schema.d.ts").read_text().splitlines()
    empty = [line for line in lines if "Record<string, never>" in line]
    assert [line for line in empty if not re.match(r"export type (webhooks|\$defs) =", line)] == []


def test_a_typescript_program_compiles_strictly_and_calls(
    typescript: Path, service: Service, person: Person
) -> None:
    compiled = run(PROGRAMS / "tsc", cwd=typescript)
    assert compiled.returncode == 0, compiled.stdout
    done = run("node", "build/typed.js", cwd=typescript, **who(service, person))
    members = printed(done)
    assert "Hello" in members.pop("text")
    assert members.pop("used") > 0
    assert "Hello" in members.pop("output")
    assert members == {
        "turned": "not_found",
        "kind": "assistant",
        "again": 200,
        "wrong": "/messages",
        "accepted": 1,
        "status": 403,
        "code": "not_entitled",
    }


def test_wrong_typescript_programs_do_not_compile(typescript: Path) -> None:
    programs = spoilt((WIRE / "typed.ts").read_text(), WRONG_IN_TYPESCRIPT)
    for number, text in enumerate(programs):
        (typescript / f"wrong{number}.ts").write_text(text)
    told = run(PROGRAMS / "tsc", "--noEmit", cwd=typescript).stdout
    for program in typescript.glob("wrong*.ts"):
        program.unlink()
    caught = set(re.findall(r"^(\w+)\.ts\(\d+,\d+\): error", told, re.MULTILINE))
    missed = {f"wrong{number}" for number in range(len(programs))} ^ caught
    assert missed == set(), told


def test_the_python_client_has_every_operation_and_every_problem(
    python: Path,
) -> None:
    document = json.loads((python / "schema.json").read_text())
    operations = {
        operation["operationId"]: operation["responses"]
        for methods in document["paths"].values()
        for operation in methods.values()
    }
    modules = {path.stem: path for path in (python / "shell_client" / "api").glob("*/[a-z]*.py")}
    assert modules.keys() == operations.keys()
    for name, responses in operations.items():
        text = modules[name].read_text()
        assert [each for each in responses if f"status_code == {each}:" not in text] == [], name


def test_a_python_program_is_typed_strictly_and_calls(
    python: Path, service: Service, person: Person
) -> None:
    wrong = spoilt((WIRE / "typed.py").read_text(), WRONG_IN_PYTHON)
    for number, text in enumerate(wrong):
        (python / f"wrong{number}.py").write_text(text)
    # The generator casts a list of anything to what it is.
    strict = ["--strict", "--no-warn-redundant-casts", "--config-file", os.devnull]
    programs = ["typed.py", *(f"wrong{number}.py" for number in range(len(wrong)))]
    told = run(sys.executable, "-m", "mypy", *strict, "shell_client", *programs, cwd=python).stdout
    caught = set(re.findall(r"^([\w/]+\.py):\d+: error", told, re.MULTILINE))
    assert caught == set(programs[1:]), told

    done = run(sys.executable, "typed.py", cwd=python, **who(service, person))
    members = printed(done)
    assert "Hello" in members.pop("text")
    assert members.pop("used") > 0
    assert members.pop("message")
    assert members == {
        "licence": "active",
        "refused": "invalid_credentials",
        "wrong": ["/messages"],
        "done": True,
        "seen": "not_entitled",
    }
