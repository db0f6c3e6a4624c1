"""Messages to a provider, and the meanings of its answers."""

import json
from base64 import b64decode
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any
from urllib.parse import parse_qs, parse_qsl, urlsplit

import pytest

from accounts.connections import oauth
from accounts.connections.oauth import AuthorisationRequest, GrantRefused, ProviderFailed, Tokens
from accounts.connections.provider_settings import OAuthProvider, read
from tests.accounts.connections.conftest import REDIRECT
from tests.accounts.connections.party import Party, Said, says, tokens

ASKED = AuthorisationRequest(REDIRECT, "the-state", "v" * 64)


def provider(party: Party, **members: Any) -> OAuthProvider:
    return oauth_provider({"sheets": party.provider(**members)})


def oauth_provider(providers: dict[str, Any]) -> OAuthProvider:
    (found,) = read(json.dumps(providers)).values()
    return found


def renewed(party: Party, now: datetime, **members: Any) -> Tokens:
    return oauth.renew(provider(party, **members), refresh_token="before", now=now)


def test_the_authorisation_asks_with_pkce_and_the_providers_own_parameters(party: Party) -> None:
    known = provider(party, authorization_params={"audience": "a b"}, scopes=["x", "y"])
    address = urlsplit(oauth.authorization_url(known, ASKED))
    said = {name: value for name, [value] in parse_qs(address.query).items()}
    challenge = said.pop("code_challenge")
    assert b64decode(challenge + "=", altchars=b"-_") == sha256(ASKED.verifier.encode()).digest()
    assert said == {
        "response_type": "code",
        "client_id": "shell",
        "redirect_uri": REDIRECT,
        "scope": "x y",
        "state": "the-state",
        "code_challenge_method": "S256",
        "audience": "a b",
    }


def test_google_needs_only_a_client(party: Party) -> None:
    known = oauth_provider({"google": {"client_id": "c", "client_secret": "s"}})
    address = urlsplit(oauth.authorization_url(known, ASKED))
    said = dict(parse_qsl(address.query))
    assert address.netloc == "accounts.google.com"
    assert (said["access_type"], said["prompt"]) == ("offline", "consent")


def test_a_code_is_redeemed_with_its_verifier(party: Party, now: datetime) -> None:
    given = oauth.redeem(provider(party), code="c+&=ö", asked=ASKED, now=now)
    assert (given.access, given.refresh) == ("access-1", "refresh-1")
    assert given.expires_at == now + timedelta(hours=1)
    assert party.forms == [
        {
            "grant_type": "authorization_code",
            "code": "c+&=ö",
            "redirect_uri": REDIRECT,
            "code_verifier": ASKED.verifier,
            "path": "/token",
        }
    ]


def test_client_and_secret_are_encoded_before_they_go_into_the_header(
    party: Party, now: datetime
) -> None:
    renewed(party, now)
    kind, _, pair = party.heads[0]["Authorization"].partition(" ")
    assert (kind, b64decode(pair)) == ("Basic", b"shell:s3cret%2B%2F%25")
    assert "client_secret" not in party.forms[0]


def test_client_and_secret_go_into_the_form_where_a_provider_wants_that(
    party: Party, now: datetime
) -> None:
    renewed(party, now, token_endpoint_auth_method="client_secret_post")
    assert "Authorization" not in party.heads[0]
    assert (party.forms[0]["client_id"], party.forms[0]["client_secret"]) == ("shell", "s3cret+/%")


def test_a_client_without_a_secret_names_itself(party: Party, now: datetime) -> None:
    renewed(party, now, client_secret="")
    assert party.forms[0]["client_id"] == "shell"
    assert "client_secret" not in party.forms[0]


@pytest.mark.parametrize("absent", [{}, {"refresh_token": None}, {"refresh_token": ""}])
def test_the_old_refresh_token_stays_without_a_new_one(
    party: Party, now: datetime, absent: dict[str, Any]
) -> None:
    party.answers = [says(access_token="a", expires_in=60, **absent)]
    assert renewed(party, now).refresh == "before"


@pytest.mark.parametrize(
    ("expires_in", "seconds"),
    [(3600, 3600), ("3600", 3600), (59.5, 59.5), (None, 600), ("soon", 600), (-5, 600), ([1], 600),
     (True, 600), (10**30, 3650 * 86400), (10**400, 3650 * 86400), (float("nan"), 600), (float("inf"), 600),
     (-float("inf"), 600), (1e-9, 0)],
)  # fmt: skip
def test_a_refresh_token_is_not_lost_to_an_odd_lifetime(
    party: Party, now: datetime, expires_in: object, seconds: float
) -> None:
    party.answers = [tokens(2, expires_in=expires_in)]
    given = renewed(party, now)
    assert given.refresh == "refresh-2"
    assert given.expires_at == now + timedelta(seconds=seconds)


def test_a_token_that_does_not_end_and_cannot_be_renewed_has_no_end(
    party: Party, now: datetime
) -> None:
    party.answers = [says(access_token="a", scope="y x x")]
    given = oauth.redeem(provider(party), code="c", asked=ASKED, now=now)
    assert (given.refresh, given.expires_at, given.scopes) == (None, None, ["x", "y"])


