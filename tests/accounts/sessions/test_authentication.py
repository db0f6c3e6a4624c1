"""Access tokens that are accepted, and the refusals of others."""

import time
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.serialization import load_pem_public_key
from rest_framework.test import APIClient

from accounts.audit import Actor
from accounts.hooks import Claims
from accounts.keys.key_ring import ring
from accounts.keys.signing_keys import rotate_signing_key
from accounts.models import SigningKey, User
from accounts.sessions.access_tokens import AccessToken
from accounts.sessions.sign_in import Device, TokenPair, sign_in
from config.platform.encryption import decrypt
from tests.conftest import PASSWORD
from tests.forgeries import claims_of, forgeries, signed
from tests.forgeries.table import table

pytestmark = pytest.mark.django_db
ME = "/v1/auth/me"


def answer(
    api: APIClient, authorization: str | None, path: str = ME
) -> tuple[int, str | None, str]:
    if authorization is not None:
        api.credentials(HTTP_AUTHORIZATION=authorization)
    response = api.get(path)
    return response.status_code, response.json().get("code"), response.get("WWW-Authenticate", "")


def changed(pair: TokenPair, **changes: object) -> str:
    """The caller's own claims, changed, and signed by the service's own key."""
    kid, key = ring.signer(now=datetime.now(UTC))
    return signed({**claims_of(pair.access), **changes}, key, kid)


def test_a_valid_token_identifies_the_caller(api: APIClient, pair: TokenPair, user: User) -> None:
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


def test_no_forgery_is_believed(api: APIClient, pair: TokenPair) -> None:
    kid, key = ring.signer(now=datetime.now(UTC))
    assert answer(api, f"Bearer {signed(claims_of(pair.access), key, kid)}")[0] == 200
    for what, token in forgeries(pair.access, kid=kid, key=key).items():
        # An address that is not limited by the caller's.
        status, code, challenge = answer(api, f"Bearer {token}", "/v1/usage/me")
        assert (status, code) == (401, "invalid_access_token"), what
        assert challenge == 'Bearer realm="shell", error="invalid_token"', what


def test_the_table_of_an_attack_lets_nobody_in(api: APIClient, pair: TokenPair) -> None:
    kid, key = ring.signer(now=datetime.now(UTC))
    tried = table(pair.access, kid=kid, key=key)
    assert len(tried) > 349
    refusals = {"invalid_access_token", "access_token_expired", "access_revoked"}
    for what, token in tried.items():
        status, code, challenge = answer(api, f"Bearer {token}", "/v1/usage/me")
        assert (status, code in refusals) == (401, True), (what, code)
        assert 'error="invalid_token"' in challenge, what
    assert answer(api, f"Bearer {pair.access}")[0] == 200


class TestAudience:
    """``TOKEN_AUDIENCE`` is an owner's choice, and a choice of later."""

    def test_new_tokens_name_it(
        self, user: User, signing_key: None, now: datetime, settings
    ) -> None:
        settings.TOKEN_AUDIENCE = "https://shell.test"
        made = sign_in(email=user.email, password=PASSWORD, device=Device(), now=now)
        assert claims_of(made.access)["aud"] == "https://shell.test"

    def test_none_names_it_otherwise(self, pair: TokenPair) -> None:
        assert "aud" not in claims_of(pair.access)

    def test_a_token_from_before_the_setting_goes_on(
        self, api: APIClient, pair: TokenPair, settings
    ) -> None:
        settings.TOKEN_AUDIENCE = "https://shell.test"
        assert answer(api, f"Bearer {pair.access}")[0] == 200

    @pytest.mark.parametrize(
        "audience", ["https://elsewhere.test", "", ["https://shell.test"], None]
    )
    def test_a_token_for_others_is_refused(
        self, api: APIClient, pair: TokenPair, settings, audience: object
    ) -> None:
        settings.TOKEN_AUDIENCE = "https://shell.test"
        assert answer(api, f"Bearer {changed(pair, aud='https://shell.test')}")[0] == 200
        token = changed(pair, aud=audience)
        assert answer(api, f"Bearer {token}")[:2] == (401, "invalid_access_token")


def test_every_token_has_an_id_of_its_own_and_one_of_before_has_none(
    api: APIClient, pair: TokenPair, user: User, now: datetime
) -> None:
    other = sign_in(email=user.email, password=PASSWORD, device=Device(), now=now)
    assert claims_of(pair.access)["jti"] != claims_of(other.access)["jti"]
    kid, key = ring.signer(now=now)
    before = {name: value for name, value in claims_of(pair.access).items() if name != "jti"}
    assert answer(api, f"Bearer {signed(before, key, kid)}")[0] == 200


