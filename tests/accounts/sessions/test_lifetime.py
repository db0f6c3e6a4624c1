"""A session ends, and one from before there was an end gets one that surprises nobody."""

from datetime import datetime, timedelta

import pytest
from django.core.management import call_command
from django.db import transaction

from accounts.models import Session, User
from accounts.sessions.lifetime import set_missing_ends
from accounts.sessions.rotation import InvalidRefreshToken, rotate
from accounts.sessions.sign_in import Device, TokenPair, sign_in
from tests.conftest import PASSWORD
from tests.races import race

pytestmark = pytest.mark.django_db
HALF_A_YEAR = timedelta(days=180)


def endless(pair: TokenPair, now: datetime, *, age: timedelta = timedelta(days=400)) -> Session:
    """The session of a pair as an earlier release left it."""
    Session.objects.update(expires_at=None, started_at=now - age)
    return Session.objects.get()


def test_a_session_ends_after_half_a_year(user: User, signing_key: None, now: datetime) -> None:
    sign_in(email=user.email, password=PASSWORD, device=Device(), now=now)
    assert Session.objects.get().expires_at == now + HALF_A_YEAR


def test_sessions_without_a_configured_lifetime_never_expire(
    user: User, signing_key: None, now: datetime, settings
) -> None:
    settings.SESSION_DAYS = None
    sign_in(email=user.email, password=PASSWORD, device=Device(), now=now)
    assert Session.objects.get().expires_at is None
    assert set_missing_ends(now=now) == 0
    assert Session.objects.get().expires_at is None


def test_one_from_before_counts_from_the_upgrade_and_goes_on(
    pair: TokenPair, now: datetime
) -> None:
    endless(pair, now)
    assert set_missing_ends(now=now) == 1
    assert Session.objects.get().expires_at == now + HALF_A_YEAR
    successor = rotate(presented=pair.refresh, device=Device(), now=now)
    soon, over = now + timedelta(days=29), now + HALF_A_YEAR
    later = rotate(presented=successor.refresh, device=Device(), now=soon)
    with pytest.raises(InvalidRefreshToken):
        rotate(presented=later.refresh, device=Device(), now=over)


def test_each_gets_its_end_once(pair: TokenPair, now: datetime) -> None:
    endless(pair, now)
    set_missing_ends(now=now)
    assert set_missing_ends(now=now + timedelta(days=1)) == 0
    assert Session.objects.get().expires_at == now + HALF_A_YEAR


def test_all_of_them_do_batch_by_batch(
    user: User, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("accounts.sessions.lifetime.SESSIONS_AT_A_TIME", 2)
    for ended_at, ended_by in ((None, ""), (None, ""), (None, ""), (now, "logout"), (None, "")):
        Session.objects.create(
            user=user, started_at=now, last_used_at=now, ended_at=ended_at, ended_by=ended_by
        )
    assert set_missing_ends(now=now) == 4
    assert Session.objects.filter(expires_at=None).count() == 1


def test_a_dry_night_only_counts_them(pair: TokenPair, now: datetime, capsys) -> None:
    endless(pair, now)
    call_command("prune_refresh_tokens", "--dry-run")
    assert Session.objects.get().expires_at is None
    assert "1 sessions without an end end in 180 days" in capsys.readouterr().out
    call_command("prune_refresh_tokens")
    assert Session.objects.get().expires_at is not None


@pytest.mark.django_db(transaction=True)
def test_a_session_in_use_gets_its_end_in_the_next_night(pair: TokenPair, now: datetime) -> None:
    session = endless(pair, now)
    with transaction.atomic():
        Session.objects.select_for_update().get(pk=session.pk)
        assert race(lambda: set_missing_ends(now=now)) == [0]
    assert set_missing_ends(now=now) == 1
