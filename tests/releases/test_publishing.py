"""Publishing: what is stored, what is refused with nothing changed, and what a crash leaves to a repeat."""

import base64
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.db.models.functions import Now
from pytest_django.fixtures import Settings

from accounts.models import AuditEvent
from config.platform.problems.problem import InvalidRequest, NotConfigured, Problem
from releases import publishing
from releases.delivery import leases, purging, storage, storage_sync
from releases.delivery.leases import PublishInProgress
from releases.delivery.storage import StorageUnavailable
from releases.manifests import artifacts
from releases.manifests.artifacts import ArtifactRejected
from releases.manifests.minisign import PublicKey, Signature
from releases.models import Publication, ShellArtifact, ShellChannel, ShellRelease
from releases.version_rules import DowngradeRefused, VersionConflict
from tests.races import race
from tests.releases.conftest import NOW, PIPELINE, Pipeline, Release
from tests.standins.cdn import IMMUTABLE

pytestmark = pytest.mark.django_db


class Killed(BaseException):
    """An exception that no code of ours catches."""


def signature_of(release: Release) -> bytes:
    return base64.b64decode(release.signature)


def nothing_changed(pipeline: Pipeline) -> bool:
    return pipeline.nothing_stored() and not ShellRelease.objects.exists()


def test_the_first_publish_of_a_channel(pipeline: Pipeline) -> None:
    release = pipeline.release("1.0.0")
    done = pipeline.publish(release)
    assert (done.channel, done.version, done.purged, done.created) == (
        "stable",
        "1.0.0",
        None,
        True,
    )
    assert done.url == f"{pipeline.cdn.url}/shell/stable/latest.json"
    assert pipeline.stored() == (release.body, signature_of(release))
    row = ShellRelease.objects.get()
    assert (row.channel_id, row.version, bytes(row.manifest)) == ("stable", "1.0.0", release.body)
    assert row.platforms == ["darwin-aarch64", "windows-x86_64"]
    assert row.published_by == "release pipeline (secret 1)"
    publication = Publication.objects.get()
    assert publication.release == row
    assert publication.stored_at is not None
    assert ShellChannel.objects.get().leased_until is None


def test_the_artifacts_found_at_the_cdn_are_recorded(pipeline: Pipeline) -> None:
    pipeline.publish(pipeline.release("1.0.0"))
    mac, windows = ShellArtifact.objects.all()
    assert (mac.platform, windows.platform) == ("darwin-aarch64", "windows-x86_64")
    assert mac.size == len(pipeline.cdn.files["/shell/1.0.0/shell-darwin-aarch64.tar.gz"])  # type: ignore[arg-type]
    assert mac.cache_control == IMMUTABLE


def test_a_publish_is_audited_without_any_secret(pipeline: Pipeline) -> None:
    pipeline.publish(pipeline.release("1.0.0"))
    pipeline.publish(pipeline.release("1.1.0"))
    event = AuditEvent.objects.first()
    assert event is not None
    assert (event.action, event.actor) == ("release:published", PIPELINE.name)
    assert (event.address, event.request_id) == ("192.0.2.7", "request-1")
    assert (event.target, event.target_id, event.at) == ("stable 1.1.0", "stable", NOW)
    assert event.before == {"version": "1.0.0"}
    assert event.after is not None
    assert event.after["version"] == "1.1.0"


def test_a_newer_version_takes_its_place(pipeline: Pipeline) -> None:
    pipeline.publish(pipeline.release("1.9.0"))
    newer = pipeline.release("1.10.0")
    assert pipeline.publish(newer).created
    assert pipeline.stored() == (newer.body, signature_of(newer))


def test_channels_do_not_meddle(pipeline: Pipeline) -> None:
    stable, beta = pipeline.release("1.0.0"), pipeline.release("0.9.0", "beta")
    pipeline.publish(stable)
    pipeline.publish(beta, "beta")
    assert pipeline.stored("stable")[0] == stable.body
    assert pipeline.stored("beta")[0] == beta.body


def test_the_same_bytes_again_are_the_same_release(pipeline: Pipeline) -> None:
    release = pipeline.release("1.0.0")
    pipeline.publish(release)
    asked = len(pipeline.cdn.asked)
    again = pipeline.publish(release)
    assert (again.created, again.version, again.purged) == (False, "1.0.0", None)
    assert Publication.objects.count() == 1
    assert len(pipeline.cdn.asked) == asked
    assert AuditEvent.objects.filter(action="release:repeated").count() == 1


