"""Releases for a share of the shells: who is offered them, what the CDN keeps, and what operators and repeats do."""

import json
from datetime import timedelta
from hashlib import sha256
from typing import Any

import pytest
from django.db import IntegrityError, transaction
from django.db.models.functions import Now

from accounts.models import AuditEvent
from config.platform.problems.problem import InvalidRequest
from config.platform.text.versions import Version
from releases import channel_control, publishing, updates
from releases.channel_control import ChannelHalted
from releases.delivery import storage, storage_sync
from releases.delivery.leases import PublishInProgress
from releases.delivery.storage import POINTER_CACHE, StorageUnavailable
from releases.manifests import artifacts
from releases.models import Publication, Purge, ShellChannel
from releases.update_explanation import explain
from releases.updates import OWN_CACHE, place_of
from releases.version_rules import DowngradeRefused
from tests.platform.conftest import written
from tests.platform.written import Written
from tests.races import race
from tests.releases.conftest import Pipeline, Release
from tests.releases.delivery.test_purging import purged
from tests.releases.test_channel_control import HOW, back_to
from tests.releases.test_publishing import Killed, kill_in
from tests.releases.test_views import ask, problem

__all__ = ["purged", "written"]

pytestmark = pytest.mark.django_db

NEW = Version.parse("1.1.0")
NAMES = [f"shell-{number}" for number in range(1000)]
# One shell for each of the hundred places, in their order.
SHELLS = sorted(
    {place_of(name, NEW): name for name in NAMES}.values(), key=lambda name: place_of(name, NEW)
)


def offered(install_id: str | None, current: str | None = None) -> str | None:
    offer, _ = updates.offered(
        channel="stable",
        system="darwin",
        arch=None,
        current_version=current,
        install_id=install_id,
    )
    return str(offer.version) if offer else None


def those_offered(version: str = "1.1.0") -> set[str]:
    return {each for each in SHELLS if offered(each) == version}


@pytest.fixture
def begun(pipeline: Pipeline) -> Release:
    """1.0.0 for all, and 1.1.0 for five percent."""
    pipeline.publish(pipeline.release("1.0.0"))
    release = pipeline.release("1.1.0")
    assert pipeline.publish(release, share=5).created
    return release


def test_a_share_of_the_shells_is_offered_the_release_and_all_others_the_one_before(
    begun: Release,
) -> None:
    few = those_offered()
    assert few == {each for each in SHELLS if place_of(each, NEW) < 5}
    assert len(few) == 5
    assert {offered(each) for each in SHELLS if each not in few} == {"1.0.0"}
    assert offered(None) == "1.0.0"
    assert ask(f"ch=stable&os=darwin&install_id={few.pop()}").content == begun.body


def test_the_place_of_a_shell_is_what_support_can_compute() -> None:
    digest = sha256(b"1.1.0:a shell").hexdigest()
    assert place_of("a shell", NEW) == int(digest[:8], 16) % 100
    places = [place_of(each, NEW) for each in NAMES]
    assert set(places) == set(range(100))
    assert places != [place_of(each, Version.parse("1.2.0")) for each in NAMES]


def test_storage_and_cdn_keep_the_release_before(purged: Pipeline) -> None:
    assert purged.publish(purged.release("1.0.0")).purged
    before, purges = purged.stored(), Purge.objects.count()
    done = purged.publish(purged.release("1.1.0"), share=99)
    assert (done.share, done.purged, done.created) == (99, None, True)
    assert purged.stored() == before
    assert Purge.objects.count() == purges
    row = ShellChannel.objects.get()
    assert (row.unplaced_since, row.leased_until) == (None, None)
    event = AuditEvent.objects.filter(action="release:published")[0]
    assert event.after is not None
    assert (event.before, event.after["share"]) == ({"version": "1.0.0"}, 99)


def test_a_raised_share_keeps_those_who_are_in(begun: Release) -> None:
    known: set[str] = set()
    for share in (5, 6, 20, 50, 99):
        if share > 5:
            channel_control.raise_share(share=share, **HOW)
        now = those_offered()
        assert known <= now
        assert len(now) == share
        known = now
    event = AuditEvent.objects.filter(action="release:share_raised")[0]
    before, after = ({"version": "1.1.0", "share": share} for share in (50, 99))
    assert (event.target, event.before, event.after) == ("stable", before, after)


