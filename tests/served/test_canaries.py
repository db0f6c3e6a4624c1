"""No secret is seen again: whatever a person says or holds, in whatever way a request ends, wherever one may look.

Every address is asked in every way that fails, of a service that logs all it can and reports its errors; then logs,
reports, rows, mails and the console's pages are searched. That each fault was really met is asserted, too: its
request stands in the logs, and its error in the reports, that were searched.
"""

import json
import os
import re
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from email import message_from_string
from pathlib import Path
from queue import Empty
from typing import Any
from uuid import uuid4

import pytest
import requests
from django.contrib.auth.hashers import make_password
from procrastinate.contrib.django.models import ProcrastinateJob

from accounts.models import PasswordLink, User
from accounts.people.password_links import request_link
from licensing.models import Plan
from tests.forgeries import claims_of
from tests.served.broken import IDENTITY, Breaker
from tests.served.browser import hidden_fields
from tests.served.canaries import Answer, Call, Routes, Secrets, Walk, prompt
from tests.served.conftest import Seeds
from tests.served.database import Database
from tests.served.oauth_failures import FailingProvider
from tests.served.people import BY, Person, add_person
from tests.served.service import Service, running_service, working_off
from tests.served.shell import PATIENCE, Shell
from tests.standins.collector import Collector, running_collector
from tests.standins.error_sink import Sink
from tests.standins.provider_process import Provider, running_provider
from tests.waiting import eventually

# A thousand requests, which a machine with much else to do may take its time for.
pytestmark = [pytest.mark.timeout(900), pytest.mark.full]
LINK = re.compile(r"/account/password/([\w-]{43})")
SEPARATOR = "-" * 79
TELEMETRY = "telemetry_event"
LEDGER = "usage_usagerecord"
PAGES = 60


@dataclass
class Scene:
    """A service with everything around it, and what came to light of it."""

    service: Service
    database: Database
    breaker: Breaker
    provider: Provider
    third_party: FailingProvider
    sink: Sink
    collector: Collector
    folder: Path
    secret: Secrets
    walk: Walk
    routes: Routes
    password_hash: str
    seen: dict[str, list[Answer]] = field(default_factory=dict)
    pages: dict[str, str] = field(default_factory=dict)

    def person(self) -> Person:
        """Somebody new, whose password is secret."""
        person = add_person(self.database)
        with self.database.rows():
            User.objects.filter(pk=person.id).update(password=self.password_hash)
        return replace(person, password=self.secret.word("password"))

    def signed_in(self, person: Person) -> Shell:
        shell = Shell(self.service.url)
        answer = shell.login(person.email, person.password)
        assert answer.status_code == 200, answer.text
        self.secret.also(shell.access, shell.refresh_token)
        return shell

    def stage(self, name: str, calls: Iterator[Call]) -> None:
        self.seen[name] = self.walk.each(calls)

    def logs(self) -> str:
        """Whole lines: the last one may be half written."""
        texts = (path.read_text() for path in self.folder.glob("*.log"))
        return "".join(text[: text.rfind("\n") + 1] for text in texts)

    def reports(self) -> list[str]:
        """Returns the reports so far; each is kept for the next test."""
        found: list[bytes] = []
        try:
            while True:
                found.append(self.sink.envelopes.get_nowait())
        except Empty:
            for each in found:
                self.sink.envelopes.put(each)
        return [each.decode() for each in found]

    def mails(self) -> list[tuple[str, str]]:
        """To whom, and everything in it."""
        found = []
        for path in (self.folder / "mail").glob("*"):
            for text in path.read_text().split(SEPARATOR):
                message = message_from_string(text.strip())
                if message["To"]:
                    parts = (part.get_payload(decode=True) or b"" for part in message.walk())
                    found.append((str(message["To"]), str(b"".join(parts), "utf-8")))  # type: ignore[arg-type]
        return found


