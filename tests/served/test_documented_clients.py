"""The code of docs/examples/sdk, run as it stands there: each client goes on after its token was renewed."""

import os
import runpy
import subprocess
from typing import Any

import pytest

from tests.served.people import Person
from tests.served.service import Service
from tests.served.shell import PATIENCE
from tests.tools.folders import ROOT

SDK = ROOT / "docs" / "examples" / "sdk"
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


def test_the_session_of_python_renews_its_token_under_openais_and_anthropics_sdk(
    service: Service, person: Person
) -> None:
    documented = runpy.run_path(str(SDK / "session.py"))
    session = documented["Session"](service.url, person.email, person.password)
    client, anthropic = documented["clients"](session)
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
    given = {"BASE_URL": service.url, "EMAIL": person.email, "PASSWORD": person.password}
    done = subprocess.run(
        ["node", "--input-type=module", "-"],
        input=(SDK / "session.mjs").read_text() + EACH,
        env={**os.environ, **given},
        # The packages are installed here.
        cwd=ROOT / "tests" / "wire",
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE,
        check=False,
    )
    assert (done.stdout, done.returncode) == ("well\n", 0), done.stderr
