"""Time from the end of access to its effect: for the next call with a token, and for a running stream."""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from json import loads
from threading import Event

import pytest

from accounts.models import PasswordLink, User
from accounts.people.access import disable
from accounts.people.password_links import use_link
from accounts.sessions.revocation import revoke_all
from tests.served.browser import Browser
from tests.served.conftest import Ground, SignIn
from tests.served.database import Database
from tests.served.people import BY, Person, add_person
from tests.served.service import Service, running_service
from tests.served.shell import DONE, PATIENCE, Shell, stand_in
from tests.standins.provider_process import Provider

STREAMS_WITHIN = 15.0
STREAMS = 2
BETWEEN_CALLS = 0.02
LOOKS_EVERY = 0.25
LINK, NEW = "a-secret-that-was-mailed", "another good horse battery"


@dataclass(kw_only=True)
class Holder:
    """Somebody whose access is about to end: streams that run, and calls one after another."""

    person: Person
    shell: Shell
    # Of the same person; its session need not end.
    other: Shell
    running: list[Event] = field(default_factory=list)
    streams: list[Future[tuple[float, str]]] = field(default_factory=list)
    calls: Future[tuple[float, str]] | None = None
    taken_at: float = 0.0
    # By how much this machine itself was late meanwhile.
    late: float = 0.0

    def use(self, pool: ThreadPoolExecutor) -> None:
        """Begins with everything, and returns once all of it runs."""
        for _ in range(STREAMS):
            self.running.append(Event())
            self.streams.append(pool.submit(self._stream, self.running[-1]))
        self.running.append(Event())
        self.calls = pool.submit(self._call, self.running[-1])
        for each in self.running:
            assert each.wait(PATIENCE)

    def _stream(self, running: Event) -> tuple[float, str]:
        """Returns the time and the code of its end."""
        with self.shell.stream(stand_in("tokens=100000 delay=0.2")) as stream:
            stream.next_event()
            running.set()
            *_, last = stream
            assert last != DONE
            return time.monotonic(), loads(last)["error"]["code"]

    def _call(self, running: Event) -> tuple[float, str]:
        """Returns when the last answered call began, and how the next was refused."""
        answered = 0.0
        while True:
            began = time.monotonic()
            answer = self.shell.get("/v1/auth/me")
            if answer.status_code != 200:
                assert answer.status_code == 401
                return answered, answer.json()["code"]
            answered = began
            running.set()
            time.sleep(BETWEEN_CALLS)


def by_the_rule(service: Service, database: Database, holder: Holder) -> None:
    with database.rows():
        revoke_all(user_id=holder.person.id, by=BY, reason="Lost.", now=datetime.now(UTC))


def by_the_command(service: Service, database: Database, holder: Holder) -> None:
    service.manage("revoke_tokens", holder.person.email, "--reason", "Lost.")


def by_disabling(service: Service, database: Database, holder: Holder) -> None:
    with database.rows():
        disable(user_id=holder.person.id, by=BY, reason="Left.", now=datetime.now(UTC))


def by_another_password(service: Service, database: Database, holder: Holder) -> None:
    given = {"current": holder.person.password, "new": NEW}
    assert holder.other.post("/v1/auth/password/change", given).status_code == 204


def by_a_mailed_link(service: Service, database: Database, holder: Holder) -> None:
    now = datetime.now(UTC)
    with database.rows():
        PasswordLink.objects.create(
            user_id=holder.person.id,
            kind=PasswordLink.Kind.RESET,
            secret_hash=sha256(LINK.encode()).hexdigest(),
            epoch=User.objects.get(pk=holder.person.id).epoch,
            made_at=now,
            expires_at=now + timedelta(minutes=30),
        )
        use_link(presented=LINK, password=NEW, address=None, request_id="", now=now)


def by_ending_the_session(service: Service, database: Database, holder: Holder) -> None:
    sessions = holder.other.get("/v1/auth/sessions").json()["sessions"]
    (lost,) = (each["id"] for each in sessions if not each["current"])
    assert holder.other.call("DELETE", f"/v1/auth/sessions/{lost}").status_code == 204


def by_signing_out(service: Service, database: Database, holder: Holder) -> None:
    given = {"refresh": holder.shell.refresh_token}
    assert holder.other.post("/v1/auth/logout", given).status_code == 204


Way = Callable[[Service, Database, Holder], None]
WAYS: list[Way] = [
    by_the_rule,
    by_the_command,
    by_disabling,
    by_another_password,
    by_a_mailed_link,
    by_ending_the_session,
    by_signing_out,
]
OF_ONE_SESSION = (by_ending_the_session, by_signing_out)


