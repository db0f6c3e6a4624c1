"""The life of signing keys, and the parts that builds take of them."""

import json
from datetime import datetime, timedelta
from pathlib import Path

import jwt
import pytest
import time_machine
from cryptography.fernet import Fernet
from django.core.management import CommandError, call_command
from django.db import IntegrityError
from django.db.models import F
from rest_framework.test import APIClient

from accounts.audit import Actor
from accounts.keys.key_ring import RELOAD_SECONDS, KeyRing, ring
from accounts.keys.signing_keys import (
    LEAST_AHEAD,
    KeyIsAhead,
    public_files,
    reencrypt_signing_keys,
    replace_signing_keys,
    rotate_signing_key,
)
from accounts.management.commands import rotate_signing_key as command
from accounts.models import AuditEvent, Client, SigningKey
from accounts.models.keys import VERIFYING, Stage
from accounts.sessions.access_tokens import AccessToken
from accounts.sessions.sign_in import TokenPair
from config.platform.encryption import CannotDecrypt
from config.platform.env.secret_files import Secret
from tests.races import race

AT_ONCE, A_DAY = timedelta(0), timedelta(hours=24)
MOMENT = timedelta(microseconds=1)
JOSE_COOLDOWN = timedelta(seconds=30)


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Records the waits of the command, in seconds, without waiting."""
    waits: list[float] = []
    monkeypatch.setattr(command, "sleep", waits.append)
    return waits


def rotated(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The last line that it has said, after which it came back."""
    call_command("rotate_signing_key", *arguments)
    return str(capsys.readouterr().out.splitlines()[-1])


@pytest.mark.django_db
class TestLife:
    def test_a_keys_state_depends_on_its_timestamps_alone_as_in_the_database(
        self, by: Actor, now: datetime
    ) -> None:
        first = rotate_signing_key(publish_ahead=AT_ONCE, by=by, now=now)
        second = rotate_signing_key(publish_ahead=A_DAY, by=by, now=now + A_DAY)
        first.refresh_from_db()
        signs_until, verifies_until = second.signs_from, second.signs_from + VERIFYING
        for at, of_first, of_second in (
            (now, Stage.SIGNING, Stage.PLANNED),
            (now + A_DAY, Stage.SIGNING, Stage.PUBLISHED),
            (signs_until - MOMENT, Stage.SIGNING, Stage.PUBLISHED),
            (signs_until, Stage.VERIFYING, Stage.SIGNING),
            (verifies_until - MOMENT, Stage.VERIFYING, Stage.SIGNING),
            (verifies_until, Stage.RETIRED, Stage.SIGNING),
        ):
            assert (first.stage(at=at), second.stage(at=at)) == (of_first, of_second)
            for stage in Stage:
                here = {key.kid for key in (first, second) if key.stage(at=at) == stage}
                rows = SigningKey.objects.at_stage(stage, at=at)
                assert {row.kid for row in rows} == here, (stage, at)
            verifying = SigningKey.objects.verifying(at=at)
            assert {row.kid for row in verifying} == {
                key.kid for key in (first, second) if key.verifies(at=at)
            }

    def test_a_revoked_key_is_retired_wherever_it_was(self, by: Actor, now: datetime) -> None:
        keys = [rotate_signing_key(publish_ahead=AT_ONCE, by=by, now=now - A_DAY)]
        keys += [rotate_signing_key(publish_ahead=A_DAY, by=by, now=now)]
        replace_signing_keys(by=by, now=now)
        for key in keys:
            key.refresh_from_db()
            assert (key.stage(at=now), key.verifies_until) == (Stage.RETIRED, now)
        assert SigningKey.objects.at_stage(Stage.RETIRED, at=now).count() == 2

    def test_a_key_outlives_every_token_it_has_signed(self) -> None:
        assert AccessToken.lifetime < VERIFYING

    @pytest.mark.parametrize(
        "wrong",
        [
            {"signs_from": -timedelta(seconds=1)},
            {"superseded_at": -timedelta(seconds=1)},
        ],
    )
    def test_the_database_holds_the_order_of_the_timestamps(
        self, by: Actor, now: datetime, wrong: dict[str, timedelta]
    ) -> None:
        key = rotate_signing_key(publish_ahead=AT_ONCE, by=by, now=now)
        with pytest.raises(IntegrityError):
            SigningKey.objects.filter(pk=key.pk).update(
                **{name: now + ahead for name, ahead in wrong.items()}
            )