@pytest.mark.parametrize("length", [10_000, 5_000_000])
def test_a_huge_token_is_not_looked_into(
    api: APIClient, pair: TokenPair, length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr("accounts.sessions.access_tokens.RingBackend.get_verifying_key")
    assert answer(api, f"Bearer {pair.access}{'A' * length}")[1] == "invalid_access_token"


def test_a_host_whose_clock_was_set_back_an_hour_believes_the_tokens_of_before(
    api: APIClient, pair: TokenPair
) -> None:
    kid, key = ring.signer(now=datetime.now(UTC))
    begun = int(time.time()) + 3500
    ahead = {**claims_of(pair.access), "iat": begun, "exp": begun + 3600}
    assert answer(api, f"Bearer {signed(ahead, key, kid)}")[0] == 200


def test_a_token_of_a_retired_or_revoked_key_is_refused(
    api: APIClient, pair: TokenPair, now: datetime
) -> None:
    kid, key = ring.signer(now=now)
    token = signed(claims_of(pair.access), key, kid)
    rows = SigningKey.objects.filter(kid=kid)
    started = {"published_at": now - timedelta(days=99), "signs_from": now - timedelta(days=99)}
    for ended, status in (
        ({**started, "superseded_at": now - timedelta(days=89)}, 200),
        ({**started, "superseded_at": now - timedelta(days=90)}, 401),
        ({"superseded_at": None}, 200),
        ({"revoked_at": now}, 401),
    ):
        rows.update(**ended)
        ring.forget()
        assert answer(api, f"Bearer {token}")[0] == status, ended


def test_an_expired_token_is_refused_as_expired(api: APIClient, pair: TokenPair) -> None:
    token = changed(pair, exp=int(time.time()) - 1)
    assert answer(api, f"Bearer {token}")[:2] == (401, "access_token_expired")


def test_a_token_that_was_good_expires_all_the_same(
    api: APIClient, pair: TokenPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert answer(api, f"Bearer {pair.access}")[0] == 200
    expires = claims_of(pair.access)["exp"]
    for before, told in ((1, (200, None)), (0, (401, "access_token_expired"))):
        at = expires - before
        monkeypatch.setattr("accounts.sessions.access_tokens.time", lambda at=at: at)
        assert answer(api, f"Bearer {pair.access}")[:2] == told


def test_a_token_that_was_good_is_verified_by_every_bit(api: APIClient, pair: TokenPair) -> None:
    assert answer(api, f"Bearer {pair.access}")[0] == 200
    head, _, signature = pair.access.rpartition(".")
    for other in ("A" if signature[0] != "A" else "B") + signature[1:], signature[:-2]:
        assert answer(api, f"Bearer {head}.{other}")[:2] == (401, "invalid_access_token")


def test_a_session_of_someone_else_is_no_access(api: APIClient, pair: TokenPair) -> None:
    token = changed(pair, sub=str(uuid4()))
    assert answer(api, f"Bearer {token}")[:2] == (401, "access_revoked")


class TestKeys:
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

    def test_a_new_key_has_the_strength_of_128_bits(self, signing_key: None) -> None:
        public = load_pem_public_key(SigningKey.objects.get().public_pem.encode())
        assert isinstance(public, RSAPublicKey)
        assert public.key_size == 3072

    def test_the_private_half_is_stored_encrypted(self, signing_key: None) -> None:
        row = SigningKey.objects.get()
        assert b"PRIVATE" not in bytes(row.private_key)
        stored = bytes(row.private_key)
        assert b"PRIVATE" in decrypt(stored, place=row.place("private_key"))

    def test_signing_in_without_a_key_is_unavailable_and_not_an_error(
        self, api: APIClient, user: User
    ) -> None:
        response = api.post(
            "/v1/auth/login",
            {"email": user.email, "password": "correct horse battery staple"},
            format="json",
        )
        assert (response.status_code, response.json()["code"]) == (503, "service_unavailable")

    def test_a_token_is_signed_from_memory(
        self, pair: TokenPair, user: User, now: datetime, django_assert_num_queries
    ) -> None:
        claims = Claims(client_id=user.client_id, plan="Starter", entitlements=[])
        with django_assert_num_queries(0):
            token = AccessToken.issue(
                user_id=user.pk, session_id=uuid4(), epoch=0, claims=claims, now=now
            )
            assert str(token)
