"""Sessions, tokens and keys as operators see them."""

from datetime import datetime, timedelta

import pytest
from django.urls import reverse

from accounts.audit import Actor
from accounts.models import RefreshToken, Session, SigningKey, User
from accounts.rotation import rotate
from accounts.sign_in import Device, TokenPair
from accounts.signing_keys import rotate_signing_key
from tests.conftest import Browser

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


def test_sessions_and_tokens_are_narrowed_by_state_and_person(
    console: Browser, user: User, pair: TokenPair, now: datetime
) -> None:
    rotate(presented=pair.refresh, device=Device(), now=now)
    assert (
        number(console, "session", "state=open"),
        number(console, "session", "state=ended"),
    ) == (1, 0)
    assert number(console, "refreshtoken") == 2
    for state, rows in (("live", 1), ("replaced", 1), ("revoked", 0)):
        assert number(console, "refreshtoken", f"state={state}") == rows
    session = Session.objects.get()
    for query in (f"q={user.pk}", f"user__id__exact={user.pk}", "q=ada@", f"q={session.pk}"):
        assert number(console, "session", query) == 1, query


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
    assert [admin.stage(key) for key in keys] == ["retired", "verifying", "signing", "published"]
    key = keys[2]
    text = console.get(reverse("admin:accounts_signingkey_change", args=[key.pk])).content.decode()
    assert "BEGIN PUBLIC KEY" in text
    assert "PRIVATE" not in text
