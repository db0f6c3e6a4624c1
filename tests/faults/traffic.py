"""Steady traffic of all kinds of requests, a few a second, each kind by a thread of its own, and what each was told."""

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from secrets import token_urlsafe
from typing import Any
from uuid import uuid4

import requests

from accounts.models import User
from tests.bench.callers import Caller, make_callers
from tests.faults.stage import OAUTH, Stage
from tests.releases.conftest import Release
from tests.served.service import Service
from tests.served.shell import DONE, PATIENCE, Shell, asked, stand_in

MODEL = "stand-in-small"
REDIRECT = f"http://127.0.0.1:49152/oauth/{OAUTH}/callback"
GOOD = "ok"
NO_ANSWER = "no answer"
EVENTS = 3
SIGNED_OUT = "signed out"
# More than ask for a new password in a run; each asks once.
FORGETFUL = 900
# Twice of what nobody may wait for.
LEAVES_AFTER = 30.0
# Half of the life of an access token.
YOUNG_SECONDS = 1800.0


@dataclass(frozen=True, slots=True)
class Seen:
    """One request: when it was begun (monotonic), its longest silence in seconds, and what came of it.

    ``code`` is :data:`GOOD`, the code of a problem, or what else is to be said; a status of 0 is no answer at all.
    """

    kind: str
    at: float
    silence: float
    status: int
    code: str

    @property
    def is_good(self) -> bool:
        return self.code == GOOD


@dataclass
class Told:
    """The final answers to callers, by which sums are judged."""

    # By person: input and output tokens of each call that was answered whole, and how many were begun.
    calls: dict[Any, list[tuple[int, int]]] = field(default_factory=dict)
    begun: Counter[Any] = field(default_factory=Counter)
    # Telemetry, by the id that the shell gave: sent, and acknowledged.
    sent: set[str] = field(default_factory=set)
    kept: set[str] = field(default_factory=set)
    logins: int = 0
    tried: int = 0
    versions: list[str] = field(default_factory=list)
    mailed: list[str] = field(default_factory=list)


