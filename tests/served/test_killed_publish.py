"""A web worker that is killed in the middle of publishing, at each step there is; and two pipelines at once.

Readers see the old release or the new one, whole and with its own signature, and a repeat finishes the job.
"""

import base64
import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import boto3
import pytest
import requests
from botocore.config import Config
from django.db.models.functions import Now
from moto.server import ThreadedMotoServer

from releases.manifests.minisign import PublicKey, Signature
from releases.models import ShellChannel
from tests.releases.conftest import Release
from tests.releases.signing import Signer
from tests.served.conftest import Ground
from tests.served.crowd import all_at_once
from tests.served.database import Database
from tests.served.releasing import ServedPipeline
from tests.served.service import WORKERS, Service, running_service
from tests.served.stalling import (
    Gate,
    Storage,
    before_storage,
    held_up,
    row_held,
    somebody_waits_for_the_row,
)
from tests.standins.cdn import running_cdn
from tests.waiting import eventually

CHANNEL, BUCKET = "mortal", "releases"
MANIFEST, SIGNATURE = "/latest.json", "/latest.json.minisig"
MAC, WINDOWS = "shell-darwin-aarch64.tar.gz", "shell-windows-x86_64.tar.gz"


@dataclass
class Stage:
    """A service whose storage and CDN can hold it up."""

    service: Service
    pipeline: ServedPipeline
    database: Database
    storage: Storage
    bucket: Any
    patch: int = 0
    live: bytes = b""
    gates: list[Gate] = field(default_factory=list)

    def next_release(self) -> Release:
        self.patch += 1
        return self.pipeline.made(f"1.0.{self.patch}")

    def published(self) -> Release:
        release = self.next_release()
        response = self.pipeline.post(release)
        assert response.status_code == 201, response.text
        self.live = release.body
        return release

    def stall_artifact(self, name: str) -> Gate:
        path = f"/shell/1.0.{self.patch}/{name}"
        content = self.pipeline.cdn.files[path]
        assert isinstance(content, bytes)
        gate = self.gate()
        self.pipeline.cdn.files[path] = held_up(content, gate)
        return gate

    def stall_storage(self, gates: dict[str, Gate], path: str) -> Gate:
        gates[path] = self.gate()
        return gates[path]

    def gate(self) -> Gate:
        self.gates.append(Gate())
        return self.gates[-1]

    def open_all(self) -> None:
        """Whatever was held up goes on, and nothing more is."""
        self.storage.before.clear()
        self.storage.after.clear()
        while self.gates:
            self.gates.pop().open()

    def kill(self) -> None:
        before = self.service.workers()
        for worker in before:
            os.kill(worker, signal.SIGKILL)
        eventually(lambda: not {*before} & {*self.service.workers()})

    def wait_for_workers(self) -> None:
        with self.database.rows():
            # A machine that stands still does not outlast what the dead one has left.
            left = ShellChannel.objects.filter(pk=CHANNEL, leased_until__gt=Now())
            left.update(leased_until=Now() + timedelta(hours=1))
        eventually(lambda: len(self.service.workers()) == WORKERS)

    def let_the_lease_run_out(self) -> None:
        with self.database.rows():
            ShellChannel.objects.filter(pk=CHANNEL).update(leased_until=Now())

    def stored(self, end: str = MANIFEST) -> bytes:
        found = self.bucket.get_object(Bucket=BUCKET, Key=f"shell/{CHANNEL}{end}")
        content: bytes = found["Body"].read()
        return content

    def assert_offered(self, *bodies: bytes) -> None:
        """Readers are given one of these, by both ways; the service's has its own signature."""
        answer = self.pipeline.offered()
        assert answer.content in bodies
        self.assert_signed(answer.content, base64.b64decode(answer.headers["X-Manifest-Signature"]))
        assert self.stored() in bodies

    def offered_to_shells(self) -> set[bytes]:
        """Returns the offers to twenty shells, each by its own id."""
        address = f"{self.service.url}/v1/updates/manifest?ch={CHANNEL}&os=darwin"
        asked = (requests.get(f"{address}&install_id=shell-{n}", timeout=30) for n in range(20))
        return {each.content for each in asked}

    def assert_signed(self, content: bytes, signature: bytes) -> None:
        key = PublicKey.of(self.pipeline.signer.public)
        Signature.parse(signature).check_bytes(content, key)