@pytest.mark.django_db
class TestRotation:
    def test_the_first_key_signs_at_once_because_nobody_can_sign_in_without(
        self, by: Actor, now: datetime
    ) -> None:
        key = rotate_signing_key(publish_ahead=A_DAY, by=by, now=now)
        assert key.signs_from == now

    def test_no_key_signs_before_every_process_has_read_it(
        self, signing_key: None, by: Actor, now: datetime
    ) -> None:
        (old,) = SigningKey.objects.all()
        key = rotate_signing_key(publish_ahead=AT_ONCE, by=by, now=now)
        old.refresh_from_db()
        assert key.signs_from == old.superseded_at == now + LEAST_AHEAD
        # A verifier was served a list of before by the last process to read, and may not ask again for a while.
        assert timedelta(seconds=RELOAD_SECONDS) + JOSE_COOLDOWN <= LEAST_AHEAD
        assert ring.signer(now=now + LEAST_AHEAD - MOMENT)[0] == old.kid
        assert ring.signer(now=now + LEAST_AHEAD)[0] == key.kid

    def test_asked_again_while_a_key_waits_it_makes_no_other(
        self, signing_key: None, by: Actor, now: datetime
    ) -> None:
        ahead = rotate_signing_key(publish_ahead=A_DAY, by=by, now=now)
        again = rotate_signing_key(publish_ahead=A_DAY, by=by, now=now + timedelta(hours=1))
        assert again == ahead
        with pytest.raises(KeyIsAhead):
            rotate_signing_key(publish_ahead=AT_ONCE, by=by, now=now)
        assert SigningKey.objects.count() == 2
        assert AuditEvent.objects.filter(action="signing_key:made").count() == 2
        following = rotate_signing_key(publish_ahead=AT_ONCE, by=by, now=now + A_DAY)
        ahead.refresh_from_db()
        assert ahead.superseded_at == following.signs_from

    def test_a_rotation_is_audited_with_the_superseded_key(
        self, signing_key: None, by: Actor, now: datetime
    ) -> None:
        (old,) = SigningKey.objects.all()
        key = rotate_signing_key(publish_ahead=A_DAY, by=by, now=now)
        event = AuditEvent.objects.get(action="signing_key:made", target_id=key.kid)
        assert event.after is not None
        assert (event.after["supersedes"], event.actor) == (old.kid, by.name)