@pytest.fixture(scope="module")
def scene(seeds: Seeds, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    folder, secret, sink = tmp_path_factory.mktemp("canaries"), Secrets(), Sink()
    with ExitStack() as stack:
        stack.callback(sink.close)
        third_party = stack.enter_context(FailingProvider.running(secret))
        collector = stack.enter_context(running_collector())
        key = secret.word("provider-key")
        provider = stack.enter_context(running_provider(api_key=key))
        database = stack.enter_context(seeds.copy())
        environ = {
            "DATABASE_URL": database.url,
            "DJANGO_SETTINGS_MODULE": "tests.loud_settings",
            "EMAIL_URL": (folder / "mail").as_uri(),
            "LLM_API_KEY": key,
            "LLM_BASE_URL": provider.base_url,
            "LLM_KEEPALIVE_SECONDS": "0.5",
            "LLM_READ_TIMEOUT": "2",
            "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
            "OAUTH_PROVIDERS": json.dumps({"local": third_party.settings()}),
            "PUBLISH_SECRETS": secret.word("publish-secret-of-the-pipeline"),
            "SENTRY_DSN": sink.dsn,
            "STRIPE_API_KEY": secret.word("stripe-key"),
        }
        everything = {**os.environ, **environ}
        secret.also(everything["SECRET_KEY"], everything["ENCRYPTION_KEYS"])
        service = stack.enter_context(running_service(folder, environ))
        schema = requests.get(f"{service.url}/v1/schema", timeout=PATIENCE).json()
        scene = Scene(
            service=service,
            database=database,
            breaker=Breaker(database.url),
            provider=provider,
            third_party=third_party,
            sink=sink,
            collector=collector,
            folder=folder,
            secret=secret,
            walk=Walk(service.url, secret),
            routes=Routes(schema, secret),
            password_hash=make_password(secret.word("password")),
        )
        play(scene)
        yield scene


def play(scene: Scene) -> None:
    """Everything that can be done to the service, badly and well."""
    person = scene.person()
    access = scene.signed_in(person).access
    with scene.database.rows():
        # The name of a key is kept as it was written, and a walk with wrong values would make keys.
        Plan.objects.filter(licences=person.licence_id).update(allows_keys=False)
    scene.stage("nothing", scene.routes.nothing())
    scene.stage("unreadable", scene.routes.unreadable(access))
    scene.stage("wrong", scene.routes.wrong(access))
    calls, before = list(sensible(scene)), scene.breaker.moment()
    scene.stage("well", iter(calls))
    written = scene.breaker.written_since(before)
    scene.stage("provider", failing_calls(scene))
    scene.stage("third party", failing_connections(scene))
    links(scene)
    operators(scene, pages=PAGES)
    for table in written:
        calls = list(sensible(scene))
        with scene.breaker.refusing(table):
            scene.stage(f"refusing {table}", iter(calls))
    others = [name for name in scene.breaker.tables() if name not in IDENTITY]
    for name, tables in (("identity", ["accounts_user"]), ("everything else", others)):
        calls = list(sensible(scene))
        with scene.breaker.without(tables):
            scene.stage(f"without {name}", iter(calls))
            if name == "everything else":
                operators(scene, pages=10)
    away(scene)


def sensible(scene: Scene) -> Iterator[Call]:
    """Every operation as it is meant to be used; one that is not known here, with a word in each of its members."""
    secret, person = scene.secret, scene.person()
    shell, leaving, ending = (scene.signed_in(person) for _ in range(3))
    begun = shell.post(
        "/v1/connections/local/authorize", {"redirect_uri": scene.third_party.redirect_uri}
    )
    state = begun.json()["state"]
    key = shell.post("/v1/keys", {"name": "Another editor"}).json()
    secret.also(state, key["key"])
    new = secret.word("new-password")
    event = {"id": str(uuid4()), "name": "opened", "occurred_at": datetime.now(UTC).isoformat()}
    bodies: dict[str, Any] = {
        "POST /v1/auth/login": {"email": person.email, "password": person.password},
        "POST /v1/auth/refresh": {"refresh": shell.refresh_token},
        "POST /v1/auth/logout": {"refresh": leaving.refresh_token},
        "POST /v1/auth/password/reset": {"email": person.email},
        "POST /v1/auth/password/change": {"current": person.password, "new": new},
        "POST /v1/keys": {"name": "Editor"},
        "POST /v1/telemetry": {"events": [{**event, "properties": {"note": secret.told}}]},
        "POST /v1/connections/{provider}/authorize": {
            "redirect_uri": scene.third_party.redirect_uri
        },
        "POST /v1/connections/{provider}/complete": {"code": secret.word("code"), "state": state},
        "POST /v1/connections/{provider}/token": {"refused": secret.word("refused")},
        "POST /v1/llm/responses/input_tokens": {"input": secret.told},
        "POST /v1/internal/manifest/publish": {"channel": "stable", "notes": secret.word("notes")},
    }
    bodies |= dict.fromkeys(
        (f"POST /v1/llm/{path}" for path in ("complete", "stream", "chat/completions")),
        prompt(secret),
    )
    headers = {"Authorization": f"Bearer {shell.access}"}
    publishing = {
        "Authorization": f"Bearer {secret.word('publish-secret')}",
        "X-Manifest-Signature": secret.word("signature"),
    }
    queries = {"GET /v1/updates/manifest": f"?ch={secret.word('channel')}&os=darwin"}
    for operation in scene.routes.described:
        path = f"{scene.routes.path(operation)}{queries.get(operation, '')}"
        if "{id}" in operation:
            ended = key["id"] if "keys" in operation else claims_of(ending.access)["sid"]
            path = path[: -len(str(uuid4()))] + ended
        given = publishing if "publish" in operation else headers
        body = bodies.get(operation, {"note": secret.word("note")})
        is_read = operation.startswith(("GET", "HEAD"))
        yield Call(operation, path, body=None if is_read else body, headers=given)


def failing_calls(scene: Scene) -> Iterator[Call]:
    """The provider repeats what it was told, falls silent, breaks off, or says nothing that can be read."""
    shell = scene.signed_in(scene.person())
    word, key = scene.secret.word("echo"), scene.secret.word("provider-key")
    personal = shell.post("/v1/keys", {"name": "Editor"}).json()["key"]
    scene.secret.also(personal)
    headers = {"x-api-key": personal}
    for directive in (
        f'fault=status:400 message="{word}"',
        f'fault=status:401 message="{key} is no key"',
        f'fault=status:500 message="{word}"',
        "fault=status:429",
        "fault=malformed",
        "tokens=9 fault=reset after=3",
        "tokens=9 fault=malformed after=3",
    ):
        for path in ("/v1/llm/complete", "/v1/llm/stream"):
            body = prompt(scene.secret, directive)
            yield Call(f"POST {path}", path, body=body, headers=headers)
    body = prompt(scene.secret, model=word)
    yield Call("POST /v1/llm/complete", "/v1/llm/complete", body=body, headers=headers)


def failing_connections(scene: Scene) -> Iterator[Call]:
    """The third party repeats the code and our own secret in every kind of answer, and at last gives tokens."""
    shell = scene.signed_in(scene.person())
    headers = {"Authorization": f"Bearer {shell.access}"}
    path = "/v1/connections/local"
    operation = "POST /v1/connections/{provider}"
    for kind in (*scene.third_party.FAULTS, "well"):
        scene.third_party.kind = kind
        begun = shell.post(
            f"{path}/authorize", {"redirect_uri": scene.third_party.redirect_uri}
        ).json()
        scene.secret.also(begun["state"])
        body = {"code": scene.secret.word("code"), "state": begun["state"]}
        yield Call(f"{operation}/complete", f"{path}/complete", body=body, headers=headers)
        yield Call(f"{operation}/complete", f"{path}/complete", body=body, headers=headers)
    for kind in (*scene.third_party.FAULTS, "well"):
        scene.third_party.kind = kind
        # As if its hour were over, and nothing had gone wrong so far.
        scene.breaker.do(
            "UPDATE accounts_connection SET refreshed_at = now() - interval '1 hour', expires_at = now(),"
            " ask_again_at = NULL, leased_until = NULL, lapsed_at = NULL, lapse = ''"
        )
        yield Call(f"{operation}/token", f"{path}/token", body={}, headers=headers)
    yield Call("DELETE /v1/connections/{provider}", path, headers=headers)


def links(scene: Scene) -> None:
    """Mailed links: the mail cannot be sent at first, then the page is used badly, and in the end well."""
    reset, invited, robbed = scene.person(), scene.person(), scene.signed_in(scene.person())
    used = robbed.refresh_token
    assert robbed.refresh().status_code == 200
    scene.secret.also(robbed.access, robbed.refresh_token)
    # The reuse of a token notifies operators by mail.
    assert robbed.refresh(used).status_code == 401
    mail = scene.folder / "mail"
    for path in mail.glob("*"):
        path.unlink()
    if mail.exists():
        mail.rmdir()
    mail.write_text("In the way of every mail.")
    Shell(scene.service.url).post("/v1/auth/password/reset", {"email": reset.email})
    with scene.database.rows():
        invitation = PasswordLink.Kind.INVITATION
        User.objects.filter(pk=invited.id).update(password=make_password(None))
        request_link(user_id=invited.id, kind=invitation, by=BY, now=datetime.now(UTC))
    with working_off(scene.service):
        eventually(lambda: _tried(scene) >= 2)
        mail.unlink()
        scene.breaker.do("UPDATE procrastinate_jobs SET scheduled_at = NULL WHERE status = 'todo'")
        people = {reset.email, invited.email}
        eventually(lambda: people <= {to for to, text in scene.mails() if LINK.search(text)})
        eventually(lambda: any("/admin/" in text for _, text in scene.mails()))
    found = {to: LINK.findall(text)[0] for to, text in scene.mails() if LINK.search(text)}
    scene.secret.also(*found.values())
    new, calls = scene.secret.word("new-password"), []
    for email in sorted(people):
        path = f"/account/password/{found[email]}"
        for again in ("", "short", f"{new}-other", new):
            form = f"password={'short' if again == 'short' else new}&again={again}".encode()
            kind = {"Content-Type": "application/x-www-form-urlencoded"}
            calls.append(Call("POST /account/password/{secret}", path, raw=form, headers=kind))
    for table in ("accounts_user", "accounts_auditevent"):
        with scene.breaker.refusing(table):
            scene.stage(f"links refusing {table}", iter(calls))
    scene.stage("links", iter(calls))


def _tried(scene: Scene) -> int:
    """Counts the jobs of mail that have failed once."""
    with scene.database.rows():
        return ProcrastinateJob.objects.filter(queue_name="mail", attempts__gt=0).count()


def operators(scene: Scene, *, pages: int) -> None:
    """An operator signs in, badly and well, and looks at every page of the console that a link leads to."""
    password = scene.secret.word("operator-password")
    email = f"operator-{len(scene.pages)}@canaries.test"
    with scene.database.rows():
        User.objects.create_superuser(email, password)
    session = requests.Session()
    session.trust_env = False
    session.headers["Accept"] = "text/html"
    login = f"{scene.service.url}/admin/login/"
    for given in (f"{password}-not", password):
        page = session.get(login, timeout=PATIENCE)
        form = {**hidden_fields(page.text), "username": email, "password": given}
        headers = {"Referer": login, "Origin": scene.service.url}
        answer = session.post(login, data=form, headers=headers, timeout=PATIENCE)
        scene.pages[f"{len(scene.pages)} {answer.url}"] = answer.text
    waiting, seen = ["/admin/"], {"/admin/", "/admin/logout/"}
    most = len(scene.pages) + pages
    while waiting and len(scene.pages) < most:
        path = waiting.pop(0)
        answer = session.get(f"{scene.service.url}{path}", timeout=PATIENCE)
        scene.pages[f"{len(scene.pages)} {path}"] = answer.text
        found = re.findall(r'href="(/admin/[^"#]*)"', answer.text.replace("&amp;", "&"))
        fresh = [each for each in dict.fromkeys(found) if each not in seen]
        seen |= {*fresh}
        waiting += fresh


def away(scene: Scene) -> None:
    """The database goes in the middle of all kinds of requests, and stays away for those who come later."""
    calls = list(sensible(scene))
    with scene.breaker.held("accounts_session"), ThreadPoolExecutor(len(calls)) as pool:
        walks = [Walk(scene.service.url, scene.secret) for _ in calls]
        running = [pool.submit(each.ask, call) for each, call in zip(walks, calls, strict=True)]
        try:
            assert scene.breaker.cut_waiting(at_least=4) > 0
            for each in running:
                each.result()
        finally:
            scene.breaker.admit()
    scene.seen["away"] = [answer for walk in walks for answer in walk.answers]


def test_no_secret_stands_in_a_log(scene: Scene) -> None:
    text = scene.logs()
    assert scene.secret.found_in(text) == set()
    assert scene.secret.told not in text
    assert scene.secret.label not in text
    assert {json.loads(line)["level"] for line in text.splitlines()} > {"debug", "info", "error"}


def test_no_secret_leaves_in_a_report(scene: Scene) -> None:
    text = "\n".join(scene.reports())
    assert scene.secret.found_in(text) == set()
    assert scene.secret.told not in text
    assert scene.secret.label not in text


def test_no_secret_leaves_in_a_span(scene: Scene) -> None:
    """Spans may be lost: more come at once than a process keeps."""
    spans = list(scene.collector.spans)
    asked = {answer.request_id for stage in scene.seen.values() for answer in stage}
    assert len(asked & {each.facts.get("shell.request_id") for each in spans}) > len(asked) / 2
    text = "\n".join(each.whole for each in spans)
    assert scene.secret.found_in(text) == set()
    assert scene.secret.told not in text
    assert scene.secret.label not in text


def test_no_secret_stands_in_a_row_but_hashed_or_encrypted(scene: Scene) -> None:
    for table, rows in scene.breaker.everything().items():
        assert scene.secret.found_in(rows) == set(), table
        assert (scene.secret.told in rows) == (table == TELEMETRY), table
        assert (scene.secret.label in rows) == (table == LEDGER), table


def test_a_mail_holds_no_secret_but_the_link_of_whom_it_is_for(scene: Scene) -> None:
    mails = scene.mails()
    links = [link for _, text in mails for link in LINK.findall(text)]
    assert links
    for to, text in mails:
        own = set(LINK.findall(text))
        rest = text
        for link in own:
            rest = rest.replace(link, "")
        assert scene.secret.found_in(rest) == set(), to
    assert max(Counter(to for to, text in mails if LINK.search(text)).values()) == 1


def test_no_secret_is_shown_to_an_operator(scene: Scene) -> None:
    assert len(scene.pages) > 40
    for address, text in scene.pages.items():
        assert scene.secret.found_in(text) == set(), address
        assert scene.secret.told not in text or "/telemetry/" in address, address
        assert scene.secret.label not in text or "/usage/" in address, address


def test_every_fault_was_met_where_it_was_looked_for(scene: Scene) -> None:
    """Or the searches above would have searched nothing."""
    text = scene.logs()
    answers = [answer for stage in scene.seen.values() for answer in stage]
    assert len(answers) > 500
    unheard = [answer for answer in answers if answer.request_id not in text]
    # The server itself answers what it cannot read, under an id of its own.
    assert {answer.status for answer in unheard} <= {400}
    broken = [answer for answer in answers if answer.status == 500]

    def untold() -> list[Answer]:
        told = "\n".join(scene.reports())
        return [answer for answer in broken if answer.request_id not in told]

    # They are sent beside the answers.
    with suppress(AssertionError):
        eventually(lambda: not untold())
    assert untold() == []
    told = "\n".join(scene.reports())
    for cause in ("CheckViolation", "UndefinedTable"):
        assert cause in text
        assert cause in told
    assert "AdminShutdown" in text