class Traffic:
    """Callers, each a person of their own; ``told`` is of all scenarios together, ``seen`` of the last one.

    Both are complete once :func:`flowing` has ended.
    """

    def __init__(self, stage: Stage) -> None:
        self.stage, self.service = stage, stage.service
        self.seen: list[Seen] = []
        self.told = Told()
        # The longest silence of each kind while nothing was ill.
        self.usual: dict[str, float] = {}
        self._signed_in_until = 0.0
        self.kinds: Mapping[str, tuple[float, Callable[[], tuple[int, str]]]] = {
            "status": (1.0, self._status),
            "complete": (2.0, self._complete),
            "stream": (2.0, self._stream),
            "messages": (2.5, self._messages),
            "responses": (2.5, self._responses),
            "usage": (2.0, partial(self._get, "usage", "/v1/usage/me")),
            "telemetry": (2.0, self._telemetry),
            "login": (2.0, self._login),
            "refresh": (2.0, self._refresh),
            "console": (3.0, self._console),
            "manifest": (2.0, self._manifest),
            "publish": (2.0, self._publish),
            "reset": (3.0, self._reset),
            "connect": (3.0, self._connect),
        }
        people = make_callers(stage.database, len(self.kinds), caps={})
        self.people: dict[str, Caller] = dict(zip(self.kinds, people, strict=True))
        self._forgetful = iter(forgetful(stage, self.people["reset"], FORGETFUL))
        self._shells = {kind: Shell(self.service.url, patience=LEAVES_AFTER) for kind in self.kinds}
        self.sign_in()
        self._key: str | None = None
        self._batch: list[dict[str, Any]] = []
        self._release: Release | None = None
        self._browser = stage.browser(self.service)
        self._is_out = False
        self._silence = threading.local()
        self._numbers = iter(range(1, 1_000_000))

    def sign_in(self) -> None:
        """All who need a token, unless theirs are young."""
        if time.monotonic() < self._signed_in_until:
            return
        self._signed_in_until = time.monotonic() + YOUNG_SECONDS
        for kind in self.kinds:
            person = self.people[kind]
            answer = self._shells[kind].login(person.email, person.password)
            assert answer.status_code == 200, answer.text
        # One of them is the person who signs in all the time.
        self.told.logins += 1
        self.told.tried += 1

    def note_usual(self, seen: Iterable[Seen]) -> None:
        for each in seen:
            self.usual[each.kind] = max(self.usual.get(each.kind, 0.0), each.silence)

    def lead_to(self, service: Service) -> None:
        """Another service of the same name and keys takes all."""
        self.service = service
        for each in (*self._shells.values(), self._browser):
            each.base_url = service.url

    # --- one request of each kind: status and what came of it ---

    def _status(self) -> tuple[int, str]:
        answer = self._shells["status"].get("/v1/license/status")
        if answer.status_code == 200 and answer.json()["status"] != "active":
            return 200, f"licence {answer.json()['status']}"
        return _outcome(answer)

    def _get(self, kind: str, path: str) -> tuple[int, str]:
        return _outcome(self._shells[kind].get(path))

    def _manifest(self) -> tuple[int, str]:
        return _outcome(
            self._shells["manifest"].get("/v1/updates/manifest?ch=stable&os=darwin"),
            good=(200, 204, 404),
        )

    def _ask(self, kind: str, path: str, **body: Any) -> requests.Response:
        self.told.begun[self.people[kind].id] += 1
        return self._shells[kind].post(path, {"model": MODEL, **body})

    def _text(self) -> str:
        """Asks for an answer of a length by which its record is known again."""
        return stand_in(f"tokens={5 + next(self._numbers) % 40} delay=0.02")

    def _answered(self, kind: str, usage: Mapping[str, int], names: tuple[str, str]) -> None:
        spent = (usage[names[0]], usage[names[1]])
        self.told.calls.setdefault(self.people[kind].id, []).append(spent)

    def _complete(self) -> tuple[int, str]:
        answer = self._ask("complete", "/v1/llm/complete", **asked(self._text()))
        if answer.status_code == 200:
            self._answered(
                "complete", answer.json()["usage"], ("prompt_tokens", "completion_tokens")
            )
        return _outcome(answer)

    def _messages(self) -> tuple[int, str]:
        answer = self._ask("messages", "/v1/llm/messages", max_tokens=200, **asked(self._text()))
        if answer.status_code == 200:
            self._answered("messages", answer.json()["usage"], ("input_tokens", "output_tokens"))
        return _outcome(answer)

    def _responses(self) -> tuple[int, str]:
        answer = self._ask("responses", "/v1/llm/responses", input=self._text())
        if answer.status_code == 200:
            self._answered("responses", answer.json()["usage"], ("input_tokens", "output_tokens"))
        return _outcome(answer)

    def _stream(self) -> tuple[int, str]:
        self.told.begun[self.people["stream"].id] += 1
        options = {"stream_options": {"include_usage": True}, "model": MODEL}
        last, usage, before = "", {}, time.monotonic()
        with self._shells["stream"].stream(self._text(), **options) as stream:
            if stream.status != 200:
                return stream.status, str(stream.problem().get("code"))
            for last in stream:
                now = time.monotonic()
                self._silence.longest = max(self._silence.longest, now - before)
                before = now
                if last.startswith("{"):
                    said = json.loads(last)
                    usage = said.get("usage") or usage
        if last != DONE:
            code = json.loads(last)["error"]["code"] if last.startswith("{") else NO_ANSWER
            return 200, f"ended by {code}"
        self._answered("stream", usage, ("prompt_tokens", "completion_tokens"))
        return 200, GOOD

    def _telemetry(self) -> tuple[int, str]:
        """Sends telemetry; what was not acknowledged goes with the next batch, as in shells."""
        # Long enough ago for a clock that is an hour away.
        now = (datetime.now(UTC) - timedelta(hours=2)).isoformat()
        new = [
            {"id": str(uuid4()), "name": "fault.seen", "occurred_at": now} for _ in range(EVENTS)
        ]
        self._batch += new
        self.told.sent |= {each["id"] for each in new}
        answer = self._shells["telemetry"].post("/v1/telemetry", {"events": self._batch})
        if answer.status_code == 202:
            rejected = answer.json()["rejected"]
            if rejected:
                return 202, f"rejected {rejected[0]['code']}"
            self.told.kept |= {each["id"] for each in self._batch}
            self._batch = []
        return _outcome(answer, good=(202,))

    def _login(self) -> tuple[int, str]:
        person = self.people["login"]
        self.told.tried += 1
        answer = Shell(self.service.url, patience=LEAVES_AFTER).login(person.email, person.password)
        self.told.logins += answer.status_code == 200
        return _outcome(answer)

    def _refresh(self) -> tuple[int, str]:
        """With one key until there is an answer, as shells do."""
        self._key = self._key or token_urlsafe(24)
        answer = self._shells["refresh"].refresh(key=self._key)
        if answer.status_code == 200:
            self._key = None
        return _outcome(answer)

    def _console(self) -> tuple[int, str]:
        """Signed out, an operator signs in again."""
        if self._is_out:
            self._browser = self.stage.browser(self.service)
            self._is_out = False
        answer = self._browser.get("/admin/")
        if answer.history:
            self._is_out = True
            return answer.history[0].status_code, SIGNED_OUT
        return _outcome(answer)

    def _publish(self) -> tuple[int, str]:
        """The next release, and one that failed until it is out."""
        pipeline = self.stage.pipeline
        if self._release is None:
            self.stage.patch += 1
            self._release = pipeline.made(f"1.0.{self.stage.patch}")
        pipeline.url = self.service.url
        answer = pipeline.post(self._release)
        if answer.status_code in (200, 201):
            self.told.versions.append(self._release.document["version"])
            self._release = None
        return _outcome(answer, good=(200, 201))

    def _reset(self) -> tuple[int, str]:
        email = next(self._forgetful)
        answer = Shell(self.service.url, patience=LEAVES_AFTER).post(
            "/v1/auth/password/reset", {"email": email}
        )
        if answer.status_code == 204:
            self.told.mailed.append(email)
        return _outcome(answer, good=(204,))

    def _connect(self) -> tuple[int, str]:
        shell, path = self._shells["connect"], f"/v1/connections/{OAUTH}"
        before = time.monotonic()
        begun = shell.post(f"{path}/authorize", {"redirect_uri": REDIRECT})
        if begun.status_code != 200:
            return _outcome(begun)
        between, state = time.monotonic(), begun.json()["state"]
        done = shell.post(f"{path}/complete", {"code": "given", "state": state})
        self._silence.longest = max(between - before, time.monotonic() - between)
        return _outcome(done, good=(201,))

    # --- again and again ---

    def _repeat(self, kind: str, over: threading.Event) -> None:
        every, act = self.kinds[kind]
        while not over.is_set():
            began = time.monotonic()
            self._silence.longest = 0.0
            try:
                status, code = act()
            except (requests.RequestException, AssertionError):
                # An answer that ends in its middle is none.
                status, code = 0, NO_ANSWER
            ended = time.monotonic()
            # Of a stream what passed between two of its parts, of all else the whole of it.
            silence = self._silence.longest or ended - began
            self.seen.append(Seen(kind, began, silence, status, code))
            over.wait(max(0.1, every - (ended - began)))


