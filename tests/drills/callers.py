"""People who call without a pause while something is done to the service, and keep account of what they were given."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from json import loads

import requests

from tests.served.shell import DONE, Shell, stand_in
from tests.telemetry.reports import event

PAUSE_SECONDS = 0.05
SHORT, LONGER = stand_in("tokens=9"), stand_in("tokens=20 delay=0.05")


@dataclass
class Account:
    """The totals given to all callers so far."""

    done: Counter[str] = field(default_factory=Counter)
    failed: list[str] = field(default_factory=list)
    told: list[str] = field(default_factory=list)
    slowest: dict[str, float] = field(default_factory=dict)
    input: int = 0
    output: int = 0
    calls: int = 0
    events: int = 0
    phase: str = ""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def charge(self, usage: dict[str, int]) -> None:
        with self.lock:
            self.calls += 1
            self.input += usage["prompt_tokens"]
            self.output += usage["completion_tokens"]


@contextmanager
def calling(shells: Sequence[Shell], account: Account) -> Iterator[None]:
    """Each of the shells does one thing after the other, until the end of the block."""
    over = threading.Event()
    threads = [
        threading.Thread(target=_call, args=(shell, account, over), daemon=True) for shell in shells
    ]
    for each in threads:
        each.start()
    try:
        yield
    finally:
        over.set()
        for each in threads:
            each.join()


def _call(shell: Shell, account: Account, over: threading.Event) -> None:
    while not over.is_set():
        for act in ACTS:
            began, phase = time.monotonic(), account.phase
            try:
                act(shell, account)
            except (requests.RequestException, AssertionError, ValueError) as error:
                with account.lock:
                    account.failed.append(f"{phase}: {act.__name__}: {error!r:.300}")
            else:
                account.done[act.__name__] += 1
            took = time.monotonic() - began
            over.wait(PAUSE_SECONDS)
            with account.lock:
                account.slowest[phase] = max(took, account.slowest.get(phase, 0.0))


def status(shell: Shell, account: Account) -> None:
    answer = _well(shell.get("/v1/license/status"))
    assert answer.json()["status"] == "active", answer.text


def usage(shell: Shell, account: Account) -> None:
    _well(shell.get("/v1/usage/me"))


def complete(shell: Shell, account: Account) -> None:
    account.charge(_well(shell.complete(SHORT)).json()["usage"])


def stream(shell: Shell, account: Account) -> None:
    with shell.stream(LONGER, stream_options={"include_usage": True}) as answer:
        assert answer.status == 200, answer.problem()
        events = [each for each in answer if each != ":"]
    last = events[-1]
    if last == DONE:
        account.charge(loads(events[-2])["usage"])
    else:
        # A stream may end early that says so itself.
        assert "error" in loads(last), last
        account.told.append(last)


def telemetry(shell: Shell, account: Account) -> None:
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    answer = shell.post("/v1/telemetry", {"events": [event(occurred_at=now)]})
    assert answer.status_code == 202, answer.text
    assert answer.json()["rejected"] == [], answer.text
    with account.lock:
        account.events += 1


def refresh(shell: Shell, account: Account) -> None:
    _well(shell.refresh())


def _well(response: requests.Response) -> requests.Response:
    assert response.status_code == 200, f"{response.status_code} {response.text}"
    return response


ACTS: tuple[Callable[[Shell, Account], None], ...] = (
    status,
    complete,
    stream,
    usage,
    telemetry,
    refresh,
)
