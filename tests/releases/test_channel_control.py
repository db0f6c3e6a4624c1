"""Rolling back, halting and resuming: what is offered, what storage and the CDN have, and what nobody can undo."""

from datetime import timedelta
from typing import Any

import pytest
from django.db.models.functions import Now
from django.utils import timezone
from procrastinate.contrib.django.models import ProcrastinateJob

from accounts.audit import Actor
from accounts.models import AuditEvent, User
from config.platform.problems.problem import InvalidRequest, Problem
from releases import channel_control, updates
from releases.admin.channel_actions import Resume
from releases.channel_control import ChannelHalted
from releases.delivery import leases, purging, storage, storage_sync
from releases.delivery.leases import PublishInProgress
from releases.delivery.storage import StorageUnavailable
from releases.models import Publication, Purge, ShellChannel
from releases.version_rules import DowngradeRefused
from tests.races import race
from tests.releases.conftest import NOW, Pipeline, Release
from tests.releases.delivery.test_purging import kept, purged

__all__ = ["purged"]

pytestmark = pytest.mark.django_db

LATER = NOW + timedelta(hours=1)
OPERATOR = Actor(name="operator@shell.test")
HOW: dict[str, Any] = {"channel": "stable", "reason": "It crashes.", "by": OPERATOR, "now": LATER}


@pytest.fixture
def releases(pipeline: Pipeline) -> list[Release]:
    """1.0.0, 1.1.0 and 2.0.0, published in this order."""
    made = [pipeline.release(each) for each in ("1.0.0", "1.1.0", "2.0.0")]
    for each in made:
        pipeline.publish(each)
    return made


def back_to(version: str) -> bool:
    chosen = next(e for e in channel_control.earlier("stable") if e.release.version == version)
    return channel_control.roll_back(publication_id=chosen.pk, **HOW)


def offered(current: str | None = None) -> str | None:
    asked = {"channel": "stable", "system": "darwin", "arch": None, "current_version": current}
    offer, _ = updates.offered(**asked)
    return str(offer.version) if offer else None


def place_jobs() -> list[dict[str, Any]]:
    jobs = ProcrastinateJob.objects.filter(task_name="releases.place").order_by("id")
    return [job.args for job in jobs]


def test_a_rollback_names_its_operator_by_the_current_email(
    releases: list[Release], user: User
) -> None:
    chosen = channel_control.earlier("stable")[0]
    by = Actor(name=user.email, id=user.pk)
    channel_control.roll_back(publication_id=chosen.pk, **{**HOW, "by": by})
    newest = Publication.objects.first()
    assert newest is not None
    assert newest.publisher == user.email
    User.objects.filter(pk=user.pk).update(email="else@acme.test")
    assert newest.publisher == "else@acme.test"
    User.objects.filter(pk=user.pk).delete()
    assert newest.publisher == "an operator"
    assert user.email not in str(Publication.objects.values())


def test_a_pipeline_or_a_script_is_named_as_it_is_called(releases: list[Release]) -> None:
    published = Publication.objects.first()
    assert published is not None
    assert published.publisher == published.published_by
    back_to("1.0.0")
    newest = Publication.objects.first()
    assert newest is not None
    assert newest.publisher == "an operator"


@pytest.mark.parametrize("name", ["an operator of ours", "an operator 7", "Not an operator"])
def test_nobody_else_is_taken_for_an_operator(releases: list[Release], name: str) -> None:
    Publication.objects.update(published_by=name, stored_at=None)
    assert not Publication.objects.wanted().exists()
    assert {each.publisher for each in Publication.objects.all()} == {name}


def interrupt(
    pipeline: Pipeline, release: Release, monkeypatch: pytest.MonkeyPatch, *, call: int = 2
) -> None:
    """A publish whose write of the signature (1) or of the manifest (2) fails."""
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


def test_a_channel_can_go_back_to_every_release_but_its_current_one(
    releases: list[Release],
) -> None:
    assert [each.release.version for each in channel_control.earlier("stable")] == [
        "1.1.0",
        "1.0.0",
    ]
    assert channel_control.earlier("none") == []


def test_rolling_back_offers_the_old_bytes_with_their_old_signature(
    pipeline: Pipeline, releases: list[Release]
) -> None:
    before = pipeline.stored()
    assert back_to("1.1.0")
    old = releases[1]
    manifest, _ = pipeline.stored()
    assert (manifest, pipeline.stored() != before) == (old.body, True)
    offer = updates.channel_offer("stable").whole
    assert offer is not None
    assert (offer.manifest, offer.signature) == (old.body, old.signature)
    assert ShellChannel.objects.get().unplaced_since is None
    event = AuditEvent.objects.get(action="release:rolled_back")
    assert (event.before, event.after) == ({"version": "2.0.0"}, {"version": "1.1.0"})
    assert (event.actor, event.reason, event.target_id) == (OPERATOR.name, "It crashes.", "stable")


