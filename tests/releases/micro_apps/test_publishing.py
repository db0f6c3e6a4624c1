"""Publishing a version of an app: verified, stored for ever, and finished by a repeat."""

import base64
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from accounts.models import AuditEvent
from config.api.problems import InvalidRequest, NotConfigured
from releases.delivery import storage
from releases.delivery.storage import PathTaken, StorageUnavailable
from releases.manifests.version_rules import VersionConflict
from releases.micro_apps.channels import move_channel, withdraw
from releases.models import AppChannel, AppVersion, MicroApp
from tests.races import race
from tests.releases.micro_apps.conftest import BY, NOW, Apps, archive, file
from tests.releases.signing import Signer

pytestmark = pytest.mark.django_db(transaction=True)
PATHS = ["apps/notes/1.0.0/bundle.tar.gz", "apps/notes/1.0.0/bundle.tar.gz.minisig"]


def latest() -> str:
    return AppChannel.objects.get(app="notes", name="latest").version.version


def nothing_published(apps: Apps) -> bool:
    return not (apps.stored() or MicroApp.objects.exists() or AuditEvent.objects.exists())


def test_a_version_is_stored_with_its_signature_and_offered_by_latest(apps: Apps) -> None:
    done = apps.publish()
    assert done.created
    assert apps.stored() == PATHS
    assert (apps.files / PATHS[0]).read_bytes() == (apps.folder / "bundle.tar.gz").read_bytes()
    assert latest() == done.latest == "1.0.0"
    assert done.version.signed_with == apps.signer.name
    actions = AuditEvent.objects.order_by("id").values_list("action", flat=True)
    assert list(actions) == ["app:published", "app:channel_moved"]


def test_the_same_again_changes_nothing(apps: Apps) -> None:
    apps.publish()
    before = AppVersion.objects.values().get()
    assert not apps.publish().created
    assert AppVersion.objects.values().get() == before
    assert AuditEvent.objects.count() == 2


def test_other_bytes_are_no_version_that_is_known(apps: Apps) -> None:
    apps.publish()
    with pytest.raises(VersionConflict):
        apps.publish(content=archive(file("other.html")))
    assert AppVersion.objects.count() == 1


def test_latest_moves_forward_only(apps: Apps) -> None:
    for version, then in (("1.2.0", "1.2.0"), ("1.10.0", "1.10.0"), ("1.9.9", "1.10.0")):
        assert apps.publish(version).latest == then
    assert latest() == "1.10.0"


def test_a_repeated_publish_undoes_no_move_of_an_operator(apps: Apps) -> None:
    one = apps.publish("1.0.0").version
    apps.publish("2.0.0")
    move_channel(name="latest", version_id=one.pk, reason="2.0.0 crashes", by=BY, now=NOW)
    again = apps.publish("2.0.0")
    assert (again.created, again.latest) == (False, "1.0.0")
    assert latest() == "1.0.0"


def test_a_signature_in_base64_as_tauri_writes_it_is_read(apps: Apps) -> None:
    bundle, signature = apps.bundle("1.0.0")
    signature.write_bytes(base64.b64encode(signature.read_bytes()))
    call_command("publish_app", "notes", "1.0.0", bundle, signature, stdout=StringIO())
    assert latest() == "1.0.0"


