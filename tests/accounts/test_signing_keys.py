"""How signing keys come and go, and what builds take of them."""

from datetime import datetime, timedelta
from pathlib import Path

import jwt
import pytest
from django.core.management import CommandError, call_command
from rest_framework.test import APIClient

from accounts.audit import Actor
from accounts.key_ring import RELOAD_SECONDS, KeyRing, ring
from accounts.models import AuditEvent, Client, SigningKey
from accounts.sign_in import TokenPair
from accounts.signing_keys import (
    KeyIsAhead,
    public_files,
    replace_signing_keys,
    rotate_signing_key,
)
from tests.races import race

AT_ONCE, A_DAY = timedelta(0), timedelta(hours=24)


def rotated(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    call_command("rotate_signing_key", *arguments)
    return capsys.readouterr().out


@pytest.mark.django_db
class TestRotation:
    def test_nothing_rotates_while_a_published_key_waits_to_sign(
        self, signing_key: None, by: Actor, now: datetime
    ) -> None:
        ahead = rotate_signing_key(publish_ahead=A_DAY, by=by, now=now)
        for publish_ahead in (AT_ONCE, A_DAY):
            with pytest.raises(KeyIsAhead):
                rotate_signing_key(publish_ahead=publish_ahead, by=by, now=now)
        assert SigningKey.objects.count() == 2
        following = rotate_signing_key(publish_ahead=AT_ONCE, by=by, now=now + A_DAY)
        ahead.refresh_from_db()
        assert ahead.superseded_at == following.signs_from

    def test_the_command_says_so(
        self, signing_key: None, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert "signs from" in rotated(capsys, "--publish-first", "24")
        with pytest.raises(CommandError, match="not begun to sign"):
            call_command("rotate_signing_key")

    @pytest.mark.parametrize(
        "arguments",
        [
            ["--publish-first", "24", "--emergency"],
            ["--publish-first", "-1"],
            ["--publish-first", "nan"],
            ["--publish-first", "2161"],
        ],
    )
    def test_what_makes_no_sense_is_refused(self, arguments: list[str]) -> None:
        with pytest.raises(CommandError):
            call_command("rotate_signing_key", *arguments)
        with pytest.raises(CommandError):
            call_command("rotate_signing_key", publish_first=24.0, emergency=True)
        assert not SigningKey.objects.exists()


@pytest.mark.django_db
class TestEmergency:
    def test_tokens_of_every_other_key_are_refused_from_the_next_call_on(
        self, signed_in: APIClient, pair: TokenPair, by: Actor, now: datetime
    ) -> None:
        rotate_signing_key(publish_ahead=A_DAY, by=by, now=now)
        assert signed_in.get("/v1/auth/me").status_code == 200
        key = replace_signing_keys(by=by, now=now)
        refused = signed_in.get("/v1/auth/me")
        assert (refused.status_code, refused.json()["code"]) == (401, "invalid_access_token")
        jwks = signed_in.get("/.well-known/jwks.json").json()
        assert [each["kid"] for each in jwks["keys"]] == [key.kid]
        fresh = signed_in.post("/v1/auth/refresh", {"refresh": pair.refresh}, format="json").json()
        assert jwt.get_unverified_header(fresh["access"])["kid"] == key.kid
        signed_in.credentials(HTTP_AUTHORIZATION=f"Bearer {fresh['access']}")
        assert signed_in.get("/v1/auth/me").status_code == 200

    def test_another_process_follows_within_its_reload(
        self, signing_key: None, by: Actor, now: datetime, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        clock = 1000.0
        monkeypatch.setattr("accounts.key_ring.monotonic", lambda: clock)
        other = KeyRing()
        old, _ = other.signer(now=now)
        key = replace_signing_keys(by=by, now=now)
        assert other.verifier(old, now=now) is not None
        clock += RELOAD_SECONDS
        assert other.verifier(old, now=now) is None
        assert other.signer(now=now)[0] == key.kid

    def test_it_is_audited_key_by_key(
        self, signing_key: None, capsys: pytest.CaptureFixture[str]
    ) -> None:
        (old,) = SigningKey.objects.values_list("kid", flat=True)
        said = rotated(capsys, "--emergency")
        assert f"within {RELOAD_SECONDS:.0f} s" in said
        (event,) = AuditEvent.objects.filter(action="signing_key:revoked")
        assert (event.target, event.actor) == (old, "manage.py rotate_signing_key")
        made = AuditEvent.objects.filter(action="signing_key:made")[:1].get()
        assert made.after == {"revoked": [old]}

    def test_afterwards_keys_rotate_as_ever(
        self, signing_key: None, by: Actor, now: datetime
    ) -> None:
        first = replace_signing_keys(by=by, now=now)
        second = rotate_signing_key(publish_ahead=A_DAY, by=by, now=now)
        assert ring.signer(now=now)[0] == first.kid
        assert ring.signer(now=now + A_DAY)[0] == second.kid


@pytest.mark.django_db(transaction=True)
def test_of_two_rotations_at_once_only_one_publishes_a_key_ahead(
    organisation: Client, signing_key: None, by: Actor, now: datetime
) -> None:
    def ahead() -> SigningKey:
        return rotate_signing_key(publish_ahead=A_DAY, by=by, now=now)

    results = race(ahead, ahead, ahead)
    assert [type(each) for each in results].count(KeyIsAhead) == 2
    assert SigningKey.objects.filter(superseded_at=None).count() == 1


@pytest.mark.django_db
class TestExport:
    def test_it_is_what_verifies_now_or_will(
        self, api: APIClient, tmp_path: Path, by: Actor, now: datetime
    ) -> None:
        long_ago, before = now - timedelta(days=100), now - timedelta(days=95)
        retired = rotate_signing_key(publish_ahead=AT_ONCE, by=by, now=long_ago)
        verifying = rotate_signing_key(publish_ahead=AT_ONCE, by=by, now=before)
        signing = rotate_signing_key(publish_ahead=AT_ONCE, by=by, now=now)
        ahead = rotate_signing_key(publish_ahead=A_DAY, by=by, now=now)
        (tmp_path / f"{retired.kid}.pem").write_text("of an earlier export")
        (tmp_path / "README").write_text("of somebody else")
        call_command("export_public_keys", output=tmp_path)
        kids = {verifying.kid, signing.kid, ahead.kid}
        names = {path.name for path in tmp_path.iterdir()}
        assert names == {"README", "jwks.json", *(f"{kid}.pem" for kid in kids)}
        served = api.get("/.well-known/jwks.json").content
        assert (tmp_path / "jwks.json").read_bytes() == served
        assert b"PRIVATE" not in b"".join(path.read_bytes() for path in tmp_path.iterdir())

    def test_a_token_verifies_with_either_form(
        self, pair: TokenPair, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        call_command("export_public_keys", "--output", str(tmp_path / "new" / "folder"))
        assert "1 keys written" in capsys.readouterr().out
        (pem,) = (tmp_path / "new" / "folder").glob("*.pem")
        assert jwt.get_unverified_header(pair.access)["kid"] == pem.stem
        assert jwt.decode(pair.access, pem.read_bytes(), algorithms=["RS256"])["kid"] == pem.stem
        keys = jwt.PyJWKSet.from_json((pem.parent / "jwks.json").read_text())
        assert jwt.decode(pair.access, keys[pem.stem], algorithms=["RS256"])["kid"] == pem.stem

    def test_the_same_keys_give_the_same_bytes(
        self, signing_key: None, by: Actor, now: datetime
    ) -> None:
        rotate_signing_key(publish_ahead=A_DAY, by=by, now=now)
        assert public_files(now=now) == public_files(now=now + timedelta(hours=1))
        replace_signing_keys(by=by, now=now)
        assert len(public_files(now=now)) == 2