def test_a_purge_that_is_wanted_and_not_done_is_not_claimed(
    pipeline: Pipeline, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.CDN_PURGE = "purge"
    monkeypatch.setattr(purging, "READ_BACK_SECONDS", 0.2)
    assert pipeline.publish(pipeline.release()).purged is False


def test_a_repeat_mends_what_storage_has_lost(pipeline: Pipeline) -> None:
    release = pipeline.release("1.0.0")
    pipeline.publish(release)
    storage.put("shell/stable/latest.json", b"broken")
    pipeline.publish(release)
    assert pipeline.stored()[0] == release.body


def test_the_same_bytes_signed_anew_are_served_with_the_new_signature(pipeline: Pipeline) -> None:
    release = pipeline.release("1.0.0")
    pipeline.publish(release)
    anew = pipeline.signed_bytes(release.body)
    assert not pipeline.publish(anew).created
    assert pipeline.stored() == (release.body, signature_of(anew))
    assert not pipeline.publish(release).created
    assert pipeline.stored() == (release.body, signature_of(anew))


def test_different_bytes_for_a_published_version_are_a_conflict(pipeline: Pipeline) -> None:
    first = pipeline.release("1.0.0")
    pipeline.publish(first)
    other = pipeline.signed({**pipeline.document("1.0.0"), "notes": "Changed."})
    with pytest.raises(VersionConflict):
        pipeline.publish(other, rollback=True)
    assert pipeline.stored()[0] == first.body


@pytest.mark.parametrize(
    ("has", "gets"),
    [
        ("1.1.0", "1.0.0"),
        ("1.10.0", "1.9.0"),
        ("1.0.0", "1.0.0-rc.1"),
        ("1.0.0+2", "1.0.0+1"),
        ("1.0.0+1", "1.0.0"),
    ],
)
def test_an_older_version_needs_an_explicit_rollback(
    pipeline: Pipeline, has: str, gets: str
) -> None:
    newer = pipeline.release(has)
    pipeline.publish(newer)
    older = pipeline.release(gets)
    with pytest.raises(DowngradeRefused) as refusal:
        pipeline.publish(older)
    assert [fault.code for fault in refusal.value.errors] == ["older"]
    assert pipeline.stored()[0] == newer.body
    assert pipeline.publish(older, rollback=True).created
    assert pipeline.stored()[0] == older.body


def test_going_back_to_a_known_release_needs_a_new_signature(pipeline: Pipeline) -> None:
    old, new = pipeline.release("1.0.0"), pipeline.release("1.1.0")
    pipeline.publish(old)
    pipeline.publish(new)
    with pytest.raises(DowngradeRefused) as refusal:
        pipeline.publish(old, rollback=True)
    assert [fault.code for fault in refusal.value.errors] == ["signature_not_newer"]
    assert pipeline.stored()[0] == new.body
    anew = pipeline.signed_bytes(old.body)
    assert pipeline.publish(anew, rollback=True).created
    assert pipeline.stored() == (old.body, signature_of(anew))
    assert ShellRelease.objects.count() == 2
    assert [each.release.version for each in Publication.objects.of("stable")] == [
        "1.0.0",
        "1.1.0",
        "1.0.0",
    ]


@pytest.mark.parametrize("dry_run", [False, True])
@pytest.mark.parametrize("rollback", [False, True])
def test_a_known_release_signed_anew_is_verified_again(
    pipeline: Pipeline, rollback: bool, dry_run: bool
) -> None:
    old = pipeline.release("1.0.0")
    pipeline.publish(old)
    if rollback:
        pipeline.publish(pipeline.release("1.1.0"))
    before, anew = pipeline.stored(), pipeline.signed_bytes(old.body)
    kept = dict(pipeline.cdn.files)
    del pipeline.cdn.files["/shell/1.0.0/shell-darwin-aarch64.tar.gz"]
    with pytest.raises(ArtifactRejected):
        pipeline.publish(anew, rollback=rollback, dry_run=dry_run)
    assert pipeline.stored() == before
    pipeline.cdn.files.update(kept)
    assert pipeline.publish(anew, rollback=rollback).created is rollback


def test_an_unfinished_publish_is_verified_again_before_it_goes_live(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = pipeline.release("1.0.0")
    with monkeypatch.context() as patch:
        kill_in(patch, storage, "put")
        with pytest.raises(Killed):
            pipeline.publish(release)
    ShellChannel.objects.update(leased_until=Now())
    pipeline.cdn.files.clear()
    with pytest.raises(ArtifactRejected):
        pipeline.publish(release)
    assert pipeline.nothing_stored()


def test_a_signature_of_the_same_second_is_not_newer(pipeline: Pipeline) -> None:
    pipeline.publish(pipeline.release("1.0.0"))
    same = pipeline.signed(pipeline.document("1.1.0"), at=pipeline.signed_at)
    with pytest.raises(DowngradeRefused):
        pipeline.publish(same)


def test_a_manifest_of_another_channel_cannot_be_replayed(pipeline: Pipeline) -> None:
    beta = pipeline.release("2.0.0", "beta")
    with pytest.raises(InvalidRequest) as refusal:
        pipeline.publish(beta, "stable")
    assert [(each.pointer, each.code) for each in refusal.value.errors] == [
        ("/channel", "channel_mismatch")
    ]
    assert nothing_changed(pipeline)


def resigned(sign: Callable[[Pipeline, bytes], str]) -> Callable[[Pipeline], Release]:
    def build(pipeline: Pipeline) -> Release:
        body = pipeline.release().body
        return Release(body, sign(pipeline, body))

    return build


def stamped(comment: str) -> Callable[[Pipeline], Release]:
    return resigned(
        lambda pipeline, body: base64.b64encode(pipeline.signer.sign(body, comment)).decode()
    )


AHEAD = int((NOW + timedelta(minutes=6)).timestamp())


@pytest.mark.parametrize(
    ("build", "code"),
    [
        (resigned(lambda pipeline, body: ""), "required"),
        (resigned(lambda pipeline, body: "no"), "signature_not_base64"),
        (
            resigned(lambda pipeline, body: pipeline.signer.manifest(body, 1) + " "),
            "signature_not_base64",
        ),
        (resigned(lambda pipeline, body: "bm9uZQ=="), "signature_unreadable"),
        (
            resigned(lambda pipeline, body: pipeline.signer.manifest(body + b" ", 1)),
            "signature_mismatch",
        ),
        (
            resigned(lambda pipeline, body: type(pipeline.signer)().manifest(body, 1)),
            "wrong_key",
        ),
        (stamped("file:latest.json"), "no_timestamp"),
        (stamped("timestamp:soon"), "no_timestamp"),
        (stamped("timestamp:-1"), "no_timestamp"),
        (stamped("timestamp:999999999999"), "no_timestamp"),
        (stamped(f"timestamp:{AHEAD}"), "timestamp_ahead"),
    ],
)
def test_a_stolen_secret_alone_publishes_nothing(
    pipeline: Pipeline, build: Callable[[Pipeline], Release], code: str
) -> None:
    with pytest.raises(InvalidRequest) as refusal:
        pipeline.publish(build(pipeline))
    assert [(each.pointer, each.code) for each in refusal.value.errors] == [
        ("/X-Manifest-Signature", code)
    ]
    assert nothing_changed(pipeline)
    assert pipeline.cdn.asked == []
    event = AuditEvent.objects.get()
    assert event.action == "release:refused"
    assert event.after is not None
    assert event.after["code"] == "invalid_request"
    assert event.after["dry_run"] is False
    assert event.after["errors"] == [f"/X-Manifest-Signature {code}"]


def test_a_legacy_signature_of_the_manifest_holds(pipeline: Pipeline) -> None:
    body = pipeline.release().body
    comment = f"timestamp:{pipeline.signed_at}"
    signature = pipeline.signer.sign(body, comment, legacy=True)
    assert pipeline.publish(Release(body, base64.b64encode(signature).decode())).created


def test_faults_of_signature_and_document_are_told_together(pipeline: Pipeline) -> None:
    release = pipeline.signed({**pipeline.document(), "version": "v1.0.0"})
    with pytest.raises(InvalidRequest) as refusal:
        pipeline.publish(Release(release.body, ""))
    assert [each.pointer for each in refusal.value.errors] == [
        "/X-Manifest-Signature",
        "/version",
    ]


def test_an_artifact_that_a_shell_would_refuse_publishes_nothing(pipeline: Pipeline) -> None:
    release = pipeline.release("1.0.0")
    pipeline.cdn.files["/shell/1.0.0/shell-windows-x86_64.tar.gz"] = b"another build"
    with pytest.raises(ArtifactRejected) as refusal:
        pipeline.publish(release)
    assert [(each.pointer, each.code) for each in refusal.value.errors] == [
        ("/platforms/windows-x86_64/signature", "signature_mismatch")
    ]
    assert nothing_changed(pipeline)
    assert ShellChannel.objects.get().leased_until is None


def test_nothing_is_published_without_an_update_key(pipeline: Pipeline, settings: Settings) -> None:
    settings.UPDATE_PUBLIC_KEY = None
    with pytest.raises(NotConfigured):
        pipeline.publish(pipeline.release())
    assert nothing_changed(pipeline)


@pytest.mark.parametrize("rollback", [False, True])
def test_a_dry_run_does_everything_but_store(pipeline: Pipeline, rollback: bool) -> None:
    release = pipeline.release("1.0.0")
    done = pipeline.publish(release, dry_run=True, rollback=rollback)
    assert (done.version, done.created, done.purged) == ("1.0.0", False, None)
    assert len(pipeline.cdn.asked) == 2
    assert nothing_changed(pipeline)
    assert not AuditEvent.objects.exists()
    assert not ShellChannel.objects.exists()


def test_a_dry_run_refuses_what_a_publish_would(pipeline: Pipeline) -> None:
    pipeline.publish(pipeline.release("2.0.0"))
    with pytest.raises(DowngradeRefused):
        pipeline.publish(pipeline.release("1.0.0"), dry_run=True)
    broken = pipeline.release("3.0.0")
    pipeline.cdn.files.clear()
    with pytest.raises(ArtifactRejected):
        pipeline.publish(broken, dry_run=True)
    refused = AuditEvent.objects.filter(action="release:refused").order_by("id")
    told = [(each.after["dry_run"], each.after["code"]) for each in refused if each.after]
    assert told == [(True, "downgrade_refused"), (True, "artifact_rejected")]


def kill_in(monkeypatch: pytest.MonkeyPatch, target: Any, name: str, *, call: int = 1) -> None:
    """Ends the process, as far as the publish can notice, at the given call of a function."""
    original, calls = getattr(target, name), 0

    def dies(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == call:
            raise Killed
        return original(*args, **kwargs)

    monkeypatch.setattr(target, name, dies)
    # A killed process gives no lease back.
    monkeypatch.setattr(leases, "give_back", lambda lease: None)


STEPS: list[tuple[Any, str, int]] = [
    (artifacts, "verify", 1),
    (publishing, "_recorded", 1),
    (storage_sync, "write", 1),
    (storage, "put", 1),
    (storage, "put", 2),
    (publishing, "_finish", 1),
]


@pytest.mark.parametrize(("target", "name", "call"), STEPS)
def test_killed_at_any_step_a_repeat_finishes_the_job(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, target: Any, name: str, call: int
) -> None:
    old, release = pipeline.release("1.0.0"), pipeline.release("1.1.0")
    pipeline.publish(old)
    with monkeypatch.context() as patch:
        kill_in(patch, target, name, call=call)
        with pytest.raises(Killed):
            pipeline.publish(release)
    manifest, _ = pipeline.stored()
    assert manifest in (old.body, release.body)
    with pytest.raises(PublishInProgress):
        pipeline.publish(release)
    ShellChannel.objects.update(leased_until=Now())
    assert pipeline.publish(release).created
    assert pipeline.stored() == (release.body, signature_of(release))
    assert Publication.objects.of("stable").stored().first() == Publication.objects.first()
    assert not pipeline.publish(release).created
    assert AuditEvent.objects.filter(action="release:published").count() == 2


def test_a_version_belongs_to_the_first_bytes_whose_storing_began(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        kill_in(patch, publishing, "_finish")
        with pytest.raises(Killed):
            pipeline.publish(pipeline.release("1.0.0"))
    ShellChannel.objects.update(leased_until=Now())
    other = pipeline.signed({**pipeline.document("1.0.0"), "notes": "Changed."})
    with pytest.raises(VersionConflict):
        pipeline.publish(other)
    assert pipeline.publish(pipeline.release("1.0.1")).created


@pytest.mark.parametrize("call", [1, 2])
def test_storage_that_is_away_leaves_the_channel_free_for_a_repeat(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, call: int
) -> None:
    old, release = pipeline.release("1.0.0"), pipeline.release("1.1.0")
    pipeline.publish(old)
    original, calls = storage.put, 0

    def away(name: str, content: bytes) -> None:
        nonlocal calls
        calls += 1
        if calls == call:
            raise StorageUnavailable
        original(name, content)

    with monkeypatch.context() as patch:
        patch.setattr(storage, "put", away)
        with pytest.raises(StorageUnavailable):
            pipeline.publish(release)
    assert pipeline.stored()[0] == old.body
    event = AuditEvent.objects.first()
    assert event is not None
    assert event.action == "release:failed"
    assert pipeline.publish(release).created
    assert pipeline.stored() == (release.body, signature_of(release))


@pytest.mark.parametrize("call", [1, 2])
def test_a_repeat_of_the_live_release_is_known_after_an_unfinished_newer_one(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, call: int
) -> None:
    live, unfinished = pipeline.release("1.0.0"), pipeline.release("2.0.0")
    pipeline.publish(live)
    before = pipeline.stored()
    with monkeypatch.context() as patch:
        kill_in(patch, storage, "put", call=call)
        with pytest.raises(Killed):
            pipeline.publish(unfinished)
    ShellChannel.objects.update(leased_until=Now())
    for options in ({"dry_run": True}, {}, {"rollback": True}, {}):
        assert not pipeline.publish(live, **options).created
    assert pipeline.stored() == before
    # Storage has what the channel serves, so the queued job has nothing to do.
    assert ShellChannel.objects.get().unplaced_since is None
    with pytest.raises(DowngradeRefused):
        pipeline.publish(pipeline.signed_bytes(live.body))
    assert pipeline.publish(unfinished).created
    assert pipeline.stored() == (unfinished.body, signature_of(unfinished))
    with pytest.raises(DowngradeRefused):
        pipeline.publish(live)
    assert Publication.objects.count() == 2


def test_a_publish_without_its_lease_stops_writing(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow, fast = pipeline.release("1.0.0"), pipeline.release("1.1.0")
    original = storage.put
    overtaken = False

    def overtake(name: str, content: bytes) -> None:
        nonlocal overtaken
        original(name, content)
        if not overtaken:
            overtaken = True
            ShellChannel.objects.update(leased_until=Now())
            pipeline.publish(fast)

    monkeypatch.setattr(storage, "put", overtake)
    with pytest.raises(PublishInProgress):
        pipeline.publish(slow)
    assert pipeline.stored() == (fast.body, signature_of(fast))
    assert ShellChannel.objects.get().leased_until is None


@pytest.mark.django_db(transaction=True)
def test_only_one_of_two_publishes_at_once_is_under_way(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    releases = [pipeline.release("1.0.0"), pipeline.release("1.1.0")]
    original = storage.put
    inside, most = 0, 0

    def watched(name: str, content: bytes) -> None:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        original(name, content)
        inside -= 1

    monkeypatch.setattr(storage, "put", watched)
    for _ in range(10):
        Publication.objects.all().delete()
        ShellRelease.objects.all().delete()
        results = race(*[lambda each=each: pipeline.publish(each) for each in releases])
        refused = [each for each in results if isinstance(each, Problem)]
        assert all(isinstance(each, (PublishInProgress, DowngradeRefused)) for each in refused)
        assert len(refused) < 2
        last = Publication.objects.of("stable").stored().first()
        assert last is not None
        manifest, signature = pipeline.stored()
        assert manifest == bytes(last.release.manifest)
        key = PublicKey.of(pipeline.signer.public)
        Signature.parse(signature).check_bytes(manifest, key)
    assert most == 1


@pytest.mark.django_db(transaction=True)
def test_no_connection_is_held_while_artifacts_and_storage_are_waited_for(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    original_put, original_verify = storage.put, artifacts.verify
    held: list[bool] = []

    def put(name: str, content: bytes) -> None:
        held.append(connection.connection is not None)
        original_put(name, content)

    def verify(*args: Any, **kwargs: Any) -> Any:
        held.append(connection.connection is not None)
        return original_verify(*args, **kwargs)

    monkeypatch.setattr(storage, "put", put)
    monkeypatch.setattr(artifacts, "verify", verify)
    pipeline.publish(pipeline.release())
    assert held == [False, False, False]