@pytest.mark.parametrize(
    ("scope", "scopes"),
    [
        ("a\0b x", ["x"]),
        ("\ud800 x", ["x"]),
        ('quo"ted back\\slashed ünicode x', ["x"]),
        ("y" * 501 + " x", ["x"]),
        ("y" * 500, ["y" * 500]),
        ("!~ [x] https://a.test/b,c", ["!~", "[x]", "https://a.test/b,c"]),
        ("\0", []),
        (["x"], ["x"]),
        (5, []),
    ],
)
def test_an_invalid_scope_is_omitted(
    party: Party, now: datetime, scope: object, scopes: list[str] | None
) -> None:
    party.answers = [tokens(2, scope=scope)]
    given = renewed(party, now)
    assert (given.refresh, given.scopes) == ("refresh-2", scopes)


@pytest.mark.parametrize("status", [200, 400, 401])  # Some providers say everything with 200.
def test_invalid_grant_means_that_the_grant_is_over(
    party: Party, now: datetime, status: int
) -> None:
    party.answers = [says(status, error="invalid_grant", error_description='"quoted" and ünicode')]
    with pytest.raises(GrantRefused):
        renewed(party, now)


FAILURES = [
    (says(500, error="invalid_grant"), "failed"),
    (says(502), "failed"),
    (Said(503, b"<html>"), "overloaded"),
    (says(429, error="slow"), "overloaded"),
    (says(400, error="temporarily_unavailable"), "overloaded"),
    (says(401, error="invalid_client"), "client_refused"),
    (says(400, error="unauthorized_client"), "client_refused"),
    (Said(401), "client_refused"),
    (says(400, error="invalid_request"), "failed"),
    (says(400, message="no error"), "failed"),
    (says(400, error={"code": 190}), "failed"),
    (says(400, access_token="a"), "failed"),
    (Said(302, headers={"Location": "/elsewhere"}), "failed"),
    (Said(200, b"<html>"), "failed"),
    (Said(200, b"[]"), "failed"),
    (Said(200), "failed"),
    (says(200, access_token=""), "failed"),
    (says(200, access_token=5), "failed"),
    (says(200, access_token="a\nb"), "failed"),
    (says(200, access_token="a\0b"), "failed"),
    (says(200, access_token="ä"), "failed"),
    (says(200, access_token="a", refresh_token="\ud800"), "failed"),
    (says(200, access_token="a", refresh_token=[1]), "failed"),
    (says(200, access_token="a", token_type="mac"), "failed"),
    (says(200, access_token="a", token_type="bearer\0"), "failed"),
    (says(200, access_token="a" * 20_000), "failed"),
]


@pytest.mark.parametrize(("said", "kind"), FAILURES)
def test_other_failures_do_not_affect_the_grant(
    party: Party, now: datetime, said: Said, kind: str
) -> None:
    party.answers = [said]
    with pytest.raises(ProviderFailed) as raised:
        renewed(party, now)
    assert raised.value.kind == kind


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        ("unreachable", "provider_unavailable"),
        ("overloaded", "provider_unavailable"),
        ("timed_out", "provider_timeout"),
        ("failed", "provider_error"),
        ("client_refused", "provider_error"),
    ],
)
def test_each_failure_is_a_problem(kind: str, code: str) -> None:
    problem = oauth.problem_of(kind, seconds=0)
    assert (problem.code, problem.headers) == (code, {"Retry-After": "1"})


@pytest.mark.parametrize(
    ("asked", "pause"),
    [("60", 60), ("1", 5), ("99999", 300), ("-1", 5), ("Wed, 21 Oct 2026 07:28:00 GMT", 5)],
)
def test_a_provider_is_left_alone_for_as_long_as_it_asks_within_bounds(
    party: Party, now: datetime, asked: str, pause: int
) -> None:
    party.answers = [says(429, {"retry-after": asked})]
    with pytest.raises(ProviderFailed) as raised:
        renewed(party, now)
    assert raised.value.pause == pause


@pytest.mark.parametrize(
    "said",
    [Said(200), Said(204), says(400, error="invalid_token"), says(400, error="invalid_grant")],
)
def test_a_token_that_is_void_already_is_revoked(party: Party, said: Said) -> None:
    party.answers = [said]
    oauth.revoke(provider(party), token="t", hint="refresh_token")
    form = {"token": "t", "token_type_hint": "refresh_token", "path": "/revoke"}
    assert party.forms == [form]


@pytest.mark.parametrize(
    "said", [Said(500), Said(503), Said(302), Said(404), says(400, error="unsupported_token_type")]
)
def test_a_revocation_that_is_not_confirmed_has_failed(party: Party, said: Said) -> None:
    party.answers = [said]
    with pytest.raises(ProviderFailed):
        oauth.revoke(provider(party), token="t", hint="refresh_token")


def test_nothing_that_could_be_printed_holds_a_secret(party: Party, now: datetime) -> None:
    given = oauth.redeem(provider(party), code="c", asked=ASKED, now=now)
    printed = repr(given) + repr(provider(party)) + str(ProviderFailed(oauth.Failure.FAILED))
    assert not [each for each in ("access-1", "refresh-1", "s3cret") if each in printed]