@pytest.mark.parametrize("share", [0, 4, 5, 101])
def test_a_share_is_only_raised(begun: Release, share: int) -> None:
    with pytest.raises(InvalidRequest) as refusal:
        channel_control.raise_share(share=share, **HOW)
    assert [each.pointer for each in refusal.value.errors] == ["/share"]
    assert Publication.objects.of("stable")[0].share == 5


def test_a_shell_that_has_it_is_never_offered_an_older_one(begun: Release) -> None:
    for end in (False, True):
        if end:
            channel_control.end_share(**HOW)
        assert {offered(each, "1.1.0") for each in SHELLS} == {None}
        assert offered(None, "1.1.0") is None
        assert offered(None, "2.0.0") is None


def test_the_answer_that_an_install_id_decides_is_private(begun: Release) -> None:
    within = those_offered().pop()
    without = next(each for each in SHELLS if place_of(each, NEW) >= 5)
    for each in (within, without):
        query = f"ch=stable&os=darwin&install_id={each}"
        assert ask(query)["Cache-Control"] == OWN_CACHE
        assert ask(f"{query}&current_version=9.0.0")["Cache-Control"] == OWN_CACHE
        missing = ask(f"ch=stable&os=linux&install_id={each}")
        assert (missing.status_code, missing["Cache-Control"]) == (404, OWN_CACHE)
    etag = ask(f"ch=stable&os=darwin&install_id={within}")["ETag"]
    known = ask(f"ch=stable&os=darwin&install_id={within}", **{"If-None-Match": etag})
    assert (known.status_code, known["Cache-Control"]) == (304, OWN_CACHE)
    assert ask("ch=stable&os=darwin")["Cache-Control"] == POINTER_CACHE
    channel_control.end_share(**HOW)
    assert ask(f"ch=stable&os=darwin&install_id={within}")["Cache-Control"] == POINTER_CACHE


@pytest.mark.parametrize("query", ["&install_id=", "&install_id=&current_version="])
def test_an_empty_install_id_is_absent(begun: Release, query: str) -> None:
    absent, empty = ask("ch=stable&os=darwin"), ask(f"ch=stable&os=darwin{query}")
    for name in ("ETag", "Cache-Control"):
        assert empty.headers.get(name) == absent.headers.get(name)
    assert (empty.status_code, empty.content) == (absent.status_code, absent.content)


@pytest.mark.parametrize("install_id", ["x" * 129, "a%00b"])
def test_an_install_id_has_at_most_128_characters(begun: Release, install_id: str) -> None:
    body = problem(ask(f"ch=stable&os=darwin&install_id={install_id}"), 400, "invalid_request")
    assert [each["pointer"] for each in body["errors"]] == ["/install_id"]
    assert "x" * 129 not in str(body)


@pytest.mark.parametrize("install_id", ["x", "x" * 128, "%20", "%C3%A9%2F%3A", "0"])
def test_an_install_id_is_opaque(begun: Release, install_id: str) -> None:
    assert ask(f"ch=stable&os=darwin&install_id={install_id}").status_code == 200


def test_an_install_id_reaches_no_log(begun: Release, client: Any, written: Written) -> None:
    shell = "shell-of-somebody-77"
    for end in ("", "&current_version=v1", "&os=beos", f"&install_id={shell}{'x' * 128}"):
        client.get(f"/v1/updates/manifest?ch=stable&os=darwin&install_id={shell}{end}", secure=True)
    assert len(written.requests()) == 4
    assert shell not in written.getvalue()


def test_an_update_check_with_an_install_id_is_one_query(
    begun: Release, django_assert_num_queries: Any
) -> None:
    for each in SHELLS[::2]:
        ask(f"ch=stable&os=darwin&install_id={each}")
    with django_assert_num_queries(1):
        ask("ch=stable&os=darwin&arch=aarch64&current_version=0.9.0&install_id=x")


def test_a_restored_database_may_give_the_number_of_a_release_to_another(
    begun: Release, pipeline: Pipeline
) -> None:
    assert those_offered()
    lost = Publication.objects.of("stable").first()
    assert lost is not None
    pipeline.publish(pipeline.release("1.2.0"), share=5)
    Publication.objects.filter(pk=lost.pk).delete()
    later = lost.published_at + timedelta(days=1)
    Publication.objects.filter(release__version="1.2.0").update(id=lost.pk, published_at=later)
    assert those_offered("1.1.0") == set()
    assert those_offered("1.2.0")


