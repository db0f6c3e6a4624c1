"""Answers of token endpoints as a form, which some providers send whatever is accepted.

Rows with a number are public reports of other projects.
"""

from datetime import datetime, timedelta
from itertools import product
from typing import Any
from urllib.parse import urlencode

import pytest

from accounts.audit import Actor
from accounts.connections import oauth
from accounts.connections.grants import ReauthorisationNeeded, access_token
from accounts.connections.oauth import GrantRefused, ProviderFailed
from accounts.models import Connection, Session, User
from tests.accounts.connections.conftest import connected
from tests.accounts.connections.party import Party, Said
from tests.accounts.connections.test_oauth import ASKED, provider, renewed
from tests.pairing import each_once

FORM = "application/x-www-form-urlencoded"
GOOD = b"access_token=gho_1&scope=user%2Cgist&token_type=bearer"


def sent(body: bytes, status: int = 200, kind: str | None = FORM) -> Said:
    return Said(status, body, {"Content-Type": kind} if kind else {})


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        # modelcontextprotocol/typescript-sdk#1599, preset-io/agor#2192, classmethod/aurl#5
        (GOOD, FORM),
        (GOOD, f"{FORM}; charset=utf-8"),  # modelcontextprotocol/typescript-sdk#2535
        (GOOD, FORM.title()),
        (GOOD, "text/plain"),  # ruby-oauth/oauth2#126
        (GOOD, "text/html;charset=ISO-8859-1"),  # danielsz/oauth2-client#1, golang/oauth2#542
        (GOOD, "application/json"),
        (GOOD, None),
        (b"\xef\xbb\xbf" + GOOD + b"\r\n", FORM),
        (GOOD.replace(b"%2C", b"+"), FORM),
        (b"scope=user&" + GOOD.replace(b"user%2C", b""), FORM),
        (GOOD + b"&error=&error_description=", FORM),
        (GOOD + b"&", FORM),
        # kanidm/kanidm#4470, dart-archive/oauth2#10: JSON under another type is JSON.
        (b'{"access_token": "gho_1", "scope": "user gist"}', "text/plain; charset=utf-8"),
        (b'{"access_token": "gho_1", "scope": "user gist"}', "text/javascript"),
        (b' {"access_token": "gho_1", "scope": "user gist", "x": "a=b&c=d"}', FORM),
    ],
)
def test_tokens_are_read_from_a_form(
    party: Party, now: datetime, body: bytes, kind: str | None
) -> None:
    party.answers = [sent(body, kind=kind)]
    given = oauth.redeem(provider(party), code="c", asked=ASKED, now=now)
    assert (given.access, given.refresh, given.expires_at) == ("gho_1", None, None)
    assert given.scopes == ["gist", "user"]


def test_a_form_has_a_refresh_token_and_a_lifetime_too(party: Party, now: datetime) -> None:
    members = {"access_token": "a+/=", "expires_in": 28800, "refresh_token": "r+&=", "scope": ""}
    party.answers = [sent(urlencode(members).encode())]
    given = renewed(party, now)
    assert (given.access, given.refresh, given.scopes) == ("a+/=", "r+&=", [])
    assert given.expires_at == now + timedelta(hours=8)


@pytest.mark.parametrize(
    ("body", "status", "kind"),
    each_once(
        [
            b"error=bad_verification_code&error_description=It+is+over.&error_uri=https%3A%2F%2Fa.test",
            b"error=bad_refresh_token&error_description=The+refresh+token+is+incorrect",
            b"error=invalid_grant",
            b"error_code=refresh_token_revoked&error=x",
            b"access_token=&error=INVALID_GRANT",
        ],
        product([200, 400], [FORM, "text/html; charset=utf-8", None]),
    ),
)
def test_an_error_in_a_form_refuses_grant_and_code(
    party: Party, now: datetime, status: int, body: bytes, kind: str | None
) -> None:
    party.answers = [sent(body, status, kind)]
    with pytest.raises(GrantRefused):
        renewed(party, now)
    with pytest.raises(GrantRefused):
        oauth.redeem(provider(party), code="c", asked=ASKED, now=now)