def test_a_shell_that_has_updated_stays_where_it_is(releases: list[Release]) -> None:
    back_to("1.1.0")
    assert [offered(each) for each in ("1.0.0", "1.1.0", "2.0.0")] == ["1.1.0", None, None]


def test_a_repeated_or_replayed_publish_does_not_undo_it(
    pipeline: Pipeline, releases: list[Release]
) -> None:
    back_to("1.0.0")
    for each in (releases[2], releases[1]):
        with pytest.raises(DowngradeRefused):
            pipeline.publish(each)
        with pytest.raises(DowngradeRefused):
            pipeline.publish(each, rollback=True)
    assert offered() == "1.0.0"
    assert not pipeline.publish(releases[0]).created


def test_a_downgrade_is_refused_while_storage_lags_behind(
    pipeline: Pipeline, releases: list[Release], monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*args: Any) -> None:
        raise StorageUnavailable

    with monkeypatch.context() as patch:
        patch.setattr(storage, "put", away)
        assert not back_to("1.0.0")
    with pytest.raises(DowngradeRefused):
        pipeline.publish(releases[2])
    assert ShellChannel.objects.get().unplaced_since == LATER
    storage_sync.place(channel="stable", now=LATER)
    assert offered() == "1.0.0"


def test_the_next_publication_is_offered(pipeline: Pipeline, releases: list[Release]) -> None:
    back_to("1.0.0")
    assert pipeline.publish(pipeline.release("2.0.1")).created
    assert offered("2.0.0") == "2.0.1"


def test_a_rollback_to_an_unknown_publication_is_refused(releases: list[Release]) -> None:
    current = Publication.objects.of("stable")[0]
    for number in (current.pk, 10**9):
        with pytest.raises(InvalidRequest):
            channel_control.roll_back(publication_id=number, **HOW)
    assert offered() == "2.0.0"
    assert len(place_jobs()) == len(releases)
    assert ShellChannel.objects.get().leased_until is None


def test_rolling_back_waits_for_no_publish_and_ends_none(releases: list[Release]) -> None:
    ShellChannel.objects.update(leased_until=Now() + timedelta(seconds=30))
    with pytest.raises(PublishInProgress):
        back_to("1.0.0")


def test_a_halted_channel_has_nothing_anywhere(pipeline: Pipeline, releases: list[Release]) -> None:
    assert channel_control.halt(**HOW)
    assert offered() is None
    assert pipeline.nothing_stored()
    assert AuditEvent.objects.get(action="release:halted").after == {"version": "2.0.0"}
    with pytest.raises(InvalidRequest):
        channel_control.halt(**HOW)


def test_a_halted_channel_refuses_to_publish_until_it_is_resumed(
    pipeline: Pipeline, releases: list[Release]
) -> None:
    channel_control.halt(**HOW)
    fixed = pipeline.release("2.0.1")
    for options in ({}, {"dry_run": True}, {"rollback": True}):
        with pytest.raises(ChannelHalted):
            pipeline.publish(fixed, **options)
    with pytest.raises(ChannelHalted):
        pipeline.publish(releases[2])
    assert pipeline.nothing_stored()
    assert channel_control.resume(**HOW)
    assert (offered(), pipeline.stored()[0]) == ("2.0.0", releases[2].body)
    assert pipeline.publish(fixed).created


def test_a_halted_channel_is_rolled_back_before_it_is_resumed(
    pipeline: Pipeline, releases: list[Release]
) -> None:
    channel_control.halt(**HOW)
    assert back_to("1.1.0")
    assert offered() is None
    assert pipeline.nothing_stored()
    channel_control.resume(**HOW)
    assert (offered(), pipeline.stored()[0]) == ("1.1.0", releases[1].body)
    with pytest.raises(InvalidRequest):
        channel_control.resume(**HOW)


def test_halting_ends_a_publish_that_is_under_way(
    pipeline: Pipeline, releases: list[Release], monkeypatch: pytest.MonkeyPatch
) -> None:
    original, halted = storage.put, False

    def halt_between(name: str, content: bytes) -> None:
        nonlocal halted
        original(name, content)
        if not halted:
            halted = True
            channel_control.halt(**HOW)

    monkeypatch.setattr(storage, "put", halt_between)
    with pytest.raises(PublishInProgress):
        pipeline.publish(pipeline.release("2.0.1"))
    assert offered() is None
    assert not (pipeline.files / "shell" / "stable" / "latest.json").exists()


@pytest.mark.parametrize("call", [1, 2])
def test_resuming_does_not_put_an_unfinished_publish_live(
    pipeline: Pipeline, releases: list[Release], monkeypatch: pytest.MonkeyPatch, call: int
) -> None:
    live, unfinished = pipeline.stored(), pipeline.release("3.0.0")
    interrupt(pipeline, unfinished, monkeypatch, call=call)
    assert [each.release.version for each in channel_control.earlier("stable")] == [
        "1.1.0",
        "1.0.0",
    ]
    channel_control.halt(**HOW)
    channel = ShellChannel.objects.get()
    assert Resume().shown(channel, None)["current"].release.version == "2.0.0"
    assert channel_control.resume(**HOW)
    assert (offered(), pipeline.stored()) == ("2.0.0", live)
    events = AuditEvent.objects.filter(action__in=["release:halted", "release:resumed"])
    assert [each.after for each in events] == [{"version": "2.0.0"}] * 2
    assert Publication.objects.of("stable")[0].stored_at is None
    assert pipeline.publish(unfinished).created
    assert offered() == "3.0.0"