def test_a_platform_that_the_release_lacks_keeps_the_one_before(pipeline: Pipeline) -> None:
    document = pipeline.document("1.0.0")
    document["platforms"]["linux-x86_64"] = pipeline.upload("linux-x86_64", "1.0.0")
    pipeline.publish(pipeline.signed(document))
    pipeline.publish(pipeline.release("1.1.0"), share=99)
    shell = next(each for each in SHELLS if place_of(each, NEW) < 99)
    assert json.loads(ask(f"ch=stable&os=linux&install_id={shell}").content)["version"] == "1.0.0"
    assert offered(shell) == "1.1.0"


def test_the_first_release_of_a_channel_may_begin_with_a_share(pipeline: Pipeline) -> None:
    pipeline.publish(pipeline.release("1.1.0"), share=50)
    assert pipeline.nothing_stored()
    # With an installed version, because a shell that is offered nothing gets 404 otherwise.
    assert sum(offered(each, "1.0.0") == "1.1.0" for each in SHELLS) == 50
    assert offered(SHELLS[49]) == "1.1.0"
    assert offered(None, "1.0.0") is None
    problem(ask("ch=stable&os=darwin"), 404, "not_found")


@pytest.mark.parametrize("share", [1, 5, 50, 100])
def test_a_repeat_answers_with_todays_share(pipeline: Pipeline, begun: Release, share: int) -> None:
    asked = len(pipeline.cdn.asked)
    for today in (5, 25):
        if today > 5:
            channel_control.raise_share(share=today, **HOW)
        for options in ({"dry_run": True}, {}):
            done = pipeline.publish(begun, share=share, **options)
            assert (done.share, done.created, done.purged) == (today, False, None)
    assert Publication.objects.of("stable")[0].share == 25
    assert Publication.objects.count() == 2
    assert len(pipeline.cdn.asked) == asked
    assert pipeline.stored()[0] != begun.body
    assert AuditEvent.objects.filter(action="release:repeated").count() == 2


def test_a_new_signature_takes_another_share(pipeline: Pipeline, begun: Release) -> None:
    done = pipeline.publish(pipeline.signed_bytes(begun.body), share=30)
    assert (done.share, done.created) == (30, True)
    assert len(those_offered()) == 30
    whole = pipeline.publish(pipeline.signed_bytes(begun.body))
    assert (whole.share, whole.created) == (100, True)
    assert pipeline.stored()[0] == begun.body
    assert pipeline.publish(pipeline.signed_bytes(begun.body), share=30).share == 100
    assert offered(None) == "1.1.0"


def test_a_release_is_offered_to_all_with_its_signature(purged: Pipeline) -> None:
    assert purged.publish(purged.release("1.0.0")).purged
    release = purged.release("1.1.0")
    purged.publish(release, share=5)
    assert channel_control.raise_share(share=100, **HOW)
    assert purged.stored()[0] == release.body
    assert (offered(None), len(those_offered())) == ("1.1.0", len(SHELLS))
    assert Purge.objects.count() == 2
    event = AuditEvent.objects.filter(action="release:share_raised")[0]
    assert event.after == {"version": "1.1.0", "share": 100}
    again = purged.publish(release, share=5)
    assert (again.share, again.created, again.purged) == (100, False, True)
    with pytest.raises(InvalidRequest):
        channel_control.raise_share(share=100, **HOW)


