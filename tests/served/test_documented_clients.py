"""The code of docs/clients.md, run as it stands there: each client goes on after its token was renewed."""

import re
import subprocess
from typing import Any

import pytest

from tests.served.people import Person
from tests.served.service import Service
from tests.served.shell import PATIENCE
from tests.tools.folders import ROOT

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