def take_away(
    service: Service, database: Database, ways: list[Way], sign_in: SignIn
) -> Iterator[tuple[Way, Holder]]:
    """Each way for a person of its own, all at nearly the same time; gives them once everything has ended."""
    holders: list[tuple[Way, Holder]] = []
    for way in ways:
        person = add_person(database)
        shell, other = sign_in(service, person), sign_in(service, person)
        holders.append((way, Holder(person=person, shell=shell, other=other)))
    with lateness() as late, ThreadPoolExecutor(len(ways) * (STREAMS + 1)) as pool:
        for _, holder in holders:
            holder.use(pool)
        for way, holder in holders:
            way(service, database, holder)
            holder.taken_at = time.monotonic()
    for _, holder in holders:
        holder.late = sum(late)
    yield from holders


@contextmanager
def lateness() -> Iterator[list[float]]:
    """By how much a thread of this process is too late, each time that it sleeps for a moment."""
    late, over = [0.0], Event()

    def watch() -> None:
        while not over.is_set():
            began = time.monotonic()
            time.sleep(LOOKS_EVERY)
            late.append(time.monotonic() - began - LOOKS_EVERY)

    with ThreadPoolExecutor(1) as pool:
        pool.submit(watch)
        try:
            yield late
        finally:
            over.set()


def check_and_tell(way: Way, holder: Holder) -> None:
    """Every call that began after it was taken away is refused, and every stream has ended and says why."""
    assert holder.calls is not None
    last_answered, code = holder.calls.result()
    assert code == "access_revoked"
    assert last_answered < holder.taken_at
    ends = []
    for stream in holder.streams:
        ended_at, code = stream.result()
        assert code == "access_revoked"
        ends.append(ended_at - holder.taken_at)
    assert max(ends) < STREAMS_WITHIN + holder.late
    # The measured times; `pytest -s` shows them.
    print(
        f"\n{way.__name__}: last call answered began {holder.taken_at - last_answered:.3f} s before"
        f" the act was done; streams ended {min(ends):.1f} to {max(ends):.1f} s after it",
        end="",
    )


@pytest.mark.wall_time
@pytest.mark.full
def test_every_way_to_take_access_away_takes_it_from_calls_and_streams(
    service: Service, database: Database, provider: Provider, sign_in: SignIn
) -> None:
    for way, holder in take_away(service, database, WAYS, sign_in):
        check_and_tell(way, holder)
        assert holder.shell.refresh().json()["code"] == "invalid_refresh_token"
        others = holder.other.get("/v1/auth/me")
        assert others.status_code == (200 if way in OF_ONE_SESSION else 401)
        if way != by_disabling:
            password = NEW if way in {by_another_password, by_a_mailed_link} else None
            again = Shell(service.url)
            answer = again.login(holder.person.email, password or holder.person.password)
            assert answer.status_code == 200
            with again.stream(stand_in("tokens=5")) as stream:
                assert list(stream)[-1] == DONE
    provider.wait_for(lambda stats: stats["streams_open"] == 0)


@pytest.mark.wall_time
def test_the_console_says_within_what_time_and_keeps_its_word(
    service: Service, database: Database, demo: dict[str, str], sign_in: SignIn
) -> None:
    operator = Browser(service.url)
    operator.submit(
        "/admin/login/?next=/admin/",
        username=demo["operator_email"],
        password=demo["operator_password"],
    )

    def by_the_console(service: Service, database: Database, holder: Holder) -> None:
        page = f"/admin/accounts/user/{holder.person.id}/revoke/"
        assert (
            "Signed out everywhere (2 devices)."
            in operator.submit(page, reason="A laptop was lost.").text
        )

    for way, holder in take_away(service, database, [by_the_console], sign_in):
        check_and_tell(way, holder)


@pytest.fixture
def alone(ground: Ground) -> Iterator[Service]:
    """A service that has lost its cache, and no worker runs for it."""
    with ExitStack() as stack:
        nobody = {**ground.environ, "CACHE_URL": "redis://127.0.0.1:1/0"}
        yield stack.enter_context(running_service(ground.folder, nobody))


@pytest.mark.wall_time
@pytest.mark.full
def test_the_bound_holds_with_neither_cache_nor_worker(
    alone: Service, database: Database, sign_in: SignIn
) -> None:
    assert Shell(alone.url).refresh("x").headers["X-RateLimit-Degraded"] == "1"
    for way, holder in take_away(alone, database, [by_the_rule], sign_in):
        check_and_tell(way, holder)
        assert sign_in(alone, holder.person).get("/v1/auth/me").status_code == 200