def test_its_share_keeps_a_release_until_storage_has_it_for_all(
    begun: Release, pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    few, before = those_offered(), pipeline.stored()

    def away(*args: Any) -> None:
        raise StorageUnavailable

    with monkeypatch.context() as patch:
        patch.setattr(storage, "put", away)
        assert channel_control.raise_share(share=100, **HOW) is False
    for act in (
        lambda: channel_control.end_share(**HOW),
        lambda: channel_control.raise_share(share=100, **HOW),
    ):
        with pytest.raises(InvalidRequest):
            act()
    assert (those_offered(), pipeline.stored()) == (few, before)
    storage_sync.place(channel="stable", now=HOW["now"])
    assert (offered(None), pipeline.stored()[0]) == ("1.1.0", begun.body)


def test_a_release_taken_back_is_not_offered_to_anybody(begun: Release, pipeline: Pipeline) -> None:
    before = pipeline.stored()
    channel_control.end_share(**HOW)
    assert {offered(each) for each in SHELLS} == {"1.0.0"}
    assert pipeline.stored() == before
    event = AuditEvent.objects.get(action="release:share_ended")
    assert (event.before, event.after) == ({"version": "1.1.0", "share": 5}, None)
    for act in (
        lambda: channel_control.end_share(**HOW),
        lambda: channel_control.raise_share(share=50, **HOW),
    ):
        with pytest.raises(InvalidRequest):
            act()


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("share", [5, 100])
def test_a_pipeline_cannot_undo_an_end_without_a_new_signature(
    pipeline: Pipeline, share: int, first: bool
) -> None:
    if not first:
        pipeline.publish(pipeline.release("1.0.0"))
    release = pipeline.release("1.1.0")
    pipeline.publish(release, share=5)
    channel_control.end_share(**HOW)
    for options in ({}, {"dry_run": True}, {"rollback": True}):
        with pytest.raises(DowngradeRefused):
            pipeline.publish(release, share=share, **options)
    assert offered(SHELLS[0], "0.9.0") == (None if first else "1.0.0")
    assert pipeline.publish(pipeline.signed_bytes(release.body), share=share).share == share


def test_a_fix_may_be_older_than_what_was_taken_back(pipeline: Pipeline, begun: Release) -> None:
    channel_control.end_share(**HOW)
    assert pipeline.publish(pipeline.release("1.0.1")).created
    assert offered(None) == "1.0.1"


@pytest.mark.parametrize("share", [20, 100])
def test_a_new_publish_ends_a_running_one(pipeline: Pipeline, begun: Release, share: int) -> None:
    pipeline.publish(pipeline.release("1.2.0"), share=share)
    assert those_offered("1.1.0") == set()
    assert offered(None) == ("1.2.0" if share == 100 else "1.0.0")
    running = Publication.objects.of("stable").rollout()
    assert (running and running.release.version) == (None if share == 100 else "1.2.0")
    with pytest.raises(DowngradeRefused):
        pipeline.publish(begun, share=5)


def test_a_publish_that_fails_ends_nothing(
    pipeline: Pipeline, begun: Release, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = those_offered()
    with monkeypatch.context() as patch:
        kill_in(patch, storage, "put", call=2)
        with pytest.raises(Killed):
            pipeline.publish(pipeline.release("1.2.0"))
    assert those_offered() == few
    ShellChannel.objects.update(leased_until=Now())
    channel_control.raise_share(share=99, **HOW)
    assert few < those_offered()


def test_a_rollback_ends_a_running_one(pipeline: Pipeline, begun: Release) -> None:
    channel_control.end_share(**HOW)
    pipeline.publish(pipeline.release("1.2.0"))
    pipeline.publish(pipeline.release("1.3.0"), share=99)
    assert back_to("1.0.0")
    assert {offered(each) for each in SHELLS} == {"1.0.0"}


def test_a_rollback_is_never_to_a_release_of_a_share(begun: Release) -> None:
    assert channel_control.earlier("stable") == []


def test_a_halted_channel_offers_nothing_to_its_share(begun: Release, pipeline: Pipeline) -> None:
    few = those_offered()
    channel_control.halt(**HOW)
    assert {offered(each) for each in SHELLS} == {None}
    with pytest.raises(ChannelHalted):
        pipeline.publish(pipeline.release("1.2.0"), share=5)
    channel_control.resume(**HOW)
    assert (those_offered(), offered(None)) == (few, "1.0.0")


def test_a_share_of_a_halted_channel_may_be_ended_before_it_is_resumed(begun: Release) -> None:
    channel_control.halt(**HOW)
    channel_control.end_share(**HOW)
    channel_control.resume(**HOW)
    assert {offered(each) for each in SHELLS} == {"1.0.0"}


STEPS: list[tuple[Any, str]] = [
    (artifacts, "verify"),
    (publishing, "_recorded"),
    (publishing, "_finish"),
    (publishing, "record"),
]


@pytest.mark.parametrize("interrupted", [False, True])
@pytest.mark.parametrize(("target", "name"), STEPS)
def test_killed_at_any_step_nothing_is_offered_and_a_repeat_finishes(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, target: Any, name: str, interrupted: bool
) -> None:
    pipeline.publish(pipeline.release("1.0.0"))
    if interrupted:
        with monkeypatch.context() as patch:
            kill_in(patch, storage, "put", call=2)
            with pytest.raises(Killed):
                pipeline.publish(pipeline.release("1.0.1"))
        ShellChannel.objects.update(leased_until=Now())
    before, mark = pipeline.stored(), ShellChannel.objects.get().unplaced_since
    release = pipeline.release("1.1.0")
    with monkeypatch.context() as patch:
        kill_in(patch, target, name)
        with pytest.raises(Killed):
            pipeline.publish(release, share=5)
    assert {offered(each) for each in SHELLS} == {"1.0.0"}
    with pytest.raises(PublishInProgress):
        pipeline.publish(release, share=5)
    ShellChannel.objects.update(leased_until=Now())
    assert pipeline.publish(release, share=5).created
    assert len(those_offered()) == 5
    assert not pipeline.publish(release, share=5).created
    # An interrupted publish stays for the worker to complete.
    assert (pipeline.stored(), ShellChannel.objects.get().unplaced_since) == (before, mark)
    assert AuditEvent.objects.filter(action="release:published").count() == 2


def test_an_interrupted_publish_for_all_may_be_repeated_for_a_share(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline.publish(pipeline.release("1.0.0"))
    release = pipeline.release("1.1.0")
    with monkeypatch.context() as patch:
        kill_in(patch, storage, "put", call=2)
        with pytest.raises(Killed):
            pipeline.publish(release)
    ShellChannel.objects.update(leased_until=Now())
    done = pipeline.publish(release, share=5)
    assert (done.share, done.created) == (5, True)
    storage_sync.place(channel="stable", now=HOW["now"])
    assert (offered(None), pipeline.stored()[0] != release.body) == ("1.0.0", True)
    assert those_offered() == {each for each in SHELLS if place_of(each, NEW) < 5}


@pytest.mark.parametrize(
    ("version", "values"),
    [
        ("1.1.0", {"share": 0}),
        ("1.1.0", {"share": 101}),
        ("1.1.0", {"stored_at": HOW["now"]}),
        ("1.0.0", {"ended_at": HOW["now"]}),
    ],
)
def test_a_share_is_a_percent_and_below_all_never_stored(
    begun: Release, version: str, values: dict[str, Any]
) -> None:
    rows = Publication.objects.filter(release__version=version)
    with pytest.raises(IntegrityError), transaction.atomic():
        rows.update(**values)


@pytest.mark.parametrize(
    ("query", "pointer"),
    [
        ("ch=stable&share=0", "/share"),
        ("ch=stable&share=101", "/share"),
        ("ch=stable&share=5.5", "/share"),
        ("ch=stable&share=five", "/share"),
        ("ch=stable&share=5&rollback=true", "/share"),
    ],
)
def test_a_share_that_says_nothing_clear_is_refused(
    pipeline: Pipeline, query: str, pointer: str
) -> None:
    body = problem(pipeline.post(pipeline.release(), query), 400, "invalid_request")
    assert [each["pointer"] for each in body["errors"]] == [pointer]
    assert not Publication.objects.exists()


def test_a_publish_says_its_share(pipeline: Pipeline) -> None:
    pipeline.post(pipeline.release("1.0.0"))
    release = pipeline.release("1.1.0")
    first, again = (pipeline.post(release, "ch=stable&share=5") for _ in range(2))
    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json() == again.json()
    assert (first.json()["share"], first.json()["purged"]) == (5, None)
    assert pipeline.post(pipeline.release("1.2.0"), "ch=stable&share=100").json()["share"] == 100


@pytest.mark.parametrize(
    ("install_id", "why"),
    [(None, "did not send its install_id"), ("in", "it is in"), ("out", "it is not in")],
)
def test_the_explanation_says_whether_a_shell_is_in_and_why(
    begun: Release, install_id: str | None, why: str
) -> None:
    wanted = {"in": range(5), "out": range(5, 100)}.get(install_id or "", ())
    shell = next((each for each in SHELLS if place_of(each, NEW) in wanted), None)
    explained = explain(
        channel="stable", system="darwin", arch=None, current_version="0.9.0", install_id=shell
    )
    assert explained.steps[0] == "Version 1.1.0 is offered to 5 % of the shells."
    assert why in explained.steps[1]
    assert explained.outcome == f"version {offered(shell)}"
    if shell:
        assert f"is {place_of(shell, NEW)} of 0 to 99" in explained.steps[1]


@pytest.mark.django_db(transaction=True)
def test_one_of_a_concurrent_end_and_offer_to_all_is_refused(pipeline: Pipeline) -> None:
    pipeline.publish(pipeline.release("1.0.0"))
    for number in range(1, 6):
        before, version = offered(None), f"1.{number}.0"
        pipeline.publish(pipeline.release(version), share=5)
        ended, _, placed = race(
            lambda: channel_control.end_share(**HOW),
            lambda: channel_control.raise_share(share=50, **HOW),
            lambda: channel_control.raise_share(share=100, **HOW),
        )
        assert isinstance(ended, InvalidRequest) != isinstance(placed, InvalidRequest)
        assert offered(None) == (before if ended is None else version)
        assert Publication.objects.of("stable").rollout() is None
