"""Purging: after `purged: true` the public address serves the new bytes; what fails is tried until it does."""

import threading
import time
from collections.abc import Iterator
from datetime import datetime, timedelta
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from uuid import uuid4

import boto3
import pytest
from django.core import mail
from django.db import connection
from moto.server import ThreadedMotoServer
from procrastinate.contrib.django.models import ProcrastinateJob
from pytest_django.fixtures import Settings

from accounts.audit import Actor
from accounts.models import AuditEvent
from config.platform.jobs.mail import send_mail
from releases.channel_control import halt
from releases.delivery import cdn as cdns
from releases.delivery import cloudfront, purging, storage, storage_sync
from releases.manifests import artifacts
from releases.models import Publication, Purge
from tests.releases.conftest import NOW, Pipeline, Release
from tests.standins.cdn import status, trickle

pytestmark = pytest.mark.django_db

POINTER = "/shell/stable/latest.json"
OPERATOR = Actor(name="operator@shell.test")


class Killed(BaseException):
    """An exception that no code of ours catches."""


@pytest.fixture
def purged(pipeline: Pipeline, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Pipeline:
    """A pipeline whose CDN keeps what it has read from storage, and is impatiently read back."""
    settings.CDN_PURGE = "purge"
    pipeline.cdn.origin = pipeline.files
    monkeypatch.setattr(purging, "READ_BACK_SECONDS", 0.2)
    # A single answer may take long on a busy machine.
    monkeypatch.setattr(cdns, "LEAST_SECONDS", 20.0)
    monkeypatch.setattr(purging, "PAUSE_SECONDS", 0.1)
    monkeypatch.setattr(purging, "SETTLED_SECONDS", 0.01)
    return pipeline


def kept(pipeline: Pipeline) -> list[bytes | None]:
    return [pipeline.cdn.kept.get(each) for each in (POINTER, f"{POINTER}.minisig")]


def about(when: datetime | timedelta) -> Any:
    """A moment, or a while, and what a try takes."""
    return pytest.approx(when, abs=timedelta(seconds=25))


def jobs() -> list[ProcrastinateJob]:
    return list(ProcrastinateJob.objects.filter(task_name="releases.purge").order_by("id"))


def the_purge() -> Purge:
    return Purge.objects.get()


def test_a_publish_purges_manifest_and_signature_and_reads_them_back(purged: Pipeline) -> None:
    for version in ("1.0.0", "1.1.0"):
        release = purged.release(version)
        assert purged.publish(release).purged is True
        assert kept(purged) == list(purged.stored())
        assert kept(purged)[0] == release.body
    assert set(purged.cdn.purged) == {POINTER, f"{POINTER}.minisig"}
    purge = Purge.objects.first()
    assert purge is not None
    assert (purge.confirmed_at, purge.attempts, purge.failure) == (about(NOW), 1, "")
    assert purge.publication == Publication.objects.first()


def test_nothing_is_purged_where_no_cdn_is_configured(purged: Pipeline, settings: Settings) -> None:
    settings.CDN_PURGE = ""
    release = purged.release()
    assert purged.publish(release).purged is None
    assert purged.publish(release).purged is None
    assert not Purge.objects.exists()
    assert not jobs()


@pytest.mark.parametrize(
    ("fault", "word"),
    [
        ({"deaf": True}, "old_bytes"),
        ({"purge_status": 403}, "answered_403"),
        ({"purge_status": 405}, "answered_405"),
        ({"purge_status": 500}, "answered_500"),
        ({"purge_status": 301}, "answered_301"),
    ],
)
def test_a_cdn_that_goes_on_serving_old_bytes_is_no_failure_to_publish(
    purged: Pipeline, fault: dict[str, Any], word: str
) -> None:
    purged.publish(purged.release("1.0.0"))
    vars(purged.cdn).update(fault)
    release = purged.release("1.1.0")
    done = purged.publish(release)
    assert (done.created, done.purged) == (True, False)
    assert purged.stored()[0] == release.body
    purge = Purge.objects.order_by("-pk")[0]
    assert (purge.failure, purge.attempts, purge.confirmed_at) == (word, 1, None)
    assert purge.failed
    assert jobs()[-1].args == {"purge_id": purge.pk}
    assert jobs()[-1].scheduled_at == purge.due_at == about(NOW + purging.FIRST_PAUSE)


@pytest.mark.parametrize("status", [200, 204, 404, 412])
def test_a_purge_of_a_file_that_the_cdn_never_cached_succeeds(
    purged: Pipeline, status: int
) -> None:
    purged.cdn.purge_status = status
    assert purged.publish(purged.release()).purged is True


def test_a_cdn_that_is_away_is_tried_again(purged: Pipeline, settings: Settings) -> None:
    release = purged.release()
    address = settings.CDN_URL

    def away(*args: Any, **kwargs: Any) -> Any:
        settings.CDN_URL = "http://127.0.0.1:9"
        return settle(*args, **kwargs)

    settle = purging.settle
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(purging, "settle", away)
        assert purged.publish(release).purged is False
    assert the_purge().failure == "unreachable"
    settings.CDN_URL = address
    assert purging.confirm(purge_id=the_purge().pk, now=NOW)


def test_the_body_of_the_answer_to_a_purge_is_not_read(
    purged: Pipeline, stop: threading.Event
) -> None:
    purged.cdn.purge_answer = trickle(stop)
    assert purged.publish(purged.release()).purged is True


def test_a_purge_whose_answer_trickles_is_cut_off_in_time(
    purged: Pipeline, monkeypatch: pytest.MonkeyPatch, stop: threading.Event
) -> None:
    monkeypatch.setattr(cdns, "PURGE_SECONDS", 0.3)
    purged.cdn.purge_answer = trickle(stop, head=True)
    # It comes back, though the answer never ends.
    assert purged.publish(purged.release()).purged is False
    assert the_purge().failure == "too_slow"


def test_a_purge_takes_nothing_from_the_environment(
    purged: Pipeline, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login somebody password theirs\n")
    heads: list[str | None] = []

    def noting(request: BaseHTTPRequestHandler) -> None:
        heads.append(request.headers["Authorization"])
        status(200)(request)

    purged.cdn.purge_answer = noting
    monkeypatch.setenv("NETRC", str(netrc))
    assert purged.publish(purged.release("1.0.0")).purged is True
    assert heads == [None, None]
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    assert purged.publish(purged.release("1.1.0")).purged is True


def test_the_same_bytes_again_tell_how_it_is_today(purged: Pipeline) -> None:
    purged.publish(purged.release("1.0.0"))
    purged.cdn.deaf = True
    release = purged.release("1.1.0")
    assert purged.publish(release).purged is False
    again = purged.publish(release)
    assert (again.created, again.purged) == (False, False)
    purged.cdn.deaf = False
    assert purged.publish(release).purged is True
    assert Purge.objects.count() == 2


def test_a_repeat_purges_again_after_a_confirmed_purge(purged: Pipeline) -> None:
    release = purged.release("1.0.0")
    assert purged.publish(release).purged is True
    for path in (POINTER, f"{POINTER}.minisig"):
        purged.cdn.kept[path] = b"corrupt"
        purged.cdn.deaf = True
        assert purged.publish(release).purged is False
        purged.cdn.deaf = False
        assert purged.publish(release).purged is True
        assert kept(purged) == list(purged.stored())
    assert Purge.objects.count() == 3


def test_the_pair_that_is_given_back_is_purged_too(
    purged: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    purged.publish(purged.release("1.0.0"))
    original = storage.put

    def dies(name: str, content: bytes) -> None:
        if name == POINTER.removeprefix("/"):
            raise Killed
        original(name, content)

    with monkeypatch.context() as patch:
        patch.setattr(storage, "put", dies)
        with pytest.raises(Killed):
            purged.publish(purged.release("1.1.0"))
    before = kept(purged)
    # A reader at this moment fills the cache with a signature that is not the manifest's.
    purged.cdn.kept[f"{POINTER}.minisig"] = purged.stored()[1]
    storage_sync.place(channel="stable", now=NOW)
    assert purging.confirm(**jobs()[-1].args, now=NOW)
    assert kept(purged) == before == list(purged.stored())


def test_a_cdn_that_is_configured_later_is_told_by_a_repeat(
    purged: Pipeline, settings: Settings
) -> None:
    settings.CDN_PURGE = ""
    release = purged.release()
    purged.publish(release)
    settings.CDN_PURGE = "purge"
    assert purged.publish(release).purged is True


def test_a_dry_run_purges_nothing_and_says_so(purged: Pipeline) -> None:
    release = purged.release("1.0.0")
    assert purged.publish(release, dry_run=True).purged is None
    purged.publish(release)
    asked = len(purged.cdn.purged)
    assert purged.publish(release, dry_run=True).purged is None
    assert purged.publish(purged.release("1.1.0"), dry_run=True).purged is None
    assert len(purged.cdn.purged) == asked


def test_a_killed_publish_leaves_the_purge_to_the_worker(
    purged: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*args: Any, **kwargs: Any) -> None:
        raise Killed

    release = purged.release()
    with monkeypatch.context() as patch:
        patch.setattr(purging, "settle", die)
        with pytest.raises(Killed):
            purged.publish(release)
    [job] = jobs()
    assert job.scheduled_at == about(NOW + purging.FIRST_PAUSE)
    assert purging.confirm(**job.args, now=NOW)
    assert kept(purged)[0] == release.body


def test_done_twice_it_does_no_harm(purged: Pipeline) -> None:
    purged.publish(purged.release())
    asked = len(purged.cdn.purged)
    assert purging.confirm(purge_id=the_purge().pk, now=NOW)
    assert purging.confirm(purge_id=10**9, now=NOW) is False
    assert (len(purged.cdn.purged), the_purge().attempts) == (asked, 1)


def failed(pipeline: Pipeline) -> Release:
    """A second release that the CDN does not want to know."""
    pipeline.publish(pipeline.release("1.0.0"))
    pipeline.cdn.deaf = True
    release = pipeline.release("1.1.0")
    pipeline.publish(release)
    return release


def test_failures_are_tried_again_more_and_more_slowly_until_one_is_none(purged: Pipeline) -> None:
    release = failed(purged)
    purge = Purge.objects.order_by("-pk")[0]
    pauses: list[timedelta] = []
    for number in range(8):
        now = NOW + timedelta(hours=number)
        assert not purging.confirm(purge_id=purge.pk, now=now)
        purge.refresh_from_db()
        pauses.append(purge.due_at - now)
        assert jobs()[-1].scheduled_at == purge.due_at
    assert pauses[:3] == [about(timedelta(minutes=each)) for each in (1, 2, 4)]
    assert pauses[-1] == about(purging.LONGEST_PAUSE)
    purged.cdn.deaf = False
    assert purging.confirm(purge_id=purge.pk, now=NOW)
    assert kept(purged)[0] == release.body
    purge.refresh_from_db()
    assert (purge.attempts, purge.failure, purge.failed) == (10, "", False)


def test_operators_are_mailed_once(purged: Pipeline) -> None:
    failed(purged)
    purge = Purge.objects.order_by("-pk")[0]
    mails = ProcrastinateJob.objects.filter(task_name="mail.send")
    assert not mails.exists()
    for _ in range(3):
        purging.confirm(purge_id=purge.pk, now=NOW)
    [job] = mails
    send_mail(**job.args)
    [sent] = mail.outbox
    assert "stable" in sent.subject
    assert "/admin/releases/shellchannel/stable/change/" in sent.body
    event = AuditEvent.objects.get(action="release:purge_failed")
    assert (event.target_id, event.after) == ("stable", {"failure": "old_bytes"})


def test_the_mail_about_a_halted_channel_says_that_the_cdn_may_still_serve_an_update(
    purged: Pipeline,
) -> None:
    purged.publish(purged.release())
    purged.cdn.deaf = True
    halt(channel="stable", reason="It crashes.", by=OPERATOR, now=NOW)
    purge = Purge.objects.order_by("-pk")[0]
    purging.confirm(purge_id=purge.pk, now=NOW)
    purging.confirm(purge_id=purge.pk, now=NOW)
    [job] = ProcrastinateJob.objects.filter(task_name="mail.send")
    send_mail(**job.args)
    [sent] = mail.outbox
    assert "The CDN may still serve an update of stable, which is halted" in sent.subject
    assert "Storage has no release of the halted channel stable." in sent.body


def test_a_cdn_that_takes_its_time_is_no_failure_for_some_minutes(
    purged: Pipeline, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cdns, "purge", lambda paths, *, reference: False)
    assert purged.publish(purged.release()).purged is False
    mails = ProcrastinateJob.objects.filter(task_name="mail.send")
    for later in (timedelta(seconds=30), timedelta(minutes=2), timedelta(minutes=4)):
        assert not purging.confirm(purge_id=the_purge().pk, now=NOW + later)
        assert not the_purge().failed
        assert not mails.exists()
    purging.confirm(purge_id=the_purge().pk, now=NOW + Purge.MAY_TAKE + timedelta(seconds=30))
    assert the_purge().failed
    assert mails.count() == 1


def test_the_worker_is_asked_once_the_publish_had_its_own_try(
    purged: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    verify = artifacts.verify

    def slow(*args: Any, **kwargs: Any) -> Any:
        time.sleep(3)
        return verify(*args, **kwargs)

    monkeypatch.setattr(artifacts, "verify", slow)
    purged.publish(purged.release())
    assert the_purge().due_at >= NOW + timedelta(seconds=3) + purging.FIRST_PAUSE


def test_a_newer_publish_ends_an_older_purge(purged: Pipeline) -> None:
    failed(purged)
    old = Purge.objects.order_by("-pk")[0]
    purged.cdn.deaf = False
    assert purged.publish(purged.release("1.2.0")).purged is True
    asked, queued = len(purged.cdn.purged), len(jobs())
    assert purging.confirm(purge_id=old.pk, now=NOW) is False
    assert (len(purged.cdn.purged), len(jobs())) == (asked, queued)
    assert purging.queue_overdue(now=NOW + timedelta(days=1)) == 0


def test_a_purge_that_is_superseded_while_it_waits_queues_nothing_more(
    purged: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed(purged)
    old = Purge.objects.order_by("-pk")[0]
    original, overtaken = cdns.purge, False

    def overtake(*args: Any, **kwargs: Any) -> bool:
        nonlocal overtaken
        if not overtaken:
            overtaken = True
            purged.publish(purged.release("1.2.0"))
        return original(*args, **kwargs)

    monkeypatch.setattr(cdns, "purge", overtake)
    assert purging.confirm(purge_id=old.pk, now=NOW) is False
    assert {job.args["purge_id"] for job in jobs()[-2:]} == {Purge.objects.order_by("-pk")[0].pk}


def test_a_purge_whose_job_was_lost_is_queued_again(purged: Pipeline) -> None:
    failed(purged)
    purge = Purge.objects.order_by("-pk")[0]
    ProcrastinateJob.objects.all().delete()
    assert purging.queue_overdue(now=purge.due_at + timedelta(minutes=1)) == 0
    late = purge.due_at + timedelta(minutes=6)
    assert purging.queue_overdue(now=late) == 1
    assert purging.queue_overdue(now=late) == 0
    [job] = jobs()
    assert (job.args, job.scheduled_at) == ({"purge_id": purge.pk}, late)


def test_an_operator_has_it_tried_at_once(purged: Pipeline, now: datetime) -> None:
    def wanted() -> bool:
        return purging.retry(channel="stable", reason="Now", by=OPERATOR, now=now)

    assert not wanted()
    failed(purged)
    assert wanted()
    assert jobs()[-1].scheduled_at == now
    event = AuditEvent.objects.get(action="release:purge_retried")
    assert (event.reason, event.target_id) == ("Now", "stable")
    purged.cdn.deaf = False
    assert purging.confirm(**jobs()[-1].args, now=now)
    purged.cdn.kept[POINTER] = b"corrupt"
    assert wanted()
    assert purging.confirm(**jobs()[-1].args, now=now)
    assert kept(purged) == list(purged.stored())
    live = Publication.objects.of("stable")[0]
    assert [each.publication for each in Purge.objects.all()[:2]] == [live, live]


@pytest.mark.django_db(transaction=True)
def test_no_connection_is_held_while_the_cdn_is_waited_for(
    purged: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    held: list[bool] = []
    purge, serves = cdns.purge, cdns.serves

    def purging_now(*args: Any, **kwargs: Any) -> bool:
        held.append(connection.connection is not None)
        return purge(*args, **kwargs)

    def reading(*args: Any, **kwargs: Any) -> bool:
        held.append(connection.connection is not None)
        return serves(*args, **kwargs)

    monkeypatch.setattr(cdns, "purge", purging_now)
    monkeypatch.setattr(cdns, "serves", reading)
    assert purged.publish(purged.release()).purged is True
    assert held == [False, False, False]


@pytest.fixture
def distribution(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """CloudFront on loopback, and a distribution in it: ``client`` and ``id``."""
    moto = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    moto.start()
    host, port = moto.get_host_and_port()
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.setenv("AWS_ENDPOINT_URL_CLOUDFRONT", f"http://{host}:{port}")
    cloudfront._client.cache_clear()
    client = boto3.client("cloudfront", region_name="us-east-1")
    made = client.create_distribution(
        DistributionConfig={
            "CallerReference": uuid4().hex,
            "Comment": "",
            "Enabled": True,
            "Origins": {
                "Quantity": 1,
                "Items": [
                    {
                        "Id": "bucket",
                        "DomainName": "bucket.s3.us-east-1.amazonaws.com",
                        "S3OriginConfig": {"OriginAccessIdentity": ""},
                    }
                ],
            },
            "DefaultCacheBehavior": {
                "TargetOriginId": "bucket",
                "ViewerProtocolPolicy": "https-only",
                "MinTTL": 0,
                "ForwardedValues": {"QueryString": False, "Cookies": {"Forward": "none"}},
            },
        }
    )
    settings.CDN_PURGE = f"cloudfront:{made['Distribution']['Id']}"
    yield client, made["Distribution"]["Id"]
    cloudfront._client.cache_clear()
    client.close()
    moto.stop()


def test_cloudfront_is_told_each_path_with_a_reference_of_its_own(
    purged: Pipeline, distribution: Any
) -> None:
    client, number = distribution
    # Nothing is kept: moto has no edges.
    purged.cdn.origin, purged.cdn.files = None, _Uncached(purged)
    assert purged.publish(purged.release("1.0.0")).purged is True
    listed = client.list_invalidations(DistributionId=number)["InvalidationList"]["Items"]
    batch = client.get_invalidation(DistributionId=number, Id=listed[0]["Id"])["Invalidation"][
        "InvalidationBatch"
    ]
    assert batch["Paths"]["Items"] == ["/shell/stable/latest.json*", "/v1/updates/manifest*"]
    assert batch["CallerReference"] == f"{the_purge().reference}-0"


def test_a_distribution_that_is_not_there_is_a_failure_with_its_word(
    purged: Pipeline, distribution: Any, settings: Settings
) -> None:
    settings.CDN_PURGE = "cloudfront:E0000000000000"
    assert purged.publish(purged.release("1.0.0")).purged is False
    assert the_purge().failure == "NoSuchDistribution"


class _Uncached(dict[str, Any]):
    """Files of memory first, then storage, of which nothing is kept."""

    def __init__(self, pipeline: Pipeline) -> None:
        super().__init__(pipeline.cdn.files)
        self._folder = pipeline.files

    def get(self, path: str, default: Any = None) -> Any:
        file = self._folder / path.removeprefix("/")
        return file.read_bytes() if file.is_file() else super().get(path, default)