def forgetful(stage: Stage, colleague: Caller, number: int) -> list[str]:
    """Emails of so many people, of whom each can ask for a new password once."""
    emails = [f"forgetful-{uuid4().hex}@bench.test" for _ in range(number)]
    with stage.database.rows():
        hashed = User.objects.get(pk=colleague.id).password
        User.objects.bulk_create(
            User(email=email, password=hashed, client_id=colleague.client_id) for email in emails
        )
    return emails


def signed_in(service: Service, person: Caller) -> Shell:
    shell = Shell(service.url)
    answer = shell.login(person.email, person.password)
    assert answer.status_code == 200, answer.text
    return shell


def _outcome(answer: requests.Response, *, good: tuple[int, ...] = (200,)) -> tuple[int, str]:
    if answer.status_code in good:
        return answer.status_code, GOOD
    try:
        said = answer.json()
    except ValueError:
        return answer.status_code, "a page"
    code = said.get("code") or (said.get("error") or {}).get("code")
    return answer.status_code, str(code or "without a code")


@contextmanager
def flowing(traffic: Traffic, kinds: tuple[str, ...] = ()) -> Iterator[None]:
    """All kinds, or these, for as long; what is under way at the end is waited for."""
    over = threading.Event()
    threads = [
        threading.Thread(target=traffic._repeat, args=(kind, over), name=kind)
        for kind in kinds or traffic.kinds
    ]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join(4 * PATIENCE)
