"""The wire does not change unnoticed: 500 requests and more over all routes get the answers that were recorded.

``CORPUS_RECORD=1`` rewrites ``corpus.ndjson``, for a change of the wire that is wanted; read its difference then.
"""

import base64
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import requests

from accounts.models import User
from licensing.licences import set_terms
from licensing.models import Licence
from tests.releases.signing import Signer
from tests.served.conftest import Seeds
from tests.served.corpus import REDIRECT, Provider, Request, model_calls, refused, sent
from tests.served.database import Database
from tests.served.people import BY, Person, add_person, suspend
from tests.served.releasing import PUBLISH, SECRET, ServedPipeline
from tests.served.service import Service, running_service
from tests.served.shell import PATIENCE, Shell
from tests.standins.cdn import running_cdn

pytestmark = pytest.mark.timeout(400)
RECORDED = Path(__file__).parent / "corpus.ndjson"
KEY = "k" * 22
NEW_PASSWORD = "another horse, another battery"


@dataclass
class Scene:
    """A service of which all is known: who is there, who publishes and what the provider says."""

    service: Service
    database: Database
    pipeline: ServedPipeline
    session: requests.Session

    def shell(self, person: Person) -> Shell:
        shell = Shell(self.service.url)
        assert shell.login(person.email, person.password).status_code == 200
        return shell

    def ask(self, label: str, method: str, path: str, **options: Any) -> dict[str, Any]:
        request = Request(
            label=f"{method} {path.partition('?')[0]}: {label}", method=method, path=path, **options
        )
        return sent(self.session, self.service.url, request)