@pytest.mark.parametrize(
    ("body", "status", "failure", "unknown"),
    [
        (b"error=incorrect_client_credentials", 200, "client_refused", False),
        (b"error=redirect_uri_mismatch&error_description=x", 200, "failed", False),
        (b"error=slow_down&interval=10", 200, "overloaded", False),
        (b"error=server_error", 400, "failed", False),
        (b"error=bad_moon_rising", 200, "failed", True),
        (b"error=invalid_grant", 503, "overloaded", False),
        # With an error beside it a token is none.
        (GOOD + b"&error=bad_moon_rising", 200, "failed", True),
    ],
)
def test_every_other_error_of_a_form_is_read_by_the_same_table(
    party: Party, now: datetime, body: bytes, status: int, failure: str, unknown: bool
) -> None:
    party.answers = [sent(body, status)]
    with pytest.raises(ProviderFailed) as raised:
        renewed(party, now)
    assert (raised.value.kind, raised.value.unknown) == (failure, unknown)


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"access_token=a&access_token=b", FORM),
        (b"error=invalid_grant&error=server_error", FORM),
        (GOOD + b"&error=x&error=y", FORM),
        (b"<a href='/?error=invalid_grant'>", "text/html"),
        (b"See /help?error=invalid_grant", "text/plain"),
        (b'{"error": "x", "access_token=gho_1&error=invalid_grant', FORM),
        (b'"error=invalid_grant"', "application/json"),
        (b"ref=1&x=2", "text/plain"),
        (b"access_token", FORM),
        (b"access_token=a%00b", FORM),
        (b"access_token=\xff", FORM),
        (b"access_token=a&token_type=mac", FORM),
        (b"&".join(b"error%d=1" % each for each in range(5000)) + b"&access_token=a", FORM),
        (b"", FORM),
    ],
)
def test_an_ambiguous_answer_is_neither_a_token_nor_the_end_of_a_grant(
    party: Party, now: datetime, body: bytes, kind: str
) -> None:
    party.answers = [sent(body, kind=kind)]
    with pytest.raises(ProviderFailed):
        renewed(party, now)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"error=invalid_token", 400),
        (b"error=invalid_grant&error_description=x", 401),
        (b"error=invalid_token", 200),
        (b"ok=true", 200),
        (b"", 200),
    ],
)
def test_a_revocation_is_confirmed_by_a_form(party: Party, body: bytes, status: int) -> None:
    party.answers = [sent(body, status)]
    oauth.revoke(provider(party), token="t", hint="refresh_token")


@pytest.mark.parametrize(
    ("body", "status", "kind"),
    [
        (b"error=unsupported_token_type", 400, FORM),
        (b"error=temporarily_unavailable", 200, FORM),
        (b"error=incorrect_client_credentials", 200, FORM),
        (b'{"error": "server_error"}', 200, "application/json"),
        (b'{"ok": false, "error": "invalid_client"}', 200, "application/json"),
    ],
)
def test_an_error_is_no_confirmation_whatever_its_status(
    party: Party, body: bytes, status: int, kind: str
) -> None:
    party.answers = [sent(body, status, kind)]
    with pytest.raises(ProviderFailed):
        oauth.revoke(provider(party), token="t", hint="refresh_token")


@pytest.mark.django_db
def test_a_connection_lives_and_ends_by_forms(
    party: Party, user: User, session: Session, by: Actor, now: datetime
) -> None:
    party.answers = [
        sent(b"access_token=a1&refresh_token=r1&expires_in=3600&scope=repo"),
        sent(b"access_token=a2&refresh_token=r2&expires_in=3600"),
        sent(b"error=bad_refresh_token&error_description=expired"),
    ]
    connection = connected(user, session, by=by, now=now - timedelta(hours=2))
    asked: dict[str, Any] = {"user_id": user.pk, "provider": "sheets", "by": by, "refused": None}
    asked["before_asking"] = lambda: None
    assert access_token(**asked, now=now).access_token == "a2"
    with pytest.raises(ReauthorisationNeeded):
        access_token(**asked, now=now + timedelta(hours=2))
    row = Connection.objects.get(pk=connection.pk)
    assert (row.lapse, row.scopes) == (Connection.Lapse.REFUSED, ["repo"])
