"""Whatever takes access away, at the same moment as what grants it: nothing that was granted outlives it."""

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from functools import partial
from typing import Any

import pytest
from django.db import connection, transaction
from rest_framework.test import APIClient

from accounts.audit import Actor
from accounts.models import AuditEvent, Client, RefreshToken, Session, User
from accounts.people.access import delete_user, disable
from accounts.people.users import change_password, set_password
from accounts.sessions.access_tokens import AccessToken
from accounts.sessions.authentication import AccessRevoked, AccessTokenAuthentication
from accounts.sessions.refresh_tokens import RefreshSecret
from accounts.sessions.revocation import end_session, revoke_all, revoke_everything, sign_out
from accounts.sessions.rotation import InvalidRefreshToken, rotate
from accounts.sessions.sign_in import Device, InvalidCredentials, TokenPair, sign_in
from tests.accounts.connections.conftest import REDIRECT, configure
from tests.accounts.connections.party import Party
from tests.conftest import PASSWORD
from tests.races import race
from tests.waiting import eventually

pytestmark = pytest.mark.django_db(transaction=True)

ROUNDS = 6
# The race that an attacker with a stolen token would try, often enough to see one in a hundred.
MANY_ROUNDS = 200
KEY = "k" * 22
NEW = "another good horse battery"

# Takes away from the holder of a pair.
Ender = Callable[[User, TokenPair, Actor, datetime], object]


def by_revoking(user: User, pair: TokenPair, by: Actor, now: datetime) -> object:
    return revoke_all(user_id=user.pk, by=by, reason="race", now=now)


def by_revoking_everybody(user: User, pair: TokenPair, by: Actor, now: datetime) -> object:
    return revoke_everything(by=by, reason="race", now=now)


def by_signing_out(user: User, pair: TokenPair, by: Actor, now: datetime) -> object:
    return sign_out(presented=pair.refresh, by_address=None, request_id="", now=now)


def by_ending_the_session(user: User, pair: TokenPair, by: Actor, now: datetime) -> object:
    session = Session.objects.select_related("user").get(user=user, ended_at=None)
    return end_session(session=session, why=Session.Ended.LOGOUT, by=by, now=now)


def by_disabling(user: User, pair: TokenPair, by: Actor, now: datetime) -> object:
    return disable(user_id=user.pk, reason="race", by=by, now=now)


def by_an_operators_password(user: User, pair: TokenPair, by: Actor, now: datetime) -> object:
    return set_password(user_id=user.pk, password=NEW, by=by, now=now)


def by_ones_own_password(user: User, pair: TokenPair, by: Actor, now: datetime) -> object:
    return change_password(user_id=user.pk, current=PASSWORD, new=NEW, by=by, now=now)


def by_deleting(user: User, pair: TokenPair, by: Actor, now: datetime) -> object:
    return delete_user(user_id=user.pk, reason="race", by=by, now=now)


ENDERS: list[Ender] = [
    by_revoking,
    by_revoking_everybody,
    by_signing_out,
    by_ending_the_session,
    by_disabling,
    by_an_operators_password,
    by_ones_own_password,
    by_deleting,
]
KEEPS_OUT: list[Ender] = [
    by_disabling,
    by_an_operators_password,
    by_ones_own_password,
    by_deleting,
]


@pytest.fixture
def somebody(organisation: Client, signing_key: None, settings: Any) -> Callable[[], User]:
    """A new person for each round, with a password that is cheap to check: it is not what is tried here."""
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]

    def make() -> User:
        email = f"person-{User.objects.count()}-{Session.objects.count()}@acme.test"
        return User.objects.create_user(email, PASSWORD, client=organisation)

    return make


def enter(user: User, now: datetime) -> TokenPair:
    return sign_in(email=user.email, password=PASSWORD, device=Device(), now=now)


def refresh(token: str, now: datetime, key: str | None = None) -> TokenPair:
    return rotate(presented=token, device=Device(), retry_key=key, now=now)


def assert_dead(pair: TokenPair) -> None:
    with pytest.raises(AccessRevoked):
        AccessTokenAuthentication().get_user(AccessToken(pair.access.encode()))


def assert_nothing_lives(user: User, results: Any, refusals: type[Exception]) -> None:
    """No token, no box, no access; and whoever was not granted anything was refused properly."""
    assert not RefreshToken.objects.filter(user=user).unrevoked().exists()
    assert not RefreshToken.objects.filter(user=user, retry_box__isnull=False).exists()
    assert not Session.objects.filter(user=user, ended_at=None).exists()
    for result in results:
        if isinstance(result, TokenPair):
            assert_dead(result)
        else:
            assert not isinstance(result, Exception) or isinstance(result, refusals), result


@pytest.mark.parametrize("ender", ENDERS)
def test_no_refresh_outlives_the_end(
    ender: Ender, somebody: Callable[[], User], by: Actor, now: datetime
) -> None:
    for _ in range(MANY_ROUNDS if ender is by_revoking else ROUNDS):
        user = somebody()
        pair = enter(user, now)
        results = race(
            partial(refresh, pair.refresh, now, KEY),
            partial(ender, user, pair, by, now),
            partial(refresh, pair.refresh, now, KEY),
        )
        assert not isinstance(results[1], Exception), results[1]
        assert_nothing_lives(user, results, InvalidRefreshToken)
        assert_dead(pair)


@pytest.mark.parametrize("ender", KEEPS_OUT)
def test_no_login_outlives_what_keeps_one_out(
    ender: Ender, somebody: Callable[[], User], by: Actor, now: datetime
) -> None:
    for _ in range(ROUNDS):
        user = somebody()
        pair = enter(user, now)
        results = race(partial(enter, user, now), partial(ender, user, pair, by, now))
        assert not isinstance(results[1], Exception), results[1]
        assert_nothing_lives(user, results, InvalidCredentials)


