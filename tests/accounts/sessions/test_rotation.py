"""Rotation and the keyed retry of a lost answer."""

from datetime import datetime, timedelta
from unittest.mock import Mock

import jwt
import pytest
from django.db import IntegrityError, connection
from django.db.models import F
from pytest_django import DjangoAssertNumQueries
from rest_framework.test import APIClient

from accounts.audit import Actor
from accounts.keys.key_ring import KeyRing
from accounts.models import AuditEvent, RefreshToken, Session, User
from accounts.people.access import delete_user, disable
from accounts.sessions.refresh_tokens import RefreshSecret
from accounts.sessions.retries import checked_key, unseal, wipe_expired
from accounts.sessions.revocation import end_session, revoke_all, sign_out
from accounts.sessions.rotation import InvalidRefreshToken, rotate
from accounts.sessions.sign_in import Device, TokenPair, sign_in
from config.platform.problems.problem import InvalidRequest, ServiceUnavailable
from tests.conftest import PASSWORD


def refreshed(token: str, now: datetime) -> TokenPair:
    return rotate(presented=token, device=Device(address="192.0.2.9"), now=now)


@pytest.mark.django_db
class TestRotation:
    def test_each_use_gives_the_next_of_the_chain(self, pair: TokenPair, now: datetime) -> None:
        second = refreshed(pair.refresh, now)
        third = refreshed(second.refresh, now)
        assert len({pair.refresh, second.refresh, third.refresh}) == 3
        first = RefreshToken.objects.get(pk=RefreshSecret.parse(pair.refresh).id)
        assert first.replaced_by_id == RefreshSecret.parse(second.refresh).id
        assert RefreshToken.objects.live(at=now).count() == 1
        assert Session.objects.count() == 1

    def test_a_replaced_token_ends_its_session(self, pair: TokenPair, now: datetime) -> None:
        second = refreshed(pair.refresh, now)
        with pytest.raises(InvalidRefreshToken):
            refreshed(pair.refresh, now + timedelta(hours=2))
        with pytest.raises(InvalidRefreshToken):
            refreshed(second.refresh, now)
        assert not RefreshToken.objects.unrevoked().exists()
        assert Session.objects.get().ended_by == Session.Ended.REUSE

    def test_refreshing_leaves_other_sessions_alone(
        self, pair: TokenPair, user: User, now: datetime
    ) -> None:
        other = sign_in(email=user.email, password=PASSWORD, device=Device(), now=now)
        refreshed(pair.refresh, now)
        with pytest.raises(InvalidRefreshToken):
            refreshed(pair.refresh, now)
        assert refreshed(other.refresh, now).access

    @pytest.mark.parametrize(
        "case", ["expired", "revoked", "disabled", "client-less", "signed out"]
    )
    def test_a_token_that_no_longer_counts_is_refused(
        self, case: str, pair: TokenPair, user: User, by: Actor, now: datetime
    ) -> None:
        at = now
        if case == "expired":
            at = now + timedelta(days=30)
        elif case == "revoked":
            revoke_all(user_id=user.pk, by=by, reason="test", now=now)
        elif case == "disabled":
            User.objects.update(is_active=False)
        elif case == "client-less":
            User.objects.update(client=None)
        else:
            sign_out(presented=pair.refresh, by_address=None, request_id="", now=now)
        with pytest.raises(InvalidRefreshToken):
            refreshed(pair.refresh, at)
        assert RefreshToken.objects.count() == 1, "a refusal makes nothing"

    def test_the_right_id_with_a_wrong_half_is_refused_and_changes_nothing(
        self, pair: TokenPair, now: datetime
    ) -> None:
        forged = RefreshSecret(RefreshSecret.parse(pair.refresh).raw[:16] + bytes(16)).text()
        with pytest.raises(InvalidRefreshToken):
            refreshed(forged, now)
        sign_out(presented=forged, by_address=None, request_id="", now=now)
        assert refreshed(pair.refresh, now).access

    def test_a_key_that_cannot_sign_costs_nobody_their_token(
        self, pair: TokenPair, now: datetime, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with monkeypatch.context() as broken:
            broken.setattr(KeyRing, "signer", Mock(side_effect=ServiceUnavailable))
            with pytest.raises(ServiceUnavailable):
                refreshed(pair.refresh, now)
        assert refreshed(pair.refresh, now).access

    @pytest.mark.parametrize("key", [None, "k" * 22])
    def test_a_rotation_takes_three_statements(
        self,
        key: str | None,
        pair: TokenPair,
        now: datetime,
        django_assert_num_queries: DjangoAssertNumQueries,
    ) -> None:
        with django_assert_num_queries(3):
            rotate(presented=pair.refresh, device=Device(), retry_key=key, now=now)

    def test_a_token_of_an_epoch_that_is_over_is_refused_under_the_lock(
        self, pair: TokenPair, now: datetime, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def moved(self: RefreshSecret) -> str:
            # Between finding the token and replacing it.
            User.objects.update(epoch=F("epoch") + 1)
            return "hash"

        monkeypatch.setattr(RefreshSecret, "hash", moved)
        with pytest.raises(InvalidRefreshToken):
            refreshed(pair.refresh, now)
        assert RefreshToken.objects.count() == 1, "a refusal makes nothing"


KEY = "k" * 22


def retried(token: str, now: datetime, *, key: str | None = KEY, device: str = "desk") -> TokenPair:
    return rotate(presented=token, device=Device(fingerprint=device), retry_key=key, now=now)


@pytest.mark.django_db
class TestKeyedRetry:
    def test_a_lost_answer_is_given_again(self, pair: TokenPair, now: datetime) -> None:
        first = retried(pair.refresh, now)
        again = retried(pair.refresh, now + timedelta(hours=23))
        assert again.refresh == first.refresh
        assert Session.objects.get().ended_at is None
        assert retried(again.refresh, now + timedelta(hours=23)).refresh != first.refresh

    @pytest.mark.parametrize(
        "retry",
        [{"key": None}, {"key": "x" * 22}, {"device": "another"}, {"after": timedelta(hours=24)}],
    )
    def test_anything_else_is_reuse(self, pair: TokenPair, now: datetime, retry: dict) -> None:
        retried(pair.refresh, now)
        at = now + retry.pop("after", timedelta(seconds=1))
        with pytest.raises(InvalidRefreshToken):
            retried(pair.refresh, at, **retry)
        assert Session.objects.get().ended_by == Session.Ended.REUSE

    def test_the_retry_box_is_emptied_once_the_successor_is_used(
        self, pair: TokenPair, now: datetime
    ) -> None:
        second = retried(pair.refresh, now)
        assert RefreshToken.objects.filter(retry_box__isnull=False).count() == 1
        retried(second.refresh, now, key=None)
        assert not RefreshToken.objects.filter(retry_box__isnull=False).exists()
        with pytest.raises(InvalidRefreshToken):
            retried(pair.refresh, now)
        assert AuditEvent.objects.get(action="session:token_reused").after["kind"] == "stale"

    @pytest.mark.parametrize("end", ["revoked", "ended", "signed out", "disabled", "reuse"])
    def test_every_end_of_the_session_empties_it_at_once(
        self, pair: TokenPair, user: User, by: Actor, now: datetime, end: str
    ) -> None:
        second = retried(pair.refresh, now)
        session = Session.objects.get()
        if end == "revoked":
            revoke_all(user_id=user.pk, by=by, reason="test", now=now)
        elif end == "ended":
            end_session(session=session, why=Session.Ended.REVOKED, by=by, now=now)
        elif end == "signed out":
            sign_out(presented=second.refresh, by_address=None, request_id="", now=now)
        elif end == "disabled":
            disable(user_id=user.pk, reason="test", by=by, now=now)
        else:
            with pytest.raises(InvalidRefreshToken):
                retried(pair.refresh, now, key=None)
        assert not RefreshToken.objects.filter(retry_box__isnull=False).exists()
        with pytest.raises(InvalidRefreshToken):
            retried(pair.refresh, now)

    def test_the_retry_box_is_deleted_with_the_person(
        self, pair: TokenPair, user: User, by: Actor, now: datetime
    ) -> None:
        retried(retried(pair.refresh, now).refresh, now)
        delete_user(user_id=user.pk, reason="test", by=by, now=now)
        assert not RefreshToken.objects.exists()

    def test_a_session_that_had_its_time_keeps_none(
        self, user: User, signing_key: None, now: datetime, settings
    ) -> None:
        settings.SESSION_DAYS = 1
        first = sign_in(
            email=user.email, password=PASSWORD, device=Device(fingerprint="desk"), now=now
        ).refresh
        late = now + timedelta(hours=23)
        retried(first, late)
        over = now + timedelta(days=1)
        assert wipe_expired(now=over - timedelta(seconds=1)) == 0
        assert wipe_expired(now=over) == 1

    def test_a_day_later_it_is_wiped(self, pair: TokenPair, now: datetime) -> None:
        retried(pair.refresh, now)
        assert wipe_expired(now=now + timedelta(hours=23, minutes=59)) == 0
        assert wipe_expired(now=now + timedelta(hours=24)) == 1

    def test_the_successor_is_stored_in_no_readable_form(
        self, pair: TokenPair, now: datetime
    ) -> None:
        second = RefreshSecret.parse(retried(pair.refresh, now).refresh)
        box = bytes(RefreshToken.objects.get(retry_box__isnull=False).retry_box)
        assert second.raw[16:] not in box
        presented = RefreshSecret.parse(pair.refresh)
        assert unseal(box, presented=presented, key=KEY, device="desk") == second
        assert unseal(box, presented=second, key=KEY, device="desk") is None

    @pytest.mark.parametrize("key", ["k" * 21, "k" * 65, "é" * 30])
    def test_a_key_that_cannot_be_random_is_refused(self, key: str) -> None:
        with pytest.raises(InvalidRequest):
            checked_key(key)


@pytest.mark.django_db
def test_a_race_is_tolerated_only_where_operators_chose_to(
    pair: TokenPair, now: datetime, settings
) -> None:
    settings.REFRESH_RACE_SECONDS = 2
    second = retried(pair.refresh, now, key=None, device="")
    with pytest.raises(InvalidRefreshToken):
        retried(pair.refresh, now + timedelta(seconds=1), key=None, device="")
    assert Session.objects.get().ended_at is None
    third = retried(second.refresh, now + timedelta(seconds=1), key=None, device="")
    with pytest.raises(InvalidRefreshToken):
        retried(second.refresh, now + timedelta(seconds=3), key=None, device="")
    assert Session.objects.get().ended_by == Session.Ended.REUSE
    assert third.refresh


@pytest.mark.django_db
class TestTheEndOfASession:
    """``SESSION_DAYS`` after its login a session is over, with everything that was given out in it."""

    @pytest.fixture(autouse=True)
    def _one_day(self, settings) -> None:
        settings.SESSION_DAYS = 1

    def test_no_access_token_outlives_it(
        self, user: User, signing_key: None, now: datetime
    ) -> None:
        end = int((now + timedelta(days=1)).timestamp())
        first = sign_in(email=user.email, password=PASSWORD, device=Device(), now=now)
        assert first.expires_in == lasts(first) == 3600
        late = now + timedelta(hours=23, minutes=50)
        for pair in (
            retried(first.refresh, late, device=""),
            retried(first.refresh, late, device=""),
        ):
            assert claims(pair)["exp"] == end
            assert pair.expires_in == lasts(pair)
            assert 599 <= pair.expires_in <= 601

    def test_the_first_token_ends_with_a_session_shorter_than_an_hour(
        self, user: User, signing_key: None, now: datetime, settings
    ) -> None:
        settings.SESSION_DAYS = 1 / 48
        pair = sign_in(email=user.email, password=PASSWORD, device=Device(), now=now)
        assert pair.expires_in == lasts(pair) == 1800

    def test_nothing_refreshes_after_it(self, user: User, signing_key: None, now: datetime) -> None:
        first = sign_in(email=user.email, password=PASSWORD, device=Device(), now=now)
        over = now + timedelta(days=1)
        with pytest.raises(InvalidRefreshToken):
            refreshed(first.refresh, over)
        assert not Session.objects.live(at=over).exists()

    def test_an_end_that_is_moved_to_the_past_by_sql_is_that_of_everything(
        self, signed_in: APIClient, pair: TokenPair, now: datetime
    ) -> None:
        second = retried(pair.refresh, now, device="")
        assert signed_in.get("/v1/auth/me").status_code == 200
        with connection.cursor() as cursor:
            cursor.execute("UPDATE accounts_session SET expires_at = now() - interval '1 hour'")
        assert signed_in.get("/v1/auth/me").json()["code"] == "access_revoked"
        assert not Session.objects.live(at=now).exists()
        # The last of the chain, and then the retry of the one before it.
        for token in (second.refresh, pair.refresh):
            with pytest.raises(InvalidRefreshToken):
                retried(token, now, device="")
        assert RefreshToken.objects.count() == 2, "a refusal makes nothing"


def claims(pair: TokenPair) -> dict:
    return jwt.decode(pair.access, options={"verify_signature": False})


def lasts(pair: TokenPair) -> int:
    return claims(pair)["exp"] - claims(pair)["iat"]


@pytest.mark.django_db
class TestWhatTheDatabaseHolds:
    @pytest.mark.parametrize(
        ("constraint", "broken"),
        [
            ("token_replacement_has_a_moment", {"replaced_at": None, "retry_box": None}),
            ("token_box_ends_with_its_token", {"replaced_at": None, "replaced_by": None}),
        ],
    )
    def test_a_replaced_token_that_is_none_is_refused(
        self, pair: TokenPair, now: datetime, constraint: str, broken: dict
    ) -> None:
        retried(pair.refresh, now)
        replaced = RefreshToken.objects.exclude(replaced_by=None)
        with pytest.raises(IntegrityError, match=constraint):
            replaced.update(**broken)

    def test_a_token_revoked_by_sql_has_no_box_and_gets_none(
        self, pair: TokenPair, user: User, now: datetime
    ) -> None:
        second = retried(pair.refresh, now)
        with connection.cursor() as cursor:
            cursor.execute(
                "UPDATE accounts_refreshtoken SET revoked_at = now()"
                " WHERE user_id = %s AND revoked_at IS NULL",
                [user.pk],
            )
            assert cursor.rowcount == 2
        for each in (pair, second):
            with pytest.raises(InvalidRefreshToken):
                retried(each.refresh, now)
        assert not RefreshToken.objects.unrevoked().exists()
        assert not RefreshToken.objects.filter(retry_box__isnull=False).exists()
        with pytest.raises(IntegrityError, match="token_box_ends_with_its_token"):
            RefreshToken.objects.update(retry_box=b"kept")

    @pytest.mark.parametrize("table", ["accounts_session", "accounts_refreshtoken"])
    @pytest.mark.parametrize("end", ["infinity", "12000-01-01"])
    def test_an_end_that_no_process_could_read_is_refused(
        self, pair: TokenPair, table: str, end: str
    ) -> None:
        with (
            pytest.raises(IntegrityError, match="expiry_is_readable"),
            connection.cursor() as cursor,
        ):
            cursor.execute(f"UPDATE {table} SET expires_at = %s", [end])

    def test_a_chain_has_one_last_token(self, pair: TokenPair, now: datetime) -> None:
        last = RefreshToken.objects.get()
        last.pk = RefreshSecret.new().id
        with pytest.raises(IntegrityError, match="token_is_the_last_of_its_chain"):
            last.save(force_insert=True)


@pytest.mark.django_db
def test_a_session_knows_from_where_it_was_last_used(pair: TokenPair, now: datetime) -> None:
    assert Session.objects.get().last_used_from is None
    first = rotate(
        presented=pair.refresh, device=Device(address="192.0.2.9"), retry_key=KEY, now=now
    )
    assert Session.objects.get().last_used_from == "192.0.2.9"
    later = now + timedelta(minutes=1)
    again = rotate(
        presented=pair.refresh, device=Device(address="2001:db8::7"), retry_key=KEY, now=later
    )
    assert again.refresh == first.refresh
    session = Session.objects.get()
    assert (session.last_used_from, session.last_used_at) == ("2001:db8::7", later)
