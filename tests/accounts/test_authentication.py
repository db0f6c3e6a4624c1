"""Which access tokens are believed, and what is said of the others."""

import json
import time
from base64 import urlsafe_b64encode
from datetime import datetime, timedelta
from uuid import uuid4

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key
from joserfc import jwt as joserfc_jwt
from joserfc.jwk import KeySet
from rest_framework.test import APIClient

from accounts.access_tokens import AccessToken, Claims
from accounts.audit import Actor
from accounts.key_ring import ring
from accounts.models import SigningKey, User
from accounts.sign_in import TokenPair
from accounts.signing_keys import rotate_signing_key

pytestmark = pytest.mark.django_db
ME = "/v1/auth/me"


def answer(api: APIClient, authorization: str | None) -> tuple[int, str | None, str]:
    if authorization is not None:
        api.credentials(HTTP_AUTHORIZATION=authorization)
    response = api.get(ME)
    return response.status_code, response.json().get("code"), response.get("WWW-Authenticate", "")


def claims_of(token: str) -> dict:
    return jwt.decode(token, options={"verify_signature": False})


def forged(
    pair: TokenPair, *, header: dict | None = None, drop: str = "", **changes: object
) -> str:
    """The caller's own claims, changed, and signed by the service's own key."""
    kid, key = ring.signer(now=datetime.now().astimezone())
    claims = {**claims_of(pair.access), **changes}
    claims.pop(drop, None)
    return jwt.encode(claims, key, "RS256", headers={"typ": "at+jwt", "kid": kid, **(header or {})})


def test_a_good_token_says_who_calls(api: APIClient, pair: TokenPair, user: User) -> None:
    for scheme in ("Bearer", "bearer", "BEARER"):
        status, *_ = answer(api, f"{scheme} {pair.access}")
        assert status == 200
    assert api.get(ME).json() == {
        "id": str(user.pk),
        "email": "ada@acme.test",
        "client": {"id": str(user.client_id), "name": "Acme"},
    }


@pytest.mark.parametrize("authorization", [None, "", "Basic YTpi"])
def test_no_token_is_a_challenge(api: APIClient, authorization: str | None) -> None:
    status, code, challenge = answer(api, authorization)
    assert (status, code) == (401, "not_authenticated")
    assert challenge.startswith("Bearer")
    assert "error=" not in challenge


@pytest.mark.parametrize(
    "authorization",
    ["Bearer", "Bearer a b", "Bearer x", "Bearer a.b.c", "Bearer é", "Bearer " + "x" * 5000],
)
def test_half_a_token_is_not_one(api: APIClient, authorization: str, signing_key: None) -> None:
    status, code, challenge = answer(api, authorization)
    assert (status, code) == (401, "invalid_access_token")
    assert 'error="invalid_token"' in challenge


@pytest.mark.parametrize(
    "changes",
    [
        {"iss": "https://elsewhere.test"},
        {"drop": "iss"},
        {"drop": "exp"},
        {"drop": "sub"},
        {"drop": "sid"},
        {"drop": "ver"},
        {"sub": 7},
        {"sub": "not-a-uuid"},
        {"sid": None},
        {"ver": "many"},
        {"header": {"typ": "JWT"}},
        {"header": {"kid": "unknown"}},
        {"header": {"kid": "unknown", "jku": "http://127.0.0.1:1/jwks.json"}},
        {"header": {"crit": ["exp"]}},
    ],
)
def test_claims_and_headers_are_held_to_their_form(
    api: APIClient, pair: TokenPair, changes: dict
) -> None:
    try:
        token = forged(pair, **changes)
    except TypeError:
        # The library will not write it; then it is written by hand, over the good token's signature.
        token = with_claims(pair.access, changes)
    assert answer(api, f"Bearer {token}")[:2] == (401, "invalid_access_token")


def with_claims(token: str, changes: dict) -> str:
    header, _, signature = token.split(".")
    payload = json.dumps({**claims_of(token), **changes}).encode()
    return f"{header}.{urlsafe_b64encode(payload).rstrip(b'=').decode()}.{signature}"


