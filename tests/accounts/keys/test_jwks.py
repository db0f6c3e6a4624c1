"""The published keys: what they cost, how they are kept, and that independent verifiers get along with them."""

import json
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any
from uuid import uuid4

import jwt
import pytest
from django.conf import settings
from joserfc import jwt as joserfc_jwt
from joserfc.jwk import KeySet
from rest_framework.test import APIClient

from accounts.audit import Actor
from accounts.hooks import Claims
from accounts.keys.key_ring import ring
from accounts.keys.signing_keys import LEAST_AHEAD, rotate_signing_key
from accounts.models import User
from accounts.sessions.access_tokens import AccessToken
from tests.conftest import SecureClient

pytestmark = pytest.mark.django_db
JWKS = "/.well-known/jwks.json"
MAX_AGE = timedelta(seconds=300)


class Hours:
    """The time as access tokens and the published list have it, moved on by the test."""

    def __init__(self, start: datetime, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = start
        clock = self

        class Clock(datetime):
            @classmethod
            def now(cls, tz: Any = None) -> datetime:
                return clock.now

        monkeypatch.setattr("accounts.sessions.access_tokens.datetime", Clock)
        monkeypatch.setattr("accounts.keys.views.timezone.now", lambda: clock.now)

    def pass_by(self, **time: float) -> None:
        self.now += timedelta(**time)


@pytest.fixture
def hours(now: datetime, monkeypatch: pytest.MonkeyPatch) -> Hours:
    return Hours(now, monkeypatch)


def token_of(user: User, now: datetime) -> str:
    assert user.client_id is not None
    claims = Claims(client_id=user.client_id, plan="Starter", entitlements=[])
    return str(
        AccessToken.issue(user_id=user.pk, session_id=uuid4(), epoch=0, claims=claims, now=now)
    )


def fetched() -> bytes:
    """The list as a verifier gets it now."""
    body: bytes = SecureClient().get(JWKS).content
    return body


def by_joserfc(token: str, jwks: bytes) -> dict[str, Any]:
    keys = KeySet.import_key_set(json.loads(jwks))
    decoded = joserfc_jwt.decode(token, keys, algorithms=["RS256"])
    assert decoded.header["kid"] == keys.get_by_kid(decoded.header["kid"]).thumbprint()
    return dict(decoded.claims)


def by_pyjwt(token: str, jwks: bytes) -> dict[str, Any]:
    """PyJWT's client, which is given the list instead of fetching it."""
    client = jwt.PyJWKClient("https://never.asked.test", cache_keys=False)
    client.fetch_data = lambda: json.loads(jwks)  # type: ignore[method-assign]
    claims: dict[str, Any] = jwt.decode(
        token,
        client.get_signing_key_from_jwt(token),
        algorithms=["RS256"],
        issuer=settings.BASE_URL,
        options={"verify_iat": False, "verify_exp": False},
    )
    return claims


VERIFIERS: list[Callable[[str, bytes], dict[str, Any]]] = [by_joserfc, by_pyjwt]


def test_the_key_set_has_a_lifetime_and_an_entity_tag(
    api: APIClient, signing_key: None, by: Actor, now: datetime
) -> None:
    first = api.get(JWKS)
    assert first["Cache-Control"] == f"public, max-age={MAX_AGE.seconds}"
    assert first["Content-Type"] == "application/jwk-set+json"
    assert set(first.json()["keys"][0]) == {"kty", "kid", "use", "alg", "n", "e"}
    again = api.get(JWKS, headers={"If-None-Match": first["ETag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert again["Cache-Control"] == first["Cache-Control"]
    assert api.head(JWKS)["ETag"] == first["ETag"]
    rotate_signing_key(publish_ahead=timedelta(hours=24), by=by, now=now)
    changed = api.get(JWKS, headers={"If-None-Match": first["ETag"]})
    assert (changed.status_code, len(changed.json()["keys"])) == (200, 2)


def test_the_key_set_takes_no_query_and_ignores_the_accept_header(
    api: APIClient, signing_key: None, django_assert_num_queries
) -> None:
    ring.forget()
    api.get(JWKS)
    with django_assert_num_queries(0):
        for _ in range(20):
            assert api.get(JWKS, headers={"Accept": "image/png"}).status_code == 200
    assert api.post(JWKS).json()["code"] == "method_not_allowed"


def test_every_token_verifies_throughout_two_rotations_also_with_a_list_that_may_still_be_kept(
    user: User, signing_key: None, by: Actor, hours: Hours
) -> None:
    lists = [(hours.now, fetched())]
    tokens, kids = [token_of(user, hours.now)], set()
    for _ in range(2):
        ahead = timedelta(hours=1)
        rotate_signing_key(publish_ahead=ahead, by=by, now=hours.now)
        ring.forget()
        # Around the rotation, around the first signature of the new key, and an hour later.
        for step in (0, 1, 299, 3295, 4.99, 0.02, 1, 299, 3300):
            hours.pass_by(seconds=step)
            tokens.append(token_of(user, hours.now))
            lists.append((hours.now, fetched()))
            # Every list that a cache may rightfully still hold.
            fresh = [jwks for at, jwks in lists if hours.now - at <= MAX_AGE]
            for verify in VERIFIERS:
                for jwks in fresh:
                    assert verify(tokens[-1], jwks)["sub"] == str(user.pk)
                # And every token so far by the list of now.
                for token in tokens:
                    assert verify(token, fresh[-1])["sub"] == str(user.pk)
            kids.add(jwt.get_unverified_header(tokens[-1])["kid"])
    assert len(kids) == 3
    assert len(json.loads(fetched())["keys"]) == 3


def test_a_list_of_now_verifies_in_a_plain_rotation_from_whatever_process(
    user: User, signing_key: None, by: Actor, hours: Hours
) -> None:
    rotate_signing_key(publish_ahead=timedelta(0), by=by, now=hours.now)
    ring.forget()
    kids = set()
    for _ in range(int(LEAST_AHEAD.total_seconds()) + 2):
        token = token_of(user, hours.now)
        kids.add(jwt.get_unverified_header(token)["kid"])
        for verify in VERIFIERS:
            assert verify(token, fetched())["sub"] == str(user.pk)
        hours.pass_by(seconds=1)
    assert len(kids) == 2


def test_ninety_days_after_its_last_signature_a_key_is_listed_no_more(
    signing_key: None, by: Actor, hours: Hours
) -> None:
    (old,) = (each["kid"] for each in json.loads(fetched())["keys"])
    key = rotate_signing_key(publish_ahead=timedelta(hours=1), by=by, now=hours.now)
    ring.forget()
    for hours.now, listed in (
        (key.signs_from + timedelta(days=90, seconds=-1), {old, key.kid}),
        (key.signs_from + timedelta(days=90), {key.kid}),
    ):
        assert {each["kid"] for each in json.loads(fetched())["keys"]} == listed
