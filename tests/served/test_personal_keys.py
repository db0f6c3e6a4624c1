"""Personal keys over real HTTP: an editor's calls, and their end with the key."""

import json
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest
from openai import AuthenticationError, OpenAI
from procrastinate.contrib.django.models import ProcrastinateJob

from config.platform.periods import Period
from llmproxy.models import PersonalKey
from tests.served.database import Database
from tests.served.ledger import records_of, the_record
from tests.served.node import running_script
from tests.served.people import Person
from tests.served.shell import Shell, asked, stand_in

NEARLY_MIDNIGHT = timedelta(minutes=1)


@pytest.fixture
def made(shell: Shell) -> Callable[..., dict[str, str]]:
    def make(**members: object) -> dict[str, str]:
        response = shell.post("/v1/keys", {"name": "Editor", **members})
        assert response.status_code == 201, response.text
        found: dict[str, str] = response.json()
        return found

    return make


def editor_of(shell: Shell, key: dict[str, str]) -> Shell:
    """A program that holds the key alone."""
    editor = Shell(shell.base_url)
    editor.access = key["key"]
    return editor


def test_openais_sdk_works_with_a_key_and_the_ledger_names_it(
    shell: Shell, made: Callable[..., dict[str, str]], database: Database, person: Person
) -> None:
    key = made(monthly_output_tokens=500)
    client = OpenAI(base_url=f"{shell.base_url}/v1/llm", api_key=key["key"], max_retries=0)
    assert client.models.list().data
    prompt = f"Hello {stand_in('tokens=5')}"
    answer = client.chat.completions.create(
        model="stand-in-small", messages=[{"role": "user", "content": prompt}]
    )
    assert answer.usage is not None
    record = the_record(database, person)
    assert (str(record.key_id), record.session_id) == (key["id"], None)
    assert record.output_tokens == answer.usage.completion_tokens
    (listed,) = shell.get("/v1/keys").json()["keys"]
    assert listed["last_used_at"] is not None
    assert shell.usage()["output"]["used"] == record.output_tokens
    client.close()


@pytest.mark.wire
def test_openais_sdk_for_node_works_with_a_key(
    shell: Shell, made: Callable[..., dict[str, str]], database: Database, person: Person
) -> None:
    key = made()
    model = {"model": "stand-in-small"}
    chat = {**model, "messages": [{"role": "user", "content": "Hello"}]}
    with running_script("openai.mjs", shell.base_url, key["key"]) as say:
        assert "Hello" in say(do="complete", ask=chat)["choice"]["message"]["content"]
        assert "Hello" in say(do="stream", ask=chat)["text"]
        assert "Hello" in say(do="respond", ask={**model, "input": "Hello"})["text"]
        assert "Hello" in say(do="respond stream", ask={**model, "input": "Hello"})["text"]
        assert "stand-in-small" in say(do="models")["ids"]
    records = records_of(database, person)
    assert [(str(each.key_id), each.end) for each in records] == [(key["id"], "done")] * 4


def test_twenty_of_thirty_keys_made_and_ended_at_once_are_made(
    shell: Shell, database: Database, person: Person
) -> None:
    def make_and_end(_: int) -> tuple[int, str]:
        made = shell.post("/v1/keys", {"name": "Script"})
        if made.status_code == 201:
            assert shell.call("DELETE", f"/v1/keys/{made.json()['id']}").status_code == 204
        return made.status_code, made.json().get("code", "")

    now = datetime.now(UTC)
    left = Period.of(now).next_day - now
    # They are counted by the day (UTC), and all thirty have to be of one.
    time.sleep(left.total_seconds() if left < NEARLY_MIDNIGHT else 0)
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(make_and_end, range(30)))
    assert Counter(answers) == {(201, ""): 20, (409, "too_many_keys"): 10}
    with database.rows():
        mails = ProcrastinateJob.objects.filter(task_name="mail.send", args__to=[person.email])
        # One at once, and one in an hour of the others.
        subjects = mails.filter(args__subject="A personal key was created")
        assert [each.scheduled_at is None for each in subjects.order_by("pk")] == [True, False]


def test_a_keys_own_cap_is_felt_before_its_persons(
    shell: Shell, made: Callable[..., dict[str, str]]
) -> None:
    editor = editor_of(shell, made(monthly_output_tokens=40))
    first = editor.complete(f"Hello {stand_in('tokens=30')}")
    assert first.status_code == 200
    assert int(first.headers["X-Tokens-Remaining-Month"]) == 10
    refused = editor.complete("Hello")
    assert (refused.status_code, refused.json()["code"]) == (429, "monthly_cap_exceeded")
    assert refused.json()["cap"] == 40
    assert shell.complete(f"Hello {stand_in('tokens=3')}").status_code == 200


@pytest.mark.parametrize("how", ["person", "operator", "plan"])
def test_a_running_stream_ends_with_its_key(
    shell: Shell, made: Callable[..., dict[str, str]], database: Database, person: Person, how: str
) -> None:
    key = made()
    editor = editor_of(shell, key)
    with editor.stream(f"Hello {stand_in('tokens=4000 delay=0.05')}") as stream:
        stream.next_event()
        if how == "person":
            assert shell.call("DELETE", f"/v1/keys/{key['id']}").status_code == 204
        else:
            with database.rows():
                mine = PersonalKey.objects.filter(pk=key["id"])
                if how == "operator":
                    mine.update(ended_at=mine.get().created_at)
                else:
                    plan = mine.get().user.client.licence.plan  # type: ignore[union-attr]
                    plan.allows_keys = False
                    plan.save()
        # By itself it goes on for minutes.
        said = stream.rest().decode()
    wanted = "not_entitled" if how == "plan" else "access_revoked"
    assert json.loads(said.rpartition("data: ")[2])["error"]["code"] == wanted
    assert the_record(database, person).end == "stopped"


def test_nothing_else_opens_to_it(shell: Shell, made: Callable[..., dict[str, str]]) -> None:
    editor = editor_of(shell, made())
    for path in ("/v1/auth/me", "/v1/usage/me", "/v1/keys", "/v1/license/status"):
        refused = editor.get(path)
        assert (refused.status_code, refused.json()["code"]) == (401, "invalid_access_token")
    wrong = OpenAI(base_url=f"{shell.base_url}/v1", api_key=editor.access, max_retries=0)
    with pytest.raises(AuthenticationError):
        wrong.get("/keys", cast_to=object)
    wrong.close()
    body = asked(f"Hello {stand_in('tokens=3')}")
    headers = {"Authorization": "", "x-api-key": editor.access}
    assert editor.post("/v1/llm/complete", body, headers=headers).status_code == 200