def test_rolling_back_past_an_unfinished_publish_ends_it_for_good(
    pipeline: Pipeline, releases: list[Release], monkeypatch: pytest.MonkeyPatch
) -> None:
    unfinished = pipeline.release("3.0.0")
    interrupt(pipeline, unfinished, monkeypatch)
    channel_control.halt(**HOW)
    assert back_to("1.1.0")
    assert AuditEvent.objects.get(action="release:rolled_back").before == {"version": "2.0.0"}
    shown = Resume().shown(ShellChannel.objects.get(), None)
    assert shown["current"].release.version == "1.1.0"
    channel_control.resume(**HOW)
    assert (offered(), pipeline.stored()[0]) == ("1.1.0", releases[1].body)
    with pytest.raises(DowngradeRefused):
        pipeline.publish(unfinished)


@pytest.mark.parametrize("first", [False, True])
def test_the_worker_undoes_the_writes_of_an_interrupted_publish(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, first: bool
) -> None:
    if not first:
        pipeline.publish(pipeline.release("1.0.0"))
    before = None if first else pipeline.stored()
    unfinished, begun = pipeline.release("2.0.0"), timezone.now()
    interrupt(pipeline, unfinished, monkeypatch)
    [job] = ProcrastinateJob.objects.filter(task_name="releases.place").order_by("-id")[:1]
    assert job.scheduled_at > begun + leases.LEASE
    storage_sync.place(**job.args, now=LATER)
    if first:
        assert pipeline.nothing_stored()
    else:
        assert pipeline.stored() == before
    assert ShellChannel.objects.get().unplaced_since is None
    assert pipeline.publish(unfinished).created
    after = pipeline.stored()
    monkeypatch.setattr(storage, "put", None)
    storage_sync.place(**job.args, now=LATER)
    assert pipeline.stored() == after
    assert offered() == "2.0.0"


@pytest.mark.parametrize("act", ["roll_back", "halt", "resume"])
def test_the_worker_does_it_later_where_storage_is_away(
    pipeline: Pipeline, releases: list[Release], monkeypatch: pytest.MonkeyPatch, act: str
) -> None:
    if act == "resume":
        channel_control.halt(**HOW)
    ProcrastinateJob.objects.all().delete()

    def away(*args: Any) -> None:
        raise StorageUnavailable

    with monkeypatch.context() as patch:
        patch.setattr(storage, "put", away)
        patch.setattr(storage, "remove", away)
        done = back_to("1.0.0") if act == "roll_back" else getattr(channel_control, act)(**HOW)
        assert done is False
        assert ShellChannel.objects.get().unplaced_since == LATER
        with pytest.raises(StorageUnavailable):
            storage_sync.place(channel="stable", now=LATER)
    [job] = place_jobs()
    storage_sync.place(**job, now=LATER)
    storage_sync.place(**job, now=LATER)
    assert ShellChannel.objects.get().unplaced_since is None
    wanted = {"roll_back": "1.0.0", "halt": None, "resume": "2.0.0"}[act]
    assert offered() == wanted
    assert pipeline.nothing_stored() == (wanted is None)


def test_the_cdn_follows_every_act(purged: Pipeline) -> None:
    made = [purged.release(each) for each in ("1.0.0", "2.0.0")]
    for each in made:
        assert purged.publish(each).purged
    for act, shown in (
        (lambda: back_to("1.0.0"), made[0].body),
        (lambda: channel_control.halt(**HOW), None),
        (lambda: channel_control.resume(**HOW), made[0].body),
    ):
        assert act()
        assert kept(purged)[0] != shown
        purge = Purge.objects.order_by("-pk")[0]
        assert purging.confirm(purge_id=purge.pk, now=LATER)
        assert kept(purged)[0] == shown
    assert Purge.objects.count() == 5


@pytest.mark.django_db(transaction=True)
def test_a_halt_beats_publishes_that_race_it(pipeline: Pipeline) -> None:
    pipeline.publish(pipeline.release("1.0.0"))
    for number in range(1, 6):
        release = pipeline.release(f"1.{number}.0")
        results = race(
            lambda release=release: pipeline.publish(release), lambda: channel_control.halt(**HOW)
        )
        assert isinstance(results[0], Problem) or results[0].created
        storage_sync.place(channel="stable", now=LATER)
        assert offered() is None
        assert not (pipeline.files / "shell" / "stable" / "latest.json").exists()
        channel_control.resume(**HOW)
        assert offered() is not None