@pytest.fixture(scope="module")
def scene(seeds: Seeds, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    folder = tmp_path_factory.mktemp("corpus")
    with (
        seeds.copy() as database,
        Provider.running() as provider,
        running_cdn() as cdn,
        requests.Session() as session,
    ):
        pipeline = ServedPipeline(signer=Signer(), cdn=cdn, files=folder / "storage")
        third_party = {"client_id": "corpus", "client_secret": "corpus-secret"} | {
            f"{each}_endpoint": f"{provider}/{path}"
            for each, path in (
                ("authorization", "authorize"),
                ("token", "token"),
                ("revocation", "revoke"),
            )
        }
        environ = {
            **pipeline.environ(),
            "DATABASE_URL": database.url,
            "EMAIL_URL": (folder / "mail").as_uri(),
            "LLM_BASE_URL": provider,
            "LLM_PROVIDER": "openai",
            "CORS_ORIGINS": "https://shell.test",
            "OAUTH_PROVIDERS": json.dumps({"local": third_party}),
        }
        session.trust_env = False
        with running_service(folder, environ) as service:
            pipeline.url = service.url
            yield Scene(service, database, pipeline, session)


@pytest.mark.full
def test_every_answer_is_as_it_was_recorded(scene: Scene) -> None:
    played = list(play(scene))
    answers = {each["label"]: each for each in played}
    assert len(answers) == len(played) >= 500
    if os.environ.get("CORPUS_RECORD"):
        lines = [json.dumps(each, sort_keys=True, ensure_ascii=False) for each in answers.values()]
        RECORDED.write_text("\n".join(lines) + "\n")
    unanswered = recorded().keys() - answers.keys()
    assert (unanswered, different(played)) == (set(), [])


def test_answers_to_calls_are_as_they_were_recorded(scene: Scene) -> None:
    """The short form of the above."""
    person = add_person(scene.database)
    calls = model_calls(scene.shell(person).access)
    assert different([sent(scene.session, scene.service.url, call) for call in calls]) == []


def recorded() -> dict[str, dict[str, Any]]:
    return {each["label"]: each for each in map(json.loads, RECORDED.read_text().splitlines())}


def different(answers: list[dict[str, Any]]) -> list[str]:
    was = recorded()
    return [
        f"{each['label']}\n  was {was.get(each['label'])}\n  is  {each}"
        for each in answers
        if was.get(each["label"]) != each
    ]


def play(scene: Scene) -> Iterator[dict[str, Any]]:
    yield from signing_in(scene)
    person = add_person(scene.database)
    schema = requests.get(f"{scene.service.url}/v1/schema", timeout=PATIENCE).json()
    for request in refused(schema, lambda: scene.shell(person).access):
        yield sent(scene.session, scene.service.url, request)
    for request in model_calls(scene.shell(person).access):
        yield sent(scene.session, scene.service.url, request)
    yield from public(scene)
    yield from licences(scene)
    yield from caps(scene)
    yield from telemetry(scene)
    yield from connections(scene)
    yield from publishing(scene)


def bearer(shell: Shell, **more: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {shell.access}", **more}


def signing_in(scene: Scene) -> Iterator[dict[str, Any]]:
    person, login, refresh = add_person(scene.database), "/v1/auth/login", "/v1/auth/refresh"
    good = {"email": person.email, "password": person.password}
    yield scene.ask("good", "POST", login, body=good)
    yield scene.ask("with a device", "POST", login, body={**good, "device_fp": "corpus"})
    yield scene.ask(
        "email in capitals", "POST", login, body={**good, "email": person.email.upper()}
    )
    yield scene.ask("wrong password", "POST", login, body={**good, "password": "wrong wrong wrong"})
    yield scene.ask("unknown email", "POST", login, body={**good, "email": "nobody@served.test"})
    yield scene.ask("no email", "POST", login, body={**good, "email": "nobody"})
    yield scene.ask("long device", "POST", login, body={**good, "device_fp": "x" * 1000})
    yield scene.ask("NUL", "POST", login, body={**good, "email": "a\0@served.test"})
    shell = scene.shell(person)
    first = shell.refresh_token
    yield scene.ask("unknown", "POST", refresh, body={"refresh": "A" * 43})
    yield scene.ask("malformed", "POST", refresh, body={"refresh": "x"})
    keyed = {"Idempotency-Key": KEY}
    yield scene.ask("keyed", "POST", refresh, body={"refresh": first}, headers=keyed)
    yield scene.ask("keyed again", "POST", refresh, body={"refresh": first}, headers=keyed)
    yield scene.ask(
        "short key", "POST", refresh, body={"refresh": first}, headers={"Idempotency-Key": "k"}
    )
    yield scene.ask("reuse", "POST", refresh, body={"refresh": first})
    yield scene.ask("revoked session", "GET", "/v1/auth/me", headers=bearer(shell))
    shell = scene.shell(person)
    yield scene.ask("good", "POST", refresh, body={"refresh": shell.refresh_token})
    for path in ("/v1/auth/me", "/v1/auth/sessions"):
        yield scene.ask("good", "GET", path, headers=bearer(shell))
        yield scene.ask(
            "lower-case scheme", "GET", path, headers={"Authorization": f"bearer {shell.access}"}
        )
        yield scene.ask(
            "two spaces", "GET", path, headers={"Authorization": f"Bearer  {shell.access}"}
        )
        yield scene.ask("head", "HEAD", path, headers=bearer(shell))
    for label, body in {
        "wrong": {"current": "wrong wrong wrong", "new": NEW_PASSWORD},
        "short": {"current": person.password, "new": "short"},
        "nothing new": {"current": person.password},
        "good": {"current": person.password, "new": NEW_PASSWORD},
    }.items():
        yield scene.ask(label, "POST", "/v1/auth/password/change", body=body, headers=bearer(shell))
    yield scene.ask("after a change", "GET", "/v1/auth/me", headers=bearer(shell))
    yield scene.ask("old password", "POST", login, body=good)
    yield scene.ask("new password", "POST", login, body={**good, "password": NEW_PASSWORD})
    other = add_person(scene.database)
    leaving = scene.shell(other)
    yield scene.ask("good", "POST", "/v1/auth/logout", body={"refresh": leaving.refresh_token})
    yield scene.ask("again", "POST", "/v1/auth/logout", body={"refresh": leaving.refresh_token})
    yield scene.ask("after logout", "GET", "/v1/auth/me", headers=bearer(leaving))
    yield scene.ask("after logout", "POST", refresh, body={"refresh": leaving.refresh_token})
    for label, email in (("known", other.email), ("unknown", "nobody@served.test"), ("none", "x")):
        yield scene.ask(label, "POST", "/v1/auth/password/reset", body={"email": email})
    with scene.database.rows():
        User.objects.filter(pk=other.id).update(is_active=False)
    yield scene.ask(
        "disabled", "POST", login, body={"email": other.email, "password": other.password}
    )


def public(scene: Scene) -> Iterator[dict[str, Any]]:
    for path in (
        "/healthz", "/livez", "/.well-known/jwks.json", "/docs/", "/docs", "/", "/admin/", "/admin/login/",
        "/account/password/" + "x" * 43, "/v1/", "/v1/nothing", "/favicon.ico", "/v1/updates/manifest",
        "/v1/updates/manifest?ch=stable&os=darwin", "/v1/updates/manifest?ch=stable&os=darwin&current_version=1.0.0",
        "/v1/updates/manifest?ch=nothing&os=darwin", "/v1/updates/manifest?ch=stable&os=toaster",
        "/v1/updates/manifest?ch=stable&os=darwin&current_version=x", "/v1/%00", "/v1/auth/../auth/me",
    ):  # fmt: skip
        yield scene.ask(path, "GET", path)
        yield scene.ask(f"head of {path}", "HEAD", path)
    yield scene.ask("id of the caller", "GET", "/healthz", headers={"X-Request-ID": "corpus-1"})
    yield scene.ask("a mad id", "GET", "/healthz", headers={"X-Request-ID": "{mad}" * 40})
    yield scene.ask("other host", "GET", "/v1/auth/me", headers={"Host": "evil.test"})
    for origin in ("https://shell.test", "https://evil.test", "null"):
        preflight = {"Origin": origin, "Access-Control-Request-Method": "POST"}
        preflight["Access-Control-Request-Headers"] = "authorization, content-type"
        yield scene.ask(f"preflight of {origin}", "OPTIONS", "/v1/llm/complete", headers=preflight)
        yield scene.ask(f"from {origin}", "GET", "/v1/license/status", headers={"Origin": origin})
    yield scene.ask("options", "OPTIONS", "/v1/auth/login")
    yield scene.ask("form of a stranger", "POST", "/admin/login/", raw=b"username=a&password=b")
    schema = scene.ask("the schema", "GET", "/v1/schema")
    # Of which each operation is in the corpus by itself.
    yield {**schema, "body": sorted(schema["body"]["paths"])}


def licences(scene: Scene) -> Iterator[dict[str, Any]]:
    status = "/v1/license/status"
    person = add_person(scene.database)
    shell = scene.shell(person)
    tag = shell.get(status).headers["ETag"]
    yield scene.ask("active", "GET", status, headers=bearer(shell))
    yield scene.ask("unchanged", "GET", status, headers=bearer(shell, **{"If-None-Match": tag}))
    yield scene.ask("changed", "GET", status, headers=bearer(shell, **{"If-None-Match": '"x"'}))
    yield scene.ask("any", "GET", status, headers=bearer(shell, **{"If-None-Match": "*"}))
    yield scene.ask("an app", "GET", "/v1/apps/notes/manifest", headers=bearer(shell))
    yield scene.ask("no app", "GET", "/v1/apps/other/manifest", headers=bearer(shell))
    yield scene.ask("models", "GET", "/v1/llm/models", headers=bearer(shell))
    with scene.database.rows():
        licence = Licence.objects.get(pk=person.licence_id)
        set_terms(
            licence_id=licence.pk, plan=licence.plan, entitlements=["maps"], reason="x", by=BY, now=datetime.now(UTC)
        )  # fmt: skip
    yield scene.ask("entitled to more", "GET", status, headers=bearer(shell))
    suspend(scene.database, person)
    yield scene.ask("suspended", "GET", status, headers=bearer(shell))
    for path in ("/v1/auth/me", "/v1/usage/me", "/v1/llm/models", "/v1/apps/notes/manifest"):
        yield scene.ask("suspended", "GET", path, headers=bearer(shell))
    hello = {"messages": [{"role": "user", "content": "hello"}]}
    for path in ("complete", "stream", "chat/completions"):
        yield scene.ask("suspended", "POST", f"/v1/llm/{path}", body=hello, headers=bearer(shell))


def caps(scene: Scene) -> Iterator[dict[str, Any]]:
    hello = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 16}
    for name, cap in {
        "none left of the month's input": {"monthly_input": 1},
        "none left of the month's output": {"monthly_output": 1},
        "none left of the day": {"daily": 1},
        "some left": {"monthly_input": 10_000, "monthly_output": 1_000, "daily": 5_000},
        "a prompt too long": {"monthly_input": 100, "monthly_output": 1_000},
    }.items():
        shell = scene.shell(add_person(scene.database, cap))
        body = {**hello, "messages": [{"role": "user", "content": "word " * 200}]}
        body = body if name == "a prompt too long" else hello
        for path in ("complete", "stream"):
            yield scene.ask(name, "POST", f"/v1/llm/{path}", body=body, headers=bearer(shell))
        yield scene.ask(name, "GET", "/v1/usage/me", headers=bearer(shell))


def telemetry(scene: Scene) -> Iterator[dict[str, Any]]:
    shell, now = scene.shell(add_person(scene.database)), datetime.now(UTC).isoformat()
    event = {
        "id": str(uuid4()),
        "name": "opened",
        "occurred_at": now,
        "app": "notes",
        "shell_version": "1.0.0",
    }
    for label, events in {
        "good": [event],
        "again": [event],
        "twice in one": [{**event, "id": str(uuid4())}] * 2,
        "none": [],
        "with properties": [
            {**event, "id": str(uuid4()), "properties": {"a": {"b": [1, "x", None]}}}
        ],
        "some bad": [
            {**event, "id": str(uuid4())},
            {**event, "id": "x"},
            {**event, "id": str(uuid4()), "name": ""},
        ],
        "long ago": [{**event, "id": str(uuid4()), "occurred_at": "2020-01-01T00:00:00Z"}],
        "too deep": [
            {**event, "id": str(uuid4()), "properties": {"a": {"a": {"a": {"a": {"a": {"a": 1}}}}}}}
        ],
        "no objects": [1, "x", None],
        "too many": [event] * 501,
    }.items():
        yield scene.ask(
            label, "POST", "/v1/telemetry", body={"events": events}, headers=bearer(shell)
        )


def connections(scene: Scene) -> Iterator[dict[str, Any]]:
    shell, local = scene.shell(add_person(scene.database)), "/v1/connections/local"
    headers = bearer(shell)
    yield scene.ask("none", "GET", "/v1/connections", headers=headers)
    for label, redirect in (("elsewhere", "https://evil.test/"), ("good", REDIRECT)):
        yield scene.ask(
            label, "POST", f"{local}/authorize", body={"redirect_uri": redirect}, headers=headers
        )
    yield scene.ask(
        "unknown provider",
        "POST",
        "/v1/connections/x/authorize",
        body={"redirect_uri": REDIRECT},
        headers=headers,
    )
    begun = shell.post(f"{local}/authorize", {"redirect_uri": REDIRECT}).json()
    yield scene.ask("not connected", "POST", f"{local}/token", body={}, headers=headers)
    yield scene.ask(
        "wrong state",
        "POST",
        f"{local}/complete",
        body={"code": "c", "state": "s"},
        headers=headers,
    )
    done = {"code": "c", "state": begun["state"]}
    yield scene.ask("good", "POST", f"{local}/complete", body=done, headers=headers)
    yield scene.ask("again", "POST", f"{local}/complete", body=done, headers=headers)
    yield scene.ask("connected", "GET", "/v1/connections", headers=headers)
    yield scene.ask("connected", "POST", f"{local}/token", body={}, headers=headers)
    yield scene.ask("connected", "DELETE", local, headers=headers)
    yield scene.ask("gone", "DELETE", local, headers=headers)


def publishing(scene: Scene) -> Iterator[dict[str, Any]]:
    pipeline = scene.pipeline
    stable = f"{PUBLISH}?ch=stable"

    def publish(label: str, release: Any, path: str = stable, **headers: str) -> dict[str, Any]:
        given = {"Authorization": f"Bearer {SECRET}", "X-Manifest-Signature": release.signature}
        return scene.ask(label, "POST", path, raw=release.body, headers={**given, **headers})

    one, two = pipeline.made("1.0.0"), pipeline.made("2.0.0")
    yield publish("wrong secret", one, Authorization="Bearer wrong")
    yield publish("no signature", one, **{"X-Manifest-Signature": ""})
    yield publish("another's signature", one, **{"X-Manifest-Signature": two.signature})
    yield publish("no base64", one, **{"X-Manifest-Signature": "%%%"})
    yield publish("no channel", one, PUBLISH)
    yield publish("dry run", one, f"{stable}&dry_run=true")
    yield publish("good", one)
    yield publish("again", one)
    yield publish("newer", two)
    yield publish("older", pipeline.made("1.5.0"))
    yield publish("rollback", pipeline.made("1.6.0"), f"{stable}&rollback=true")
    yield publish("other bytes", pipeline.signed({**pipeline.manifest("2.0.0"), "notes": "Other."}))
    for label, wrong in {
        "no version": {"version": "x"},
        "no date": {"pub_date": "yesterday"},
        "other channel": {"channel": "beta"},
        "no platforms": {"platforms": {}},
        "other address": {
            "platforms": {"darwin-aarch64": {"url": "https://evil.test/a", "signature": "x"}}
        },
    }.items():
        yield publish(label, pipeline.signed({**pipeline.manifest("3.0.0"), **wrong}))
    missing = pipeline.made("4.0.0")
    pipeline.cdn.files.clear()
    yield publish("artifacts missing", missing)
    manifest = "/v1/updates/manifest?ch=stable&os=darwin"
    for query in (
        "",
        "&current_version=1.0.0",
        "&current_version=9.0.0",
        "&arch=aarch64",
        "&arch=x86",
    ):
        yield scene.ask(f"published{query}", "GET", f"{manifest}{query}")
    signature = pipeline.offered().headers["X-Manifest-Signature"]
    assert base64.b64decode(signature).startswith(b"untrusted comment")