@pytest.fixture(scope="module")
def stage(ground: Ground) -> Iterator[Stage]:
    keys = {"AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing"}
    moto = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    with ExitStack() as stack:
        moto.start()
        stack.callback(moto.stop)
        real = "http://{}:{}".format(*moto.get_host_and_port())
        bucket = boto3.client(
            "s3",
            endpoint_url=real,
            region_name="us-east-1",
            config=Config(s3={"addressing_style": "path"}),
            aws_access_key_id="testing",
            aws_secret_access_key="testing",
        )
        stack.callback(bucket.close)
        bucket.create_bucket(Bucket=BUCKET)
        storage = stack.enter_context(before_storage(real))
        cdn = stack.enter_context(running_cdn())
        pipeline = ServedPipeline(Signer(), cdn, ground.folder / "unused", channel=CHANNEL)
        where = f"s3://{BUCKET}?endpoint={storage.url}&region=us-east-1"
        environ = {**ground.environ, **pipeline.environ(), **keys, "STORAGE_URL": where}
        environ["AWS_EC2_METADATA_DISABLED"] = "true"
        service = stack.enter_context(running_service(ground.folder, environ))
        pipeline.url = service.url
        stage = Stage(service, pipeline, ground.database, storage, bucket)
        stage.published()
        yield stage


def artifact(name: str) -> Callable[[Stage], Gate]:
    return lambda stage: stage.stall_artifact(name)


def before(path: str) -> Callable[[Stage], Gate]:
    return lambda stage: stage.stall_storage(stage.storage.before, path)


def after(path: str) -> Callable[[Stage], Gate]:
    return lambda stage: stage.stall_storage(stage.storage.after, path)


# The place of the interruption; True if it goes on from there to the next write of the channel's row and dies in that.
STEPS: dict[str, tuple[Callable[[Stage], Gate], bool]] = {
    "at the first artifact": (artifact(MAC), False),
    "at the last artifact": (artifact(WINDOWS), False),
    "as it is recorded": (artifact(WINDOWS), True),
    "before the signature is stored": (before(SIGNATURE), False),
    "after the signature is stored": (after(SIGNATURE), False),
    "between signature and manifest": (after(SIGNATURE), True),
    "before the manifest is stored": (before(MANIFEST), False),
    "after the manifest is stored": (after(MANIFEST), False),
    "as it is marked as stored": (after(MANIFEST), True),
}


def die(stage: Stage, gate: Gate, *, in_the_row: bool) -> None:
    gate.wait_until_reached()
    if not in_the_row:
        stage.kill()
        return
    with row_held(stage.database, CHANNEL):
        gate.open()
        somebody_waits_for_the_row()
        stage.kill()


# A second or more for each: the others run with what else takes long.
TELLING = {"as it is recorded", "between signature and manifest", "as it is marked as stored"}
LONGER = [pytest.param(each, marks=pytest.mark.wire) for each in STEPS if each not in TELLING]


