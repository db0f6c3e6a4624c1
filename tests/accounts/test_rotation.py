"""Rotation, reuse, and their races with revocation."""

from collections.abc import Callable
from datetime import datetime, timedelta
from unittest.mock import Mock

import pytest
from procrastinate.contrib.django.models import ProcrastinateJob

from accounts.audit import Actor
from accounts.key_ring import KeyRing
from accounts.models import AuditEvent, RefreshToken, Session, User
from accounts.refresh_tokens import RefreshSecret
from accounts.retries import checked_key, unseal, wipe_expired
from accounts.revocation import revoke_all, sign_out
from accounts.rotation import InvalidRefreshToken, rotate
from accounts.sign_in import Device, TokenPair, sign_in
from config.problems import InvalidRequest, ServiceUnavailable
from tests.conftest import PASSWORD
from tests.races import race


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

    def test_a_replaced_token_ends_its_session_and_keeps_the_evidence(
        self, pair: TokenPair, now: datetime, settings
    ) -> None:
        second = refreshed(pair.refresh, now)
        with pytest.raises(InvalidRefreshToken):
            rotate(
                presented=pair.refresh,
                device=Device(address="198.51.100.4"),
                now=now + timedelta(hours=2),
            )
        with pytest.raises(InvalidRefreshToken):
            refreshed(second.refresh, now)
        assert not RefreshToken.objects.unrevoked().exists()
        assert Session.objects.get().ended_by == Session.Ended.REUSE
        evidence = AuditEvent.objects.get(action="session:token_reused").after
        assert (evidence["used_from"], evidence["replayed_from"]) == ("192.0.2.9", "198.51.100.4")
        mail = ProcrastinateJob.objects.get(task_name="mail.send")
        assert mail.args["to"] == settings.OPERATOR_EMAILS

    def test_a_replayed_token_of_an_ended_session_is_merely_refused(
        self, pair: TokenPair, now: datetime
    ) -> None:
        refreshed(pair.refresh, now)
        for _ in range(3):
            with pytest.raises(InvalidRefreshToken):
                refreshed(pair.refresh, now)
        assert AuditEvent.objects.filter(action="session:token_reused").count() == 1

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
    def test_what_no_longer_counts_is_refused(
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

    def test_once_the_successor_is_used_the_box_is_gone(
        self, pair: TokenPair, now: datetime
    ) -> None:
        second = retried(pair.refresh, now)
        assert RefreshToken.objects.filter(retry_box__isnull=False).count() == 1
        retried(second.refresh, now, key=None)
        assert not RefreshToken.objects.filter(retry_box__isnull=False).exists()
        with pytest.raises(InvalidRefreshToken):
            retried(pair.refresh, now)
        assert AuditEvent.objects.get(action="session:token_reused").after["kind"] == "stale"

    def test_the_end_of_the_session_empties_it_too(
        self, pair: TokenPair, user: User, by: Actor, now: datetime
    ) -> None:
        retried(pair.refresh, now)
        revoke_all(user_id=user.pk, by=by, reason="test", now=now)
        assert not RefreshToken.objects.filter(retry_box__isnull=False).exists()
        with pytest.raises(InvalidRefreshToken):
            retried(pair.refresh, now)

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


@pytest.mark.django_db(transaction=True)
class TestRaces:
    def test_of_twenty_keyed_refreshes_all_get_the_same_successor(
        self, pair: TokenPair, now: datetime
    ) -> None:
        results = race(*[lambda: retried(pair.refresh, now)] * 20)
        assert len({each.refresh for each in results}) == 1
        assert RefreshToken.objects.live(at=now).count() == 1

    def test_of_twenty_refreshes_with_one_token_one_succeeds(
        self, pair: TokenPair, now: datetime
    ) -> None:
        results = race(*[lambda: refreshed(pair.refresh, now)] * 20)
        won = [each for each in results if isinstance(each, TokenPair)]
        lost = [each for each in results if isinstance(each, InvalidRefreshToken)]
        assert (len(won), len(lost)) == (1, 19)
        assert Session.objects.get().ended_by == Session.Ended.REUSE
        assert AuditEvent.objects.filter(action="session:token_reused").count() == 1

    def test_a_loser_whose_clock_is_behind_is_reuse_too(
        self, pair: TokenPair, now: datetime
    ) -> None:
        refreshed(pair.refresh, now)
        with pytest.raises(InvalidRefreshToken):
            refreshed(pair.refresh, now - timedelta(milliseconds=1))
        assert Session.objects.get().ended_by == Session.Ended.REUSE

    def test_a_key_that_cannot_sign_costs_nobody_their_token(
        self, pair: TokenPair, now: datetime, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with monkeypatch.context() as broken:
            broken.setattr(KeyRing, "signer", Mock(side_effect=ServiceUnavailable))
            with pytest.raises(ServiceUnavailable):
                refreshed(pair.refresh, now)
        assert refreshed(pair.refresh, now).access

    def test_no_refresh_outlives_a_revocation(
        self, user: User, signing_key: None, by: Actor, now: datetime
    ) -> None:
        def revoke() -> object:
            return revoke_all(user_id=user.pk, by=by, reason="race", now=now)

        def refresh_of(token: str) -> Callable[[], object]:
            return lambda: refreshed(token, now)

        survivors = 0
        for _ in range(200):
            pair = sign_in(email=user.email, password=PASSWORD, device=Device(), now=now)
            race(refresh_of(pair.refresh), revoke, refresh_of(pair.refresh))
            survivors += RefreshToken.objects.unrevoked().count()
        assert survivors == 0

    def test_no_login_outlives_a_password_change(
        self, user: User, signing_key: None, by: Actor, now: datetime
    ) -> None:
        for round_ in range(10):
            password = f"password number {round_}"
            user.set_password(password)
            user.save()

            def change() -> object:
                User.objects.filter(pk=user.pk).update(password="changed")
                return revoke_all(user_id=user.pk, by=by, reason="changed", now=now)

            def login(password: str = password) -> object:
                return sign_in(email=user.email, password=password, device=Device(), now=now)

            race(login, change)
            assert not RefreshToken.objects.unrevoked().exists()
