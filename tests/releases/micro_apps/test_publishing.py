"""Publishing a version of an app: verified, stored for ever, and finished by a repeat."""

import base64
from io import StringIO
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from accounts.models import AuditEvent
from config.platform.problems.problem import InvalidRequest, NotConfigured
from releases.delivery import storage
from releases.delivery.storage import PathTaken, StorageUnavailable
from releases.micro_apps.channels import move_channel, withdraw
from releases.models import AppChannel, AppVersion, MicroApp
from releases.version_rules import DowngradeRefused, VersionConflict
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


def test_different_bytes_for_a_published_version_are_refused(apps: Apps) -> None:
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
        [
            ("wrong_file", "timestamp:1\tfile:other.tar.gz\tapp:notes\tversion:1.0.0"),
            ("wrong_version", "timestamp:1\tapp:notes\tversion:2.0.0"),
            ("wrong_app", "timestamp:1\tapp:payroll\tversion:1.0.0"),
            ("wrong_app", "timestamp:1\tapp:Notes\tversion:1.0.0"),
            ("app_not_signed.*version_not_signed", "timestamp:1\tfile:bundle.tar.gz"),
            ("app_not_signed", "timestamp:1\tfile:bundle.tar.gz\tversion:1.0.0"),
            ("version_not_signed", "timestamp:1\tapp:notes"),
            # Fields are separated by tabs alone.
            ("app_not_signed", "timestamp:1 app:notes\tversion:1.0.0"),
            ("trusted_comment_unreadable", "timestamp:1\tapp:payroll\tapp:notes\tversion:1.0.0"),
            ("no_timestamp", "app:notes\tversion:1.0.0"),
            ("no_timestamp", "timestamp:-1\tapp:notes\tversion:1.0.0"),
            ("timestamp_ahead", "timestamp:99999999999\tapp:notes\tversion:1.0.0"),
        ],
    )
    def test_a_signature_that_names_something_else_or_nothing_publishes_nothing(
        self, apps: Apps, code: str, comment: str
    ) -> None:
        bundle, signature = apps.bundle("1.0.0")
        signature.write_bytes(apps.signer.sign(bundle.read_bytes(), comment))
        with pytest.raises(CommandError, match=code):
            call_command("publish_app", "notes", "1.0.0", bundle, signature)
        assert nothing_published(apps)

    def test_a_bundle_of_one_app_is_not_published_as_another(self, apps: Apps) -> None:
        bundle, signature = apps.bundle("5.0.1")
        for slug, version in (("payroll", "5.0.1"), ("payroll", "1.0.0"), ("notes", "9.9.9")):
            with pytest.raises(CommandError, match="wrong_"):
                call_command("publish_app", slug, version, bundle, signature)
        assert nothing_published(apps)

    def test_an_old_bundle_that_was_never_published_is_not_published_after_a_newer_one(
        self, apps: Apps
    ) -> None:
        bundle, signature = apps.bundle("2.0.0")
        old = bundle.read_bytes(), signature.read_bytes()
        apps.publish("1.0.1")
        bundle.write_bytes(old[0])
        signature.write_bytes(old[1])
        with pytest.raises(CommandError, match="signature_not_newer"):
            call_command("publish_app", "notes", "2.0.0", bundle, signature)
        assert not AppVersion.objects.filter(version="2.0.0").exists()
        assert apps.publish("2.0.0").latest == "2.0.0"

    def test_apps_do_not_wait_for_each_others_signatures(self, apps: Apps) -> None:
        apps.publish("1.0.0", slug="payroll")
        apps.seconds = iter([1])
        assert apps.publish("1.0.0").created

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

    def test_nothing_is_published_without_a_key(self, apps: Apps, settings: Any) -> None:
        settings.APPS_PUBLIC_KEY = None
        with pytest.raises(NotConfigured):
            apps.publish()

    def test_a_missing_file_is_named(self, apps: Apps) -> None:
        with pytest.raises(CommandError, match="no such file"):
            call_command(
                "publish_app", "notes", "1.0.0", apps.folder / "none", apps.folder / "none"
            )


class TestEarlierReleases:
    """Apps published before signatures had to name them."""

    @pytest.fixture
    def early(self, apps: Apps) -> tuple[Path, Path]:
        version = apps.publish("1.0.0").version
        bundle, signature = apps.bundle("1.0.0")
        signature.write_bytes(apps.signer.sign(bundle.read_bytes(), "file:bundle.tar.gz"))
        (apps.files / PATHS[1]).write_bytes(signature.read_bytes())
        AppVersion.objects.filter(pk=version.pk).update(signature=signature.read_bytes())
        return bundle, signature

    def test_a_repeat_still_changes_nothing(self, apps: Apps, early: tuple[Path, Path]) -> None:
        said = StringIO()
        call_command("publish_app", "notes", "1.0.0", *early, stdout=said)
        assert "was there already" in said.getvalue()

    def test_operators_offer_and_pin_it(self, apps: Apps, early: tuple[Path, Path]) -> None:
        apps.seconds = count(int(NOW.timestamp()) + 1)
        apps.publish("2.0.0")
        old = AppVersion.objects.get(version="1.0.0")
        move_channel(name="latest", version_id=old.pk, reason="2.0.0 crashes", by=BY, now=NOW)
        assert latest() == "1.0.0"

    def test_the_time_of_its_publish_counts_without_one_of_its_own(
        self, apps: Apps, early: tuple[Path, Path]
    ) -> None:
        apps.seconds = iter([int(NOW.timestamp()), int(NOW.timestamp()) + 1])
        with pytest.raises(DowngradeRefused):
            apps.publish("1.1.0")
        assert apps.publish("1.1.0").created


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

    def test_one_of_two_concurrent_publishes_with_different_bytes_wins_completely(
        self, apps: Apps
    ) -> None:
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

    def test_one_of_two_versions_signed_at_once_is_published(self, apps: Apps) -> None:
        apps.publish("0.1.0")

        def publish(version: str) -> str:
            folder = apps.folder / version
            folder.mkdir()
            own = Apps(apps.signer, apps.files, folder, seconds=iter([1_000]))
            try:
                own.publish(version)
            except DowngradeRefused:
                return "refused"
            finally:
                connection.close()
            return version

        ends = race(lambda: publish("1.0.0"), lambda: publish("2.0.0"))
        assert sorted(ends)[1:] == ["refused"]


def test_an_app_is_one_whatever_its_versions(apps: Apps) -> None:
    apps.publish("1.0.0")
    apps.publish("1.1.0")
    apps.publish(slug="sheets")
    assert list(MicroApp.objects.values_list("slug", flat=True)) == ["notes", "sheets"]
    assert BY.name == AppVersion.objects.first().published_by  # type: ignore[union-attr]
    assert AppVersion.objects.filter(published_at=NOW).count() == 3