@pytest.mark.parametrize("step", [*sorted(TELLING), *LONGER])
def test_killed_at_any_step_readers_see_old_or_new_and_a_repeat_finishes(
    stage: Stage, step: str
) -> None:
    hold, in_the_row = STEPS[step]
    old, release = stage.live, stage.next_release()
    gate = hold(stage)
    with ThreadPoolExecutor(1) as pool:
        publishing = pool.submit(stage.pipeline.post, release)
        try:
            die(stage, gate, in_the_row=in_the_row)
        finally:
            stage.open_all()
        with pytest.raises(requests.ConnectionError):
            publishing.result(timeout=60)
    stage.wait_for_workers()
    stage.assert_offered(old, release.body)
    busy = stage.pipeline.post(release)
    assert (busy.status_code, busy.json()["code"]) == (409, "publish_in_progress")
    assert busy.headers["Retry-After"] == "30"
    stage.let_the_lease_run_out()
    assert stage.pipeline.post(release).status_code == 201
    stage.live = release.body
    stage.assert_offered(release.body)
    stage.assert_signed(stage.stored(), stage.stored(SIGNATURE))
    assert stage.pipeline.post(release).status_code == 200


# A release for a share is published by one transaction, which also ends the one before it.
SHARE_STEPS = ("at the first artifact", "at the last artifact", "as it is recorded")


@pytest.mark.parametrize("step", SHARE_STEPS)
def test_a_publish_for_a_share_that_is_killed_changes_nothing_and_a_repeat_finishes(
    stage: Stage, step: str
) -> None:
    hold, in_the_row = STEPS[step]
    before = stage.offered_to_shells()
    old, release = stage.live, stage.next_release()
    query = f"ch={CHANNEL}&share=50"
    gate = hold(stage)
    with ThreadPoolExecutor(1) as pool:
        publishing = pool.submit(stage.pipeline.post, release, query)
        try:
            die(stage, gate, in_the_row=in_the_row)
        finally:
            stage.open_all()
        with pytest.raises(requests.ConnectionError):
            publishing.result(timeout=60)
    stage.wait_for_workers()
    assert stage.offered_to_shells() == before
    stage.let_the_lease_run_out()
    published = stage.pipeline.post(release, query)
    assert (published.status_code, published.json()["share"]) == (201, 50)
    assert stage.offered_to_shells() == {old, release.body}
    stage.assert_offered(old)
    again = stage.pipeline.post(release, query)
    assert (again.status_code, again.json()["share"]) == (200, 50)
    assert stage.stored() == old


def test_another_publisher_is_told_to_wait_and_readers_are_not(stage: Stage) -> None:
    old, first = stage.live, stage.next_release()
    gate = stage.stall_artifact(WINDOWS)
    second = stage.pipeline.made("1.1.0")
    with ThreadPoolExecutor(1) as pool:
        publishing = pool.submit(stage.pipeline.post, first)
        try:
            gate.wait_until_reached()
            for release in (second, first):
                busy = stage.pipeline.post(release)
                assert (busy.status_code, busy.json()["code"]) == (409, "publish_in_progress")
            stage.assert_offered(old)
        finally:
            stage.open_all()
        assert publishing.result(timeout=60).status_code == 201
    stage.live = first.body
    stage.assert_offered(first.body)


def test_one_of_many_who_publish_at_once_is_served_whole(stage: Stage) -> None:
    for _ in range(3):
        releases = [stage.next_release() for _ in range(6)]
        answers = all_at_once(len(releases), lambda number: stage.pipeline.post(releases[number]))  # noqa: B023
        codes = [each.json().get("code") for each in answers]
        assert set(codes) <= {None, "publish_in_progress", "downgrade_refused"}, codes
        last = max(number for number, code in enumerate(codes) if code is None)
        stage.live = releases[last].body
        stage.assert_offered(stage.live)
        stage.assert_signed(stage.stored(), stage.stored(SIGNATURE))


def test_the_same_document_from_two_jobs_at_once_is_published_once(stage: Stage) -> None:
    release = stage.next_release()
    answers = all_at_once(6, lambda number: stage.pipeline.post(release))
    statuses = sorted(each.status_code for each in answers)
    assert statuses.count(201) == 1
    assert set(statuses) <= {200, 201, 409}
    stage.live = release.body
    stage.assert_offered(release.body)