class TestRefusals:
    @pytest.mark.parametrize(
        ("code", "spoil"),
        [
            ("wrong_key", lambda b, s: s.write_bytes(Signer().sign(b.read_bytes(), "file:x"))),
            ("signature_mismatch", lambda b, s: b.write_bytes(archive(file("other")))),
            (
                "trusted_comment_altered",
                lambda b, s: s.write_bytes(s.read_bytes().replace(b"timestamp:1", b"timestamp:2")),
            ),
            ("signature_unreadable", lambda b, s: s.write_bytes(s.read_bytes()[:90])),
            ("signature_unreadable", lambda b, s: s.write_bytes(b"x" * 5000)),
            ("signature_not_base64", lambda b, s: s.write_bytes(b"no signature at all")),
            ("not_an_archive", lambda b, s: b.write_bytes(b"no archive")),
        ],
    )
    def test_a_bundle_without_a_valid_signature_is_not_stored(
        self, apps: Apps, code: str, spoil: Any
    ) -> None:
        bundle, signature = apps.bundle("1.0.0")
        spoil(bundle, signature)
        with pytest.raises(CommandError, match=code):
            call_command("publish_app", "notes", "1.0.0", bundle, signature)
        assert nothing_published(apps)

    @pytest.mark.parametrize(
        ("code", "comment"),
        [("wrong_file", "file:other.tar.gz"), ("wrong_version", "version:2.0.0")],
    )
    def test_a_bundle_signed_for_another_file_or_version_is_not_stored(
        self, apps: Apps, code: str, comment: str
    ) -> None:
        bundle, signature = apps.bundle("1.0.0")
        signature.write_bytes(apps.signer.sign(bundle.read_bytes(), comment))
        with pytest.raises(CommandError, match=code):
            call_command("publish_app", "notes", "1.0.0", bundle, signature)
        assert nothing_published(apps)

    def test_the_legacy_format_is_refused(self, apps: Apps) -> None:
        bundle, signature = apps.bundle("1.0.0")
        signature.write_bytes(apps.signer.sign(bundle.read_bytes(), "t", legacy=True))
        with pytest.raises(CommandError, match="legacy_algorithm"):
            call_command("publish_app", "notes", "1.0.0", bundle, signature)

    @pytest.mark.parametrize(
        ("slug", "version", "pointer"),
        [
            ("Notes", "1.0.0", "/slug"),
            ("../notes", "1.0.0", "/slug"),
            ("n" * 61, "1.0.0", "/slug"),
            ("notes", "v1.0.0", "/version"),
            ("notes", "1.0", "/version"),
            ("notes", "1.0.0/../../x", "/version"),
        ],
    )
    def test_names_are_held_to_their_form(
        self, apps: Apps, slug: str, version: str, pointer: str
    ) -> None:
        with pytest.raises(InvalidRequest) as refusal:
            apps.publish(version, slug=slug)
        assert [fault.pointer for fault in refusal.value.errors] == [pointer]
        assert nothing_published(apps)

    def test_without_a_key_nothing_is_published(self, apps: Apps, settings: Any) -> None:
        settings.APPS_PUBLIC_KEY = None
        with pytest.raises(NotConfigured):
            apps.publish()

    def test_a_missing_file_is_named(self, apps: Apps) -> None:
        with pytest.raises(CommandError, match="no such file"):
            call_command(
                "publish_app", "notes", "1.0.0", apps.folder / "none", apps.folder / "none"
            )


class TestCrashes:
    """Killed at any step: what is left is finished by a repeat, and no channel names what is not stored."""

    @pytest.mark.parametrize("step", [0, 1])
    def test_a_repeat_after_a_failed_write_finishes(
        self, apps: Apps, monkeypatch: pytest.MonkeyPatch, step: int
    ) -> None:
        real, calls = storage.put_once, iter(range(10))

        def failing(name: str, content: bytes) -> None:
            if next(calls) == step:
                raise StorageUnavailable
            real(name, content)

        with monkeypatch.context() as broken:
            broken.setattr(storage, "put_once", failing)
            with pytest.raises(StorageUnavailable):
                apps.publish()
        assert not AppChannel.objects.exists()
        assert AppVersion.objects.get().stored_at is None
        done = apps.publish()
        assert (done.created, done.latest, apps.stored()) == (True, "1.0.0", PATHS)

    def test_withdrawn_before_it_was_stored_it_is_offered_by_nothing(
        self, apps: Apps, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def away(name: str, content: bytes) -> None:
            raise StorageUnavailable

        with monkeypatch.context() as broken:
            broken.setattr(storage, "put_once", away)
            with pytest.raises(StorageUnavailable):
                apps.publish()
        withdraw(version_id=AppVersion.objects.get().pk, reason="not this one", by=BY, now=NOW)
        said = StringIO()
        call_command("publish_app", "notes", "1.0.0", *apps.bundle("1.0.0"), stdout=said)
        assert "latest offers nothing" in said.getvalue()
        assert not AppChannel.objects.exists()

    def test_other_bytes_at_the_path_of_a_version_stay(self, apps: Apps) -> None:
        storage.put_once(PATHS[0], b"somebody else's")
        with pytest.raises(PathTaken):
            apps.publish()
        assert (apps.files / PATHS[0]).read_bytes() == b"somebody else's"
        assert not AppChannel.objects.exists()

    def test_of_two_with_different_bytes_at_once_one_wins_whole(self, apps: Apps) -> None:
        from_here = {name: archive(file(name)) for name in ("a", "b")}
        folders = {name: Path(apps.folder / name) for name in from_here}
        for folder in folders.values():
            folder.mkdir()

        def publish(name: str) -> str:
            try:
                Apps(apps.signer, apps.files, folders[name]).publish(content=from_here[name])
            except VersionConflict:
                return "lost"
            finally:
                connection.close()
            return name

        ends = race(lambda: publish("a"), lambda: publish("b"))
        (won,) = set(ends) - {"lost"}
        assert (apps.files / PATHS[0]).read_bytes() == from_here[won]


def test_an_app_is_one_whatever_its_versions(apps: Apps) -> None:
    apps.publish("1.0.0")
    apps.publish("1.1.0")
    apps.publish(slug="sheets")
    assert list(MicroApp.objects.values_list("slug", flat=True)) == ["notes", "sheets"]
    assert BY.name == AppVersion.objects.first().published_by  # type: ignore[union-attr]
    assert AppVersion.objects.filter(published_at=NOW).count() == 3