@pytest.mark.parametrize("ender", [by_revoking, by_revoking_everybody])
def test_a_login_that_races_the_kill_switch_is_either_revoked_or_complete(
    ender: Ender, somebody: Callable[[], User], by: Actor, now: datetime
) -> None:
    for _ in range(ROUNDS):
        user = somebody()
        before = enter(user, now)
        fresh, done = race(partial(enter, user, now), partial(ender, user, before, by, now))
        assert isinstance(fresh, TokenPair), fresh
        assert not isinstance(done, Exception), done
        assert_dead(before)
        if Session.objects.filter(user=user, ended_at=None).exists():
            assert AccessTokenAuthentication().get_user(AccessToken(fresh.access.encode()))
            assert refresh(fresh.refresh, now)
        else:
            assert_nothing_lives(user, [fresh], InvalidCredentials)


def test_one_of_many_concurrent_refreshes_wins_and_the_session_ends_with_one_event(
    somebody: Callable[[], User], now: datetime
) -> None:
    for _ in range(ROUNDS):
        user = somebody()
        pair = enter(user, now)
        results = race(*[partial(refresh, pair.refresh, now)] * 8)
        assert sum(isinstance(each, TokenPair) for each in results) == 1
        assert_nothing_lives(user, results, InvalidRefreshToken)
        session = Session.objects.get(user=user)
        assert session.ended_by == Session.Ended.REUSE
        events = AuditEvent.objects.filter(target_id=str(session.pk))
        assert events.filter(action="session:token_reused").count() == 1
        assert events.filter(action="session:ended").count() == 1


def test_many_keyed_retries_get_the_same_successor_and_it_serves_once(
    somebody: Callable[[], User], now: datetime
) -> None:
    for _ in range(ROUNDS):
        user = somebody()
        pair = enter(user, now)
        results = race(*[partial(refresh, pair.refresh, now, KEY)] * 8)
        given = {each.refresh for each in results if isinstance(each, TokenPair)}
        assert len(given) == 1, results
        assert all(isinstance(each, TokenPair) for each in results)
        assert RefreshToken.objects.filter(user=user).live(at=now).count() == 1
        assert refresh(given.pop(), now)
        assert not RefreshToken.objects.filter(user=user, retry_box__isnull=False).exists()


def test_a_retry_beside_the_first_use_of_its_successor_makes_no_second_chain(
    somebody: Callable[[], User], now: datetime
) -> None:
    for _ in range(ROUNDS):
        user = somebody()
        first = enter(user, now).refresh
        second = refresh(first, now, KEY).refresh
        used, again = race(partial(refresh, second, now), partial(refresh, first, now, KEY))
        if isinstance(again, TokenPair):
            # The retry was first: it got what was then used.
            assert again.refresh == second
            assert isinstance(used, TokenPair)
            assert RefreshToken.objects.filter(user=user).live(at=now).count() == 1
        else:
            assert isinstance(again, InvalidRefreshToken)
            assert_nothing_lives(user, [used], InvalidRefreshToken)


def test_a_keyed_and_an_unkeyed_use_of_one_token_are_two_holders(
    somebody: Callable[[], User], now: datetime
) -> None:
    for _ in range(ROUNDS):
        user = somebody()
        first = enter(user, now).refresh
        results = race(partial(refresh, first, now, KEY), partial(refresh, first, now))
        assert sum(isinstance(each, TokenPair) for each in results) == 1
        assert_nothing_lives(user, results, InvalidRefreshToken)
        assert RefreshToken.objects.filter(pk=RefreshSecret.parse(first).id, retry_box=None)


REVOKED = (401, "access_revoked")


@pytest.mark.parametrize(
    ("asked", "body", "told"),
    [
        ("POST /v1/auth/logout", {}, (204, "")),
        ("POST /v1/auth/password/change", {"current": PASSWORD, "new": NEW}, REVOKED),
        ("DELETE /v1/auth/sessions", {}, REVOKED),
        ("DELETE /v1/auth/sessions/{session}", {}, REVOKED),
        ("POST /v1/connections/sheets/authorize", {"redirect_uri": REDIRECT}, REVOKED),
    ],
)
def test_a_person_deleted_while_their_call_is_under_way_has_lost_their_access(
    asked: str,
    body: dict[str, str],
    told: tuple[int, str],
    somebody: Callable[[], User],
    settings: Any,
    api: APIClient,
    by: Actor,
    now: datetime,
) -> None:
    configure(settings, sheets=Party("http://127.0.0.1").provider())
    user = somebody()
    pair = enter(user, now)
    method, path = asked.format(session=Session.objects.get().pk).split()
    api.credentials(HTTP_AUTHORIZATION=f"Bearer {pair.access}")
    given = json.dumps({"refresh": pair.refresh, **body})

    def call() -> tuple[int, str]:
        answer = api.generic(method, path, given, "application/json")
        connection.close()
        return answer.status_code, answer.json()["code"] if answer.content else ""

    with ThreadPoolExecutor(1) as pool:
        with transaction.atomic():
            by_deleting(user, pair, by, now)
            answer = pool.submit(call)
            until_somebody_waits()
        assert answer.result(100) == told


def until_somebody_waits() -> None:
    """Until another connection waits for what this one has locked."""
    with connection.cursor() as cursor:

        def waits() -> bool:
            # Within a transaction the first answer would be given again.
            cursor.execute("SELECT pg_stat_clear_snapshot()")
            cursor.execute(
                "SELECT count(*) FROM pg_stat_activity"
                " WHERE pg_backend_pid() = ANY (pg_blocking_pids(pid))"
            )
            return bool(cursor.fetchone() != (0,))

        eventually(waits)
