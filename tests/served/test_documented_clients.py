"""The code of docs/clients.md, run as it stands there: each client goes on after its token was renewed."""

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.served.database import Database
from tests.served.ledger import records_of
from tests.served.people import Person
from tests.served.service import Service
from tests.served.shell import PATIENCE, Shell
from tests.tools.folders import ROOT

CODEX = ROOT / "tests" / "wire" / "node_modules" / ".bin" / "codex"
PAGE = (ROOT / "docs" / "clients.md").read_text()
# Its package is not among the locked ones.
ELSEWHERE = "from langchain_openai "
MESSAGES: Any = [{"role": "user", "content": "What is a haiku?"}]
EACH = """
import { generateText } from "ai";

const model = "stand-in-small";
const prompt = "What is a haiku?";
const messages = [{ role: "user", content: prompt }];
const tokens = new Set();
for (let turn = 0; turn < 2; turn += 1) {
  const [first, second] = await Promise.all([session.token(), session.token()]);
  if (first !== second) throw new Error("renewed twice");
  tokens.add(first);
  session.renewAt = 0;
  const answers = [
    (await openai.chat.completions.create({ model, messages })).choices[0].message.content,
    (await chain.invoke(prompt)).text,
    (await generateText({ model: compatible(model), prompt })).text,
    JSON.stringify(await anthropic.get("/models")),
  ];
  const wrong = answers.filter((text) => !/haiku|stand-in-small/.test(text));
  if (wrong.length) throw new Error(wrong.join());
}
if (tokens.size !== 2) throw new Error("never renewed");
console.log("well");
"""


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)


def test_the_session_of_python_renews_its_token_under_openais_and_anthropics_sdk(
    service: Service, person: Person
) -> None:
    kept = [block for block in blocks("python") if not block.startswith(ELSEWHERE)]
    assert len(kept) == len(blocks("python")) - 1 == 3
    names: dict[str, Any] = {
        "base_url": service.url,
        "email": person.email,
        "password": person.password,
    }
    exec("\n".join(kept), names)
    session, client, anthropic = names["session"], names["client"], names["anthropic"]
    tokens = set()
    for _ in range(2):
        tokens.add(session.token())
        session.renew_at = 0
        answer = client.chat.completions.create(model="stand-in-small", messages=MESSAGES)
        assert "haiku" in answer.choices[0].message.content
        session.renew_at = 0
        models: Any = anthropic.get("/models", cast_to=object)
        assert models["object"] == "list"
    assert len(tokens) == 2
    client.close()
    anthropic.close()


@pytest.mark.wire
def test_the_session_of_javascript_renews_its_token_under_every_sdk(
    service: Service, person: Person
) -> None:
    given = {"base": service.url, "email": person.email, "password": person.password}
    script = [f'const {name} = "{value}";' for name, value in given.items()]
    done = subprocess.run(
        ["node", "--input-type=module", "-"],
        input="\n".join([*script, *blocks("js"), EACH]),
        # Where the packages are.
        cwd=ROOT / "tests" / "wire",
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE,
        check=False,
    )
    assert (done.stdout, done.returncode) == ("well\n", 0), done.stderr


@pytest.mark.wire
def test_codex_works_by_its_configuration_and_a_personal_key(
    shell: Shell, database: Database, person: Person, tmp_path: Path
) -> None:
    (given,) = blocks("toml")
    config = given.replace("…", "stand-in-small").replace(
        "https://shell.example.com", shell.base_url
    )
    (tmp_path / "config.toml").write_text(config)
    key = shell.post("/v1/keys", {"name": "Codex"}).json()
    quiet = ["-c", "analytics.enabled=false", "-c", "check_for_update_on_startup=false"]
    alone = [
        "--json",
        "--ephemeral",
        "--skip-git-repo-check",
        "--sandbox=read-only",
        "-C",
        tmp_path,
    ]
    done = subprocess.run(
        [CODEX, "exec", *quiet, *alone, "Good morning"],
        env={
            "PATH": os.environ["PATH"],
            "HOME": str(tmp_path),
            "CODEX_HOME": str(tmp_path),
            "SHELL_KEY": key["key"],
        },
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE * 2,
        check=False,
    )
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert events[-1]["type"] == "turn.completed", done.stdout + done.stderr
    said = [each["item"]["text"] for each in events if each.get("item", {}).get("text")]
    # The stand-in calls one of Codex's own tools, and is given what came of it.
    assert "The tool answered" in said[-1]
    records = records_of(database, person)
    assert [(str(each.key_id), each.end, each.source) for each in records] == [
        (key["id"], "done", "provider")
    ] * 2
    told = events[-1]["usage"]
    assert told["input_tokens"] == sum(each.input_tokens for each in records)
    assert told["output_tokens"] == sum(each.output_tokens for each in records)
