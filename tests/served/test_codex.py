"""Codex, OpenAI's command line, set up by docs/examples/sdk/codex.toml, with a personal key."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from llmproxy.models import LanguageModel
from tests.served.database import Database
from tests.served.ledger import assert_nothing_is_reserved, records_of
from tests.served.people import Person
from tests.served.service import Service
from tests.served.shell import PATIENCE, Shell
from tests.served.test_documented_clients import SDK
from tests.standins.provider_process import Provider
from tests.standins.raw_server import Peer
from tests.standins.raw_server import Provider as Proxy
from tests.tools.folders import ROOT

pytestmark = pytest.mark.wire

CODEX = ROOT / "tests" / "wire" / "node_modules" / ".bin" / "codex"
# Its own sandbox needs rights that not every host gives; the command is this test's.
TASK = ("exec", "--json", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox")
COMMAND = "echo forty-$((1 + 1)) | tee answer"


@pytest.fixture
def outside() -> Iterator[Proxy]:
    """The rest of the network."""
    proxy = Proxy(Peer.close, None)
    yield proxy
    proxy.stop()


def ran(
    prompt: str,
    *,
    shell: Shell,
    key: str,
    folder: Path,
    outside: Proxy,
    model: str = "stand-in-small",
) -> list[Any]:
    """The events of a task, done in an empty folder."""
    settings = (SDK / "codex.toml").read_text().replace("…", model)
    settings = settings.replace("https://shell.example.com", shell.base_url)
    (folder / "work").mkdir()
    (folder / "config.toml").write_text(settings)
    proxy = f"http://127.0.0.1:{outside.port}"
    done = subprocess.run(
        [CODEX, *TASK, prompt],
        cwd=folder / "work",
        env={
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "CODEX_HOME": str(folder),
            "SHELL_KEY": key,
            "HTTP_PROXY": proxy,
            "HTTPS_PROXY": proxy,
            "NO_PROXY": "127.0.0.1",
        },
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def refused(service: Service, person: Person) -> list[Any]:
    text = service.child.program.log.read_text()
    # The last line may be half written.
    lines = [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]
    mine = [line for line in lines if line.get("user") == str(person.id)]
    assert mine
    return [line for line in mine if line["status"] >= 400]


def test_codex_runs_a_command_and_ends_with_the_models_answer(
    service: Service,
    shell: Shell,
    database: Database,
    person: Person,
    provider: Provider,
    outside: Proxy,
    tmp_path: Path,
) -> None:
    key = shell.post("/v1/keys", {"name": "Codex"}).json()
    # The stand-in has the first tool called with the prompt for each text, and then says what came of it.
    events = ran(COMMAND, shell=shell, key=key["key"], folder=tmp_path, outside=outside)
    assert (tmp_path / "work" / "answer").read_text() == "forty-2\n"
    items = [each["item"] for each in events if each["type"] == "item.completed"]
    # It has no metadata of its own for this model, and says so.
    warning, command, final = items
    assert warning["message"].startswith("Model metadata for `stand-in-small` not found.")
    assert (command["aggregated_output"], command["exit_code"]) == ("forty-2\n", 0)
    assert final["type"] == "agent_message"
    assert final["text"].startswith("The tool answered: “")
    assert "forty-2”" in final["text"]

    # Two calls, and nothing else was asked for that was refused.
    assert refused(service, person) == []
    assert provider.stats()["requests"] == 2
    records = records_of(database, person)
    assert [(str(each.key_id), each.end, each.source) for each in records] == [
        (key["id"], "done", "provider")
    ] * 2
    used = events[-1]["usage"]
    assert used["input_tokens"] == sum(each.input_tokens for each in records)
    assert used["output_tokens"] == sum(each.output_tokens for each in records)
    assert_nothing_is_reserved(database, person)
    assert outside.connections == 0


@pytest.mark.parametrize("name", ["gpt-5.4", "gpt-5.5", "gpt-5.6-sol", "gpt-6.2-sol"])
def test_codex_sends_the_same_requests_as_to_openais_own_models(
    service: Service,
    shell: Shell,
    database: Database,
    person: Person,
    provider: Provider,
    outside: Proxy,
    tmp_path: Path,
    name: str,
) -> None:
    """It writes other tools and items for the names that it knows (openai/codex)."""
    with database.rows():
        model, is_new = LanguageModel.objects.get_or_create(
            name=name, provider_name="stand-in-small"
        )
    key = shell.post("/v1/keys", {"name": "Codex"}).json()["key"]
    events = ran("Say hello.", shell=shell, key=key, folder=tmp_path, outside=outside, model=name)
    assert "turn.completed" in [each["type"] for each in events]
    assert refused(service, person) == []
    assert {each.model for each in records_of(database, person)} == {name}
    assert_nothing_is_reserved(database, person)
    if is_new:
        # Others list the models.
        with database.rows():
            model.delete()
