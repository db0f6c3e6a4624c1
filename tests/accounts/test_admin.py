"""Sessions, tokens and keys as operators see them."""

import re
from base64 import b64encode
from contextlib import suppress
from datetime import datetime, timedelta

import pytest
from django.urls import reverse

from accounts.audit import Actor
from accounts.keys.signing_keys import rotate_signing_key
from accounts.models import RefreshToken, Session, SigningKey, User
from accounts.models.keys import Stage
from accounts.sessions.revocation import sign_out
from accounts.sessions.rotation import InvalidRefreshToken, rotate
from accounts.sessions.sign_in import Device, TokenPair, sign_in
from tests.conftest import PASSWORD, Browser

pytestmark = pytest.mark.django_db


def number(console: Browser, model: str, query: str = "") -> int:
    response = console.get(f"{reverse(f'admin:accounts_{model}_changelist')}?{query}")
    return int(response.context["cl"].result_count)


def test_a_session_shows_its_chain_by_short_names(
    console: Browser, pair: TokenPair, now: datetime
) -> None:
    rotate(presented=pair.refresh, device=Device(address="198.51.100.9"), now=now)
    session = Session.objects.get()
    text = console.get(reverse("admin:accounts_session_change", args=[session.pk])).content.decode()
    for token in RefreshToken.objects.all():
        assert str(token) in text
        assert str(token.pk) not in text
    assert "198.51.100.9" in text


def test_a_session_says_from_where_it_was_used_and_why_it_ended(
    console: Browser, pair: TokenPair, now: datetime
) -> None:
    for address in ("192.0.2.9", "198.51.100.9"):
        with suppress(InvalidRefreshToken):
            rotate(presented=pair.refresh, device=Device(address=address), now=now)
    session = Session.objects.get()
    page = console.get(reverse("admin:accounts_session_change", args=[session.pk]))
    text = " ".join(page.content.decode().split())
    assert "a replaced token was presented again" in text
    assert "presented a replaced token of" in text
    for address in ("192.0.2.9", "198.51.100.9"):
        assert address in text
    listed = console.get(reverse("admin:accounts_session_changelist")).content.decode()
    assert "192.0.2.9" in listed
    assert "a replaced token was presented again" in listed


def test_sessions_and_tokens_are_narrowed_by_state_and_person(
    console: Browser, user: User, pair: TokenPair, now: datetime
) -> None:
    rotate(presented=pair.refresh, device=Device(), now=now)
    gone = sign_in(email=user.email, password=PASSWORD, device=Device(), now=now)
    sign_out(presented=gone.refresh, by_address=None, request_id="", now=now)
    month_ago = now - timedelta(days=31)
    sign_in(email=user.email, password=PASSWORD, device=Device(), now=month_ago)
    for state in ("live", "expired", "ended"):
        assert number(console, "session", f"state={state}") == 1, state
    assert number(console, "refreshtoken") == 4
    for state in ("live", "replaced", "revoked"):
        assert number(console, "refreshtoken", f"state={state}") == 1, state
    for query in (f"q={user.pk}", f"user__id__exact={user.pk}", "q=ada@"):
        assert number(console, "session", query) == 3, query
    assert number(console, "session", f"q={Session.objects.live(at=now).get().pk}") == 1
    # Its token goes on, and has nothing to go on with.
    Session.objects.live(at=now).update(expires_at=now)
    assert number(console, "session", "state=live") == 0
    assert number(console, "session", "state=expired") == 2


def test_keys_show_where_they_are_in_their_life(console: Browser, by: Actor, now: datetime) -> None:
    past = now - timedelta(days=100)
    for at, ahead in (
        (past, 0),
        (past + timedelta(days=5), 0),
        (now - timedelta(days=50), 0),
        (now, 24),
    ):
        rotate_signing_key(publish_ahead=timedelta(hours=ahead), by=by, now=at)
    page = console.get(reverse("admin:accounts_signingkey_changelist"))
    admin = page.context["cl"].model_admin
    keys = SigningKey.objects.order_by("published_at")
    assert [admin.stage(key) for key in keys] == [
        "retired",
        "no longer signs, still verifies",
        "signs",
        "published, not signing yet",
    ]
    retired, verifying, signing, published = map(admin.next, keys)
    assert retired == "nothing"
    assert re.fullmatch("retires in 1 month, .*", verifying)
    for says, what in ((signing, "stops signing"), (published, "signs")):
        assert re.fullmatch(f"{what} in (23 hours, 59 minutes|1 day)", says), says
    for stage in Stage:
        assert number(console, "signingkey", f"stage={stage}") == (stage != Stage.PLANNED)
    key = keys[2]
    text = console.get(reverse("admin:accounts_signingkey_change", args=[key.pk])).content.decode()
    assert "BEGIN PUBLIC KEY" in text
    stored = bytes(key.private_key)
    assert not [each for each in (repr(stored), stored.hex()) if each in text]
    assert b64encode(stored).decode() not in text
    assert "PRIVATE" not in text