@pytest.mark.django_db
class TestCommand:
    def test_the_command_returns_once_the_new_key_signs(
        self, signing_key: None, waits: list[float], capsys: pytest.CaptureFixture[str]
    ) -> None:
        call_command("rotate_signing_key")
        first, last = capsys.readouterr().out.splitlines()
        key = SigningKey.objects.get(superseded_at=None)
        (waited,) = waits
        assert first == (
            f"rotate_signing_key: waiting {waited:.0f} s, until {key.kid} signs in every process"
        )
        assert last.startswith(f"rotate_signing_key: {key.kid} is published and signs since")
        assert 0 < waited - command.CLOCK_SECONDS <= LEAST_AHEAD.total_seconds()
        assert f"{key.kid} had been published before and signs since" in rotated(capsys)

    def test_the_wait_is_announced_before_it_begins(
        self, signing_key: None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        said: list[str] = []
        monkeypatch.setattr(command, "sleep", lambda _: said.append(capsys.readouterr().out))
        call_command("rotate_signing_key")
        (announced,) = said
        assert announced.startswith("rotate_signing_key: waiting ")

    def test_the_first_key_is_not_waited_for(
        self, waits: list[float], capsys: pytest.CaptureFixture[str]
    ) -> None:
        call_command("rotate_signing_key")
        (said,) = capsys.readouterr().out.splitlines()
        assert "is published and signs since" in said
        assert waits == []

    def test_published_first_it_comes_back_when_every_process_has_it_in_its_list(
        self, signing_key: None, waits: list[float], capsys: pytest.CaptureFixture[str]
    ) -> None:
        clock = 1000.0
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("accounts.keys.key_ring.monotonic", lambda: clock)
            other = KeyRing()
            before, _ = other.jwks(now=datetime.now().astimezone())
            with time_machine.travel(datetime.now().astimezone(), tick=False):
                assert "is published and signs from" in rotated(capsys, "--publish-first", "24")
            assert other.jwks(now=datetime.now().astimezone())[0] == before
            # It waits what is left since the key was published.
            clock += waits[0]
            key = SigningKey.objects.get(superseded_at=None)
            assert key.kid.encode() in other.jwks(now=datetime.now().astimezone())[0]

    def test_asked_again_it_waits_for_what_is_left(
        self, signing_key: None, waits: list[float], capsys: pytest.CaptureFixture[str]
    ) -> None:
        rotated(capsys, "--publish-first", "24")
        SigningKey.objects.filter(superseded_at=None).update(
            published_at=F("published_at") - timedelta(seconds=30)
        )
        assert "had been published before and signs from" in rotated(
            capsys, "--publish-first", "24"
        )
        assert waits[1] == 0
        with pytest.raises(CommandError, match="starts signing later"):
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
    def test_nonsense_is_refused(self, arguments: list[str]) -> None:
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

    def test_the_command_comes_back_when_every_process_has_followed(
        self, signing_key: None, waits: list[float], capsys: pytest.CaptureFixture[str]
    ) -> None:
        (old,) = SigningKey.objects.values_list("kid", flat=True)
        clock = 1000.0
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("accounts.keys.key_ring.monotonic", lambda: clock)
            other = KeyRing()
            assert other.verifier(old, now=datetime.now().astimezone()) is not None
            said = rotated(capsys, "--emergency")
            assert other.verifier(old, now=datetime.now().astimezone()) is not None
            clock += waits[0]
            assert other.verifier(old, now=datetime.now().astimezone()) is None
            key = SigningKey.objects.get(revoked_at=None)
            assert other.signer(now=datetime.now().astimezone())[0] == key.kid
        assert said == (
            f"rotate_signing_key: {key.kid} signs, every other key is void in every process"
        )

    def test_an_emergency_is_audited_key_by_key(
        self, signing_key: None, waits: list[float]
    ) -> None:
        (old,) = SigningKey.objects.values_list("kid", flat=True)
        call_command("rotate_signing_key", "--emergency")
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
class TestAtOnce:
    @pytest.mark.parametrize("ahead", [AT_ONCE, A_DAY])
    def test_one_of_several_rotations_makes_the_key(
        self, organisation: Client, signing_key: None, by: Actor, now: datetime, ahead: timedelta
    ) -> None:
        def rotate() -> SigningKey:
            return rotate_signing_key(publish_ahead=ahead, by=by, now=now)

        kids = {key.kid for key in race(rotate, rotate, rotate) if isinstance(key, SigningKey)}
        assert len(kids) == 1
        assert SigningKey.objects.get(superseded_at=None).kid in kids
        assert SigningKey.objects.count() == 2

    def test_one_key_that_signs_is_left_of_several_emergencies_and_rotations(
        self, organisation: Client, signing_key: None, by: Actor, now: datetime
    ) -> None:
        def replace() -> SigningKey:
            return replace_signing_keys(by=by, now=now)

        def rotate() -> SigningKey:
            return rotate_signing_key(publish_ahead=AT_ONCE, by=by, now=now)

        assert all(isinstance(key, SigningKey) for key in race(replace, rotate, replace))
        assert SigningKey.objects.at_stage(Stage.SIGNING, at=now).count() == 1
        assert SigningKey.objects.filter(superseded_at=None, revoked_at=None).count() == 1


@pytest.mark.django_db
class TestEncryption:
    def test_private_halves_move_under_the_newest_key_so_that_the_old_one_can_go(
        self, signing_key: None, settings, capsys: pytest.CaptureFixture[str]
    ) -> None:
        old, new = settings.ENCRYPTION_KEYS(), Fernet.generate_key().decode()
        settings.ENCRYPTION_KEYS = Secret("ENCRYPTION_KEYS", f"{new},{old}")
        call_command("reencrypt_signing_keys")
        assert "1 of 1 moved" in capsys.readouterr().out
        settings.ENCRYPTION_KEYS = Secret("ENCRYPTION_KEYS", new)
        (key,) = SigningKey.objects.all()
        assert KeyRing().signer(now=datetime.now().astimezone())[0] == key.kid
        call_command("reencrypt_signing_keys")
        assert "0 of 1 moved" in capsys.readouterr().out
        (event,) = AuditEvent.objects.filter(action="signing_key:reencrypted")
        assert event.after == {"keys": [key.kid]}

    def test_reencrypting_reports_an_old_key_that_is_already_gone(
        self, signing_key: None, settings
    ) -> None:
        settings.ENCRYPTION_KEYS = Secret("ENCRYPTION_KEYS", Fernet.generate_key().decode())
        with pytest.raises(CommandError, match="no longer has"):
            call_command("reencrypt_signing_keys")

    def test_an_undecryptable_retired_key_does_not_block_reencrypting_the_others(
        self, by: Actor, now: datetime, settings, capsys: pytest.CaptureFixture[str]
    ) -> None:
        old, new = (Fernet.generate_key().decode() for _ in range(2))
        lost = rotate_signing_key(publish_ahead=AT_ONCE, by=by, now=now - 2 * A_DAY)
        settings.ENCRYPTION_KEYS = Secret("ENCRYPTION_KEYS", old)
        superseded = rotate_signing_key(publish_ahead=AT_ONCE, by=by, now=now - A_DAY)
        signs = rotate_signing_key(publish_ahead=AT_ONCE, by=by, now=now - LEAST_AHEAD)
        settings.ENCRYPTION_KEYS = Secret("ENCRYPTION_KEYS", f"{new},{old}")
        call_command("reencrypt_signing_keys")
        said = capsys.readouterr().out
        assert "2 of 3 moved under the newest encryption key, 1 that no longer sign" in said
        settings.ENCRYPTION_KEYS = Secret("ENCRYPTION_KEYS", new)
        assert KeyRing().signer(now=now)[0] == signs.kid
        before = bytes(lost.private_key)
        lost.refresh_from_db()
        assert bytes(lost.private_key) == before
        (event,) = AuditEvent.objects.filter(action="signing_key:reencrypted")
        assert event.after == {"keys": sorted([superseded.kid, signs.kid])}

    def test_a_key_that_still_signs_must_be_decryptable(
        self, by: Actor, now: datetime, settings
    ) -> None:
        rotate_signing_key(publish_ahead=AT_ONCE, by=by, now=now - A_DAY)
        settings.ENCRYPTION_KEYS = Secret("ENCRYPTION_KEYS", Fernet.generate_key().decode())
        successor = rotate_signing_key(publish_ahead=AT_ONCE, by=by, now=now)
        until = successor.signs_from
        with pytest.raises(CannotDecrypt):
            reencrypt_signing_keys(by=by, now=until - MOMENT)
        assert reencrypt_signing_keys(by=by, now=until) == (0, 2, 1)


@pytest.mark.django_db
class TestExport:
    def test_the_export_has_the_keys_that_verify_now_or_later(
        self, api: APIClient, tmp_path: Path, by: Actor, now: datetime
    ) -> None:
        long_ago, before = now - timedelta(days=100), now - timedelta(days=95)
        retired = rotate_signing_key(publish_ahead=AT_ONCE, by=by, now=long_ago)
        verifying = rotate_signing_key(publish_ahead=AT_ONCE, by=by, now=before)
        signing = rotate_signing_key(publish_ahead=AT_ONCE, by=by, now=now - A_DAY)
        ahead = rotate_signing_key(publish_ahead=A_DAY, by=by, now=now)
        (tmp_path / f"{retired.kid}.pem").write_text("of an earlier export")
        (tmp_path / "README").write_text("of somebody else")
        call_command("export_public_keys", output=tmp_path)
        kids = {verifying.kid, signing.kid, ahead.kid}
        names = {path.name for path in tmp_path.iterdir()}
        assert names == {"README", "jwks.json", "keys.json", *(f"{kid}.pem" for kid in kids)}
        served = api.get("/.well-known/jwks.json").content
        assert (tmp_path / "jwks.json").read_bytes() == served
        assert b"PRIVATE" not in b"".join(path.read_bytes() for path in tmp_path.iterdir())

        times = {
            key["kid"]: key for key in json.loads((tmp_path / "keys.json").read_text())["keys"]
        }
        assert times.keys() == kids
        until = datetime.fromisoformat(times[verifying.kid]["verifies_until"])
        assert until == signing.signs_from + VERIFYING
        assert times[ahead.kid]["verifies_until"] is None
        assert datetime.fromisoformat(times[ahead.kid]["signs_from"]) == ahead.signs_from

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

    def test_an_impossible_folder_is_reported(self, signing_key: None, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("of somebody else")
        for output, why in (("file", "File exists"), ("file/folder", "Not a directory")):
            with pytest.raises(CommandError, match=f"{output} cannot be written to: {why}"):
                call_command("export_public_keys", output=tmp_path / output)
        assert (tmp_path / "file").read_text() == "of somebody else"

    def test_the_same_keys_give_the_same_bytes(
        self, signing_key: None, by: Actor, now: datetime
    ) -> None:
        rotate_signing_key(publish_ahead=A_DAY, by=by, now=now)
        assert public_files(now=now) == public_files(now=now + timedelta(hours=1))
        replace_signing_keys(by=by, now=now)
        assert len(public_files(now=now)) == 3
