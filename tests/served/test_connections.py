"""Connections end to end: the service as it is run, and an OAuth server that others wrote."""

import json
import os
import runpy
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import requests
from django.db import connection, transaction
from pytest_django.plugin import DjangoDbBlocker

from accounts.connections.disconnecting import tokens_of
from accounts.models import AuditEvent, Connection, ConnectionRevocation
from tests.served.conftest import Ground, SignIn
from tests.served.crowd import all_at_once
from tests.served.database import Database, new_database
from tests.served.people import Person, add_person
from tests.served.service import WORKERS, Service, running_service, working_off
from tests.served.shell import PATIENCE, Shell
from tests.standins.oauth_server.running import CLIENT_SECRET, OAuthServer, running_oauth_server
from tests.tools.folders import ROOT
from tests.waiting import eventually

NAME = "sheets"
IN_TRANSACTION = (
    "SELECT query FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    " AND state <> 'idle' AND xact_start IS NOT NULL AND application_name = current_setting('application_name')"
)
REDIRECT = f"http://127.0.0.1:49152/oauth/{NAME}/callback"


@pytest.fixture(scope="module")
def party(
    django_db_blocker: DjangoDbBlocker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[OAuthServer]:
    folder = tmp_path_factory.mktemp("oauthserver")
    with (
        new_database(django_db_blocker.unblock) as database,
        running_oauth_server(folder, database.url, NAME) as server,
    ):
        yield server


@pytest.fixture(scope="module")
def connecting(ground: Ground, party: OAuthServer) -> Iterator[Service]:
    """A service that can connect the OAuth server, and one provider that is never there."""
    gone = {**party.provider, "token_endpoint": "http://127.0.0.1:9/token"}
    providers = json.dumps({NAME: party.provider, "gone": gone})
    with running_service(
        ground.folder, {**ground.environ, "OAUTH_PROVIDERS": providers}
    ) as service:
        yield service
        assert service.errors() == []


@pytest.fixture
def shell(connecting: Service, person: Person, sign_in: SignIn) -> Shell:
    return sign_in(connecting, person)


def begin(shell: Shell) -> dict[str, str]:
    response = shell.post(f"/v1/connections/{NAME}/authorize", {"redirect_uri": REDIRECT})
    assert response.status_code == 200, response.text
    begun: dict[str, str] = response.json()
    return begun


def complete(shell: Shell, **members: str) -> requests.Response:
    return shell.post(f"/v1/connections/{NAME}/complete", members)


def connect(shell: Shell, party: OAuthServer) -> dict[str, Any]:
    """Connects, and gives the answer that says so."""
    back = party.agree(begin(shell)["authorization_url"])
    response = complete(shell, code=back["code"], state=back["state"])
    assert response.status_code == 201, response.text
    connected: dict[str, Any] = response.json()
    return connected


def token(shell: Shell, **members: str) -> requests.Response:
    return shell.post(f"/v1/connections/{NAME}/token", members)


def connections(shell: Shell) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = shell.get("/v1/connections").json()["connections"]
    return listed


@contextmanager
def row(database: Database, person: Person) -> Iterator[Connection]:
    with database.rows():
        yield Connection.objects.select_related("user").get(user=person.id, provider=NAME)


def expire(database: Database, person: Person, **members: Any) -> None:
    """As if the access token's hour were over."""
    past = datetime.now(UTC) - timedelta(hours=2)
    with database.rows():
        Connection.objects.filter(user=person.id, provider=NAME).update(
            refreshed_at=past, expires_at=past + timedelta(hours=1), **members
        )


def let_the_lease_end(database: Database, person: Person) -> None:
    with database.rows():
        Connection.objects.filter(user=person.id).update(
            leased_until=datetime.now(UTC) - timedelta(seconds=1)
        )


def tokens(database: Database, person: Person) -> list[str]:
    """Refresh token and access token as they are kept."""
    with row(database, person) as kept:
        return [each for each in tokens_of(kept) if each]


def actions(database: Database, person: Person) -> list[str]:
    with database.rows():
        events = AuditEvent.objects.filter(
            target_id=str(person.id), action__startswith="connection"
        )
        return list(events.order_by("id").values_list("action", flat=True))


def test_a_person_connects_uses_and_disconnects(
    connecting: Service, party: OAuthServer, database: Database, person: Person, shell: Shell
) -> None:
    assert shell.get("/v1/connections").json() == {"connections": [], "providers": ["gone", NAME]}
    begun = begin(shell)
    back = party.agree(begun["authorization_url"])
    assert (back["address"], back["state"]) == (REDIRECT, begun["state"])
    done = complete(shell, code=back["code"], state=back["state"])
    assert done.status_code == 201
    assert done.json()["scopes"] == ["profile", "sheets"]
    assert connections(shell) == [done.json()]
    assert done.json()["state"] == "healthy"

    first, again = token(shell), token(shell)
    assert first.status_code == 200
    assert first.headers["Cache-Control"] == "no-store"
    assert first.json().keys() == {"access_token", "expires_at"}
    assert again.json() == first.json()
    assert party.is_live(first.json()["access_token"])

    kept = tokens(database, person)
    with working_off(connecting):
        assert shell.call("DELETE", f"/v1/connections/{NAME}").status_code == 204
        assert token(shell).json()["code"] == "connection_not_found"
        eventually(lambda: not party.is_live(first.json()["access_token"]))
        eventually(lambda: "connection:revoked" in actions(database, person))
    assert party.try_refresh(kept[0]) == 400
    assert shell.call("DELETE", f"/v1/connections/{NAME}").status_code == 404
    assert actions(database, person) == [
        "connection:authorised",
        "connection:removed",
        "connection:revoked",
    ]


def test_an_expired_token_is_renewed_with_a_refresh_token_that_rotates(
    party: OAuthServer, database: Database, person: Person, shell: Shell
) -> None:
    connect(shell, party)
    seen = [token(shell).json()["access_token"]]
    for _ in range(3):
        expire(database, person)
        seen.append(token(shell).json()["access_token"])
        assert party.is_live(seen[-1])
    assert len(set(seen)) == 4


def token_in_time(shell: Shell) -> requests.Response:
    """A caller that waits for another's refresh for over five seconds is told to come again, and does."""
    while (answer := token(shell)).status_code == 503:
        pass
    return answer


def test_many_callers_on_all_workers_cause_one_refresh(
    party: OAuthServer, database: Database, person: Person, shell: Shell
) -> None:
    connect(shell, party)
    for _ in range(3):
        expire(database, person)
        before = len(party.asked("refresh_token"))
        answers = all_at_once(24, lambda _: token_in_time(shell))
        assert {answer.status_code for answer in answers} == {200}
        assert len({answer.json()["access_token"] for answer in answers}) == 1
        assert party.asked("refresh_token")[before:] == [200]
    # Had two been asked with one token, the server would have ended the whole family.
    assert party.is_live(answers[0].json()["access_token"])


def nobody_is_in_a_transaction() -> bool:
    """Call it inside ``rows()``."""
    with connection.cursor() as cursor:
        cursor.execute(IN_TRANSACTION)
        return cursor.fetchall() == []


def test_no_transaction_or_lock_is_held_while_the_provider_is_waited_for(
    party: OAuthServer, database: Database, person: Person, shell: Shell
) -> None:
    connect(shell, party)
    expire(database, person)

    def call(number: int) -> int:
        if number:
            return token(shell).status_code
        party.wait_until_held()
        with database.rows():
            # Background work of other processes takes a moment; this transaction lasts as long as the test needs.
            eventually(nobody_is_in_a_transaction)
            with transaction.atomic():
                Connection.objects.select_for_update(nowait=True).get(user=person.id)
        party.let_go()
        return 200

    with party.holding():
        assert set(all_at_once(2, call)) == {200}


# For a service of its own, and the patience of who waits for somebody dead.
@pytest.mark.wire
def test_a_worker_killed_in_mid_refresh_costs_at_most_the_grant_and_says_so(
    ground: Ground, party: OAuthServer, database: Database, sign_in: SignIn
) -> None:
    """The server has rotated and the answer is lost: what only a dead process knew cannot be had again."""
    person = add_person(database)
    environ = {**ground.environ, "OAUTH_PROVIDERS": json.dumps({NAME: party.provider})}
    with running_service(ground.folder, environ) as mortal:
        shell = sign_in(mortal, person)
        connect(shell, party)
        expire(database, person)
        before = mortal.workers()

        def call(number: int) -> None:
            if number:
                with pytest.raises(requests.RequestException):
                    token(shell)
                return
            party.wait_until_held()
            for worker in before:
                os.kill(worker, signal.SIGKILL)

        with party.holding():
            all_at_once(2, call)
        eventually(lambda: len(mortal.workers()) == WORKERS and not {*before} & {*mortal.workers()})
        with database.rows():
            # A machine that stands still does not outlast it.
            left = Connection.objects.filter(user=person.id, leased_until__gt=datetime.now(UTC))
            left.update(leased_until=datetime.now(UTC) + timedelta(hours=1))
        # The row is as it was, and the lease bars everyone until it ends by itself.
        answer = token(shell)
        assert (answer.status_code, answer.json()["code"]) == (503, "service_unavailable")
        assert int(answer.headers["Retry-After"]) > 0
        let_the_lease_end(database, person)
        answer = token(shell)
        assert (answer.status_code, answer.json()["code"]) == (409, "reauthorisation_needed")
        with row(database, person) as lapsed:
            assert lapsed.lapse == Connection.Lapse.ANSWER_LOST
        assert connections(shell)[0]["state"] == "reauthorisation_needed"
        connect(shell, party)
        assert token(shell).status_code == 200


def test_a_worker_killed_before_the_provider_was_asked_costs_nothing(
    connecting: Service, party: OAuthServer, database: Database, person: Person, shell: Shell
) -> None:
    connect(shell, party)
    # The killed process leaves a lease.
    expire(database, person, leased_until=datetime.now(UTC) - timedelta(seconds=1))
    assert token(shell).status_code == 200
    assert connections(shell)[0]["state"] == "healthy"


def test_a_provider_that_is_down_is_no_revoked_grant(
    party: OAuthServer, database: Database, person: Person, shell: Shell
) -> None:
    connect(shell, party)
    expire(database, person)
    party.stop()
    try:
        for _ in range(2):
            answer = token(shell)
            assert (answer.status_code, answer.json()["code"]) == (503, "provider_unavailable")
            assert int(answer.headers["Retry-After"]) > 0
        assert connections(shell)[0]["state"] == "unavailable"
    finally:
        party.start()
    # It is left alone until a time, and asked again after that.
    expire(database, person, ask_again_at=datetime.now(UTC) + timedelta(minutes=1))
    assert token(shell).status_code == 503
    expire(database, person, ask_again_at=datetime.now(UTC))
    assert token(shell).status_code == 200
    assert connections(shell)[0]["state"] == "healthy"
    assert "connection:reauthorisation_needed" not in actions(database, person)


def test_a_grant_revoked_at_the_provider_needs_the_person_again(
    party: OAuthServer, database: Database, person: Person, shell: Shell
) -> None:
    connect(shell, party)
    refresh, access = tokens(database, person)
    party.revoke(refresh)
    # Until the shell says that the third party refuses the token, nobody here can know.
    assert token(shell).status_code == 200
    with database.rows():
        Connection.objects.filter(user=person.id).update(
            refreshed_at=datetime.now(UTC) - timedelta(minutes=1)
        )
    assert token(shell, refused="another").status_code == 200
    for _ in range(2):
        answer = token(shell, refused=access)
        assert (answer.status_code, answer.json()["code"]) == (409, "reauthorisation_needed")
    assert connections(shell)[0]["state"] == "reauthorisation_needed"
    assert connect(shell, party)["state"] == "healthy"
    assert token(shell).json()["access_token"] != access
    assert actions(database, person) == [
        "connection:authorised",
        "connection:reauthorisation_needed",
        "connection:authorised",
    ]


def test_the_documented_shell_connects_and_asks_the_person_again_once_the_grant_has_ended(
    party: OAuthServer, database: Database, person: Person, shell: Shell
) -> None:
    documented = runpy.run_path(str(ROOT / "docs" / "examples" / "python" / "connect.py"))
    again, call = documented["AskThePerson"], shell.call

    def browse(url: str, *, allow: bool = True) -> None:
        """Agrees or declines, after another page has tried the port."""
        back = party.agree(url, allow=allow)
        address = back.pop("address")
        for query in ({"state": "of another", "code": "theirs"}, back):
            requests.get(address, params=query, timeout=PATIENCE)
        assert requests.get(address + "/other", timeout=PATIENCE).status_code == 404

    def connect(**options: bool) -> None:
        open_browser = partial(browse, **options)
        with ThreadPoolExecutor(1) as pool:
            documented["connect"](call, NAME, lambda url: pool.submit(open_browser, url))

    with pytest.raises(again, match="access_denied"):
        connect(allow=False)
    with pytest.raises(again):
        documented["token"](call, NAME)
    connect()
    first = documented["token"](call, NAME)
    assert party.is_live(first)
    refresh, _ = tokens(database, person)
    party.revoke(refresh)
    # A token that was just made is not renewed for a refusal.
    with database.rows():
        long_ago = datetime.now(UTC) - timedelta(minutes=1)
        Connection.objects.filter(user=person.id).update(refreshed_at=long_ago)
    with pytest.raises(again):
        documented["token"](call, NAME, first)
    connect()
    assert party.is_live(documented["token"](call, NAME))
    documented["disconnect"](call, NAME)
    assert connections(shell) == []


def test_disconnecting_while_the_provider_is_down_is_made_good_once_it_is_back(
    connecting: Service, party: OAuthServer, database: Database, person: Person, shell: Shell
) -> None:
    connect(shell, party)
    refresh, access = tokens(database, person)

    def waiting() -> ConnectionRevocation | None:
        with database.rows():
            return ConnectionRevocation.objects.filter(user_id=person.id).first()

    with working_off(connecting):
        party.stop()
        try:
            assert shell.call("DELETE", f"/v1/connections/{NAME}").status_code == 204
            assert connections(shell) == []
            eventually(lambda: (row := waiting()) is not None and row.attempts > 0)
        finally:
            party.start()
        assert party.is_live(access)
        # It tries again some seconds after the first failure.
        eventually(lambda: waiting() is None, seconds=150)
    assert not party.is_live(access)
    assert party.try_refresh(refresh) == 400
    assert actions(database, person)[-1] == "connection:revoked"


def test_a_state_serves_one_person_one_session_one_provider_once(
    connecting: Service, party: OAuthServer, database: Database, person: Person, sign_in: SignIn
) -> None:
    shell, elsewhere = sign_in(connecting, person), sign_in(connecting, person)
    stranger = sign_in(connecting, add_person(database))
    back = party.agree(begin(shell)["authorization_url"])
    given = {"code": back["code"], "state": back["state"]}

    def refused(response: requests.Response) -> bool:
        return (response.status_code, response.json()["code"]) == (400, "state_invalid")

    assert refused(complete(stranger, **given))
    assert refused(complete(elsewhere, **given))
    assert refused(shell.post("/v1/connections/gone/complete", given))
    assert refused(complete(shell, **{**given, "state": "A" * 43}))
    assert refused(complete(shell, **{**given, "state": given["state"].swapcase()}))
    # None of that has used it up; of many at once exactly one does.
    answers = all_at_once(8, lambda _: complete(shell, **given))
    assert sorted(answer.status_code for answer in answers) == [201] + [400] * 7
    assert refused(complete(shell, **given))


def test_a_code_from_somebody_elses_browser_cannot_be_brought_in(
    connecting: Service, party: OAuthServer, database: Database, sign_in: SignIn
) -> None:
    """Its PKCE verifier belongs to another authorisation."""
    mine, theirs = (sign_in(connecting, add_person(database)) for _ in range(2))
    stolen = party.agree(begin(theirs)["authorization_url"])
    answer = complete(mine, code=stolen["code"], state=begin(mine)["state"])
    assert (answer.status_code, answer.json()["code"]) == (400, "provider_rejected")


def test_secrets_of_connections_reach_no_log_and_no_row(
    connecting: Service, party: OAuthServer, database: Database, person: Person, shell: Shell
) -> None:
    begun = begin(shell)
    back = party.agree(begun["authorization_url"])
    complete(shell, code="made-up-canary-code", state=begin(shell)["state"])
    complete(shell, code=back["code"], state=back["state"])
    said = {CLIENT_SECRET, begun["state"], back["code"], "made-up-canary-code"}
    said |= {*tokens(database, person), token(shell).json()["access_token"]}
    expire(database, person)
    said |= {token(shell).json()["access_token"], *tokens(database, person)}
    with working_off(connecting) as worker:
        shell.call("DELETE", f"/v1/connections/{NAME}")
        eventually(lambda: "connection:revoked" in actions(database, person))
    logs = [Path(each).read_text() for each in (connecting.child.program.log, worker.program.log)]
    with database.rows():
        events = str(list(AuditEvent.objects.values()))
        left = str(list(Connection.objects.values()) + list(ConnectionRevocation.objects.values()))
    for secret in said:
        assert not [text for text in (*logs, events, left) if secret in text]


def test_a_provider_that_is_not_set_up_says_so(shell: Shell) -> None:
    redirect = "http://127.0.0.1:1/oauth/nobody/callback"
    asked: list[Callable[[], requests.Response]] = [
        lambda: shell.post("/v1/connections/nobody/authorize", {"redirect_uri": redirect}),
        lambda: shell.post("/v1/connections/nobody/complete", {"code": "c", "state": "s"}),
        lambda: shell.post("/v1/connections/nobody/token"),
    ]
    for ask in asked:
        assert (ask().status_code, ask().json()["code"]) == (503, "not_configured")