def test_another_key_or_algorithm_is_refused(api: APIClient, pair: TokenPair) -> None:
    claims = claims_of(pair.access)
    row = SigningKey.objects.get()
    header = {"kid": row.kid, "typ": "at+jwt"}
    stranger = generate_private_key(public_exponent=65537, key_size=2048)
    tokens = [
        jwt.encode(claims, stranger, "RS256", headers=header),
        jwt.encode(claims, None, "none", headers=header),
        hs256_with_public_key(claims, row.public_pem.encode(), header),
    ]
    for token in tokens:
        assert answer(api, f"Bearer {token}")[:2] == (401, "invalid_access_token")


def hs256_with_public_key(claims: dict, pem: bytes, header: dict) -> str:
    """The classical confusion, made by hand because no library signs it any more."""
    import hashlib
    import hmac

    def part(value: dict) -> bytes:
        return urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=")

    signed = part({"alg": "HS256", **header}) + b"." + part(claims)
    mac = hmac.new(pem, signed, hashlib.sha256).digest()
    return (signed + b"." + urlsafe_b64encode(mac).rstrip(b"=")).decode()


def test_an_expired_token_says_so(api: APIClient, pair: TokenPair) -> None:
    token = forged(pair, exp=int(time.time()) - 1)
    assert answer(api, f"Bearer {token}")[:2] == (401, "access_token_expired")


def test_a_session_of_someone_else_is_no_access(api: APIClient, pair: TokenPair) -> None:
    token = forged(pair, sub=str(uuid4()))
    assert answer(api, f"Bearer {token}")[:2] == (401, "access_revoked")


class TestKeys:
    def test_issued_tokens_verify_with_the_published_keys(
        self, api: APIClient, pair: TokenPair
    ) -> None:
        response = api.get("/.well-known/jwks.json")
        assert response["Cache-Control"] == "public, max-age=300"
        keys = KeySet.import_key_set(response.json())
        token = joserfc_jwt.decode(pair.access, keys, algorithms=["RS256"])
        assert token.header["typ"] == "at+jwt"
        assert token.header["kid"] == token.claims["kid"] == keys.keys[0].thumbprint()
        assert set(response.json()["keys"][0]) == {"kty", "kid", "use", "alg", "n", "e"}
        again = api.get("/.well-known/jwks.json", headers={"If-None-Match": response["ETag"]})
        assert again.status_code == 304

    def test_a_key_published_ahead_verifies_before_it_signs(
        self, pair: TokenPair, by: Actor, now: datetime
    ) -> None:
        old = SigningKey.objects.get()
        new = rotate_signing_key(publish_ahead=timedelta(hours=24), by=by, now=now)
        assert ring.signer(now=now)[0] == old.kid
        assert ring.verifier(new.kid, now=now) is not None
        later = now + timedelta(hours=24)
        assert ring.signer(now=later)[0] == new.kid
        assert ring.verifier(old.kid, now=later + timedelta(days=89)) is not None
        assert ring.verifier(old.kid, now=later + timedelta(days=90)) is None

    def test_the_private_half_is_stored_encrypted(self, signing_key: None) -> None:
        row = SigningKey.objects.get()
        assert b"PRIVATE" not in bytes(row.private_key)
        assert bytes(row.private_key).startswith(b"gAAAA")

    def test_without_a_key_signing_in_is_unavailable_and_not_an_error(
        self, api: APIClient, user: User
    ) -> None:
        response = api.post(
            "/v1/auth/login",
            {"email": user.email, "password": "correct horse battery staple"},
            format="json",
        )
        assert (response.status_code, response.json()["code"]) == (503, "service_unavailable")

    def test_a_token_is_signed_in_a_third_of_a_millisecond_from_memory(
        self, pair: TokenPair, user: User, now: datetime, django_assert_num_queries
    ) -> None:
        claims = Claims(client_id=user.client_id, plan="Starter", entitlements=[])
        with django_assert_num_queries(0):
            token = AccessToken.issue(
                user_id=user.pk, session_id=uuid4(), epoch=0, claims=claims, now=now
            )
            assert str(token)
