"""Servers of objects that lack conditional writes: found out once, told by name, and served under a lock of ours.

Servers that refuse the condition (storj/storj#7377, ceph/s3-tests#218), ignore it (pithings/mountx#19,
chimera-nas/chimera#471), or answer it oddly.
"""

import logging
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from io import StringIO
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import connection
from pytest_django.fixtures import Settings

from releases.delivery import conditional_writes
from releases.delivery.conditional_writes import found
from releases.delivery.object_storage import Objects
from releases.delivery.storage import (
    Conditions,
    Files,
    PathTaken,
    StorageUnavailable,
    conditions,
    put_once,
)
from releases.models import AppVersion
from tests.config.test_gunicorn import serving
from tests.releases.delivery.test_storage import bucket, server
from tests.releases.micro_apps.conftest import Apps, apps
from tests.standins.s3_front import Front, running_front
from tests.waiting import eventually

__all__ = ["apps", "bucket", "server"]
PATH = "apps/notes/1.0.0/bundle.tar.gz"
WITHOUT = ["501", "400", "always 412", "ignores"]
NOWHERE = "http://127.0.0.1:9"

Serve = Callable[[str], Front]


def backend(endpoint: str, **options: str) -> dict[str, Any]:
    return {
        "BACKEND": "releases.delivery.object_storage.Objects",
        "OPTIONS": {
            "bucket": "releases",
            "endpoint": endpoint,
            "region": "eu-central-1",
            **options,
        },
    }


@pytest.fixture
def serve(server: str, bucket: Any, settings: Settings) -> Iterator[Serve]:
    """Puts a front of some mode before the bucket, and makes it the storage."""
    running = []

    def start(mode: str) -> Front:
        context = running_front(server, mode)
        front = context.__enter__()
        running.append(context)
        settings.STORAGES = {**settings.STORAGES, "default": backend(front.url)}
        return front

    yield start
    for each in running:
        each.__exit__(None, None, None)


def stored(bucket: Any) -> dict[str, bytes]:
    listed = bucket.list_objects_v2(Bucket="releases").get("Contents", [])
    keys = [each["Key"] for each in listed]
    return {key: bucket.get_object(Bucket="releases", Key=key)["Body"].read() for key in keys}


class TestProbe:
    @pytest.mark.parametrize(
        ("mode", "seen"),
        [
            ("keeps", Conditions.KEPT),
            ("304", Conditions.KEPT),
            ("ignores", Conditions.IGNORED),
            ("501", Conditions.REFUSED),
            ("400", Conditions.REFUSED),
            ("always 412", Conditions.REFUSED),
        ],
    )
    def test_the_probe_detects_conditional_writes_and_deletes_its_object(
        self, serve: Serve, bucket: Any, mode: str, seen: Conditions
    ) -> None:
        front = serve(mode)
        assert conditions() == seen
        assert stored(bucket) == {}
        asked = len(front.asked)
        assert conditions() == seen
        assert len(front.asked) == asked

    def test_a_policy_that_allows_writes_alone_is_enough(self, serve: Serve) -> None:
        front = serve("keeps")
        put_once(PATH, b"first")
        assert {method for method, _, _ in front.asked} == {"PUT", "DELETE"}

    def test_files_of_this_host_need_none(self, tmp_path: Path) -> None:
        assert Files(location=str(tmp_path)).conditions() == Conditions.KEPT

    @pytest.mark.parametrize("wrong", [{"bucket": "missing"}, {"endpoint": NOWHERE}])
    def test_a_server_that_takes_nothing_is_away_and_asked_again(
        self, server: str, bucket: Any, wrong: dict[str, str]
    ) -> None:
        options = {"bucket": "releases", "endpoint": server, "region": "eu-central-1", **wrong}
        objects = Objects(**options)
        for _ in range(2):
            with pytest.raises(StorageUnavailable):
                objects.conditions()

    def test_a_server_that_does_not_let_the_probe_be_removed_is_no_failure(
        self, serve: Serve, bucket: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        serve("keeps")

        def denied(self: Objects, name: str) -> None:
            raise StorageUnavailable

        monkeypatch.setattr(Objects, "delete", denied)
        assert conditions() == Conditions.KEPT
        (left,) = stored(bucket)
        assert left.startswith("apps/.probe-")


class TestWhatNeverChanges:
    """On servers without conditional writes."""

    @pytest.mark.parametrize("mode", [*WITHOUT, "304", "keeps"])
    def test_the_first_bytes_of_an_address_stay(self, serve: Serve, bucket: Any, mode: str) -> None:
        serve(mode)
        put_once(PATH, b"first")
        put_once(PATH, b"first")
        with pytest.raises(PathTaken):
            put_once(PATH, b"other")
        assert stored(bucket) == {PATH: b"first"}

    @pytest.mark.parametrize("mode", WITHOUT)
    def test_a_write_that_the_server_lost_is_not_done(self, serve: Serve, mode: str) -> None:
        front = serve(mode)
        front.lost = {f"/releases/{PATH}"}
        with pytest.raises(StorageUnavailable):
            put_once(PATH, b"first")

    @pytest.mark.parametrize("mode", WITHOUT)
    def test_bytes_of_another_writer_are_found_by_reading_back(
        self, serve: Serve, bucket: Any, mode: str
    ) -> None:
        """The writer takes no lock of ours, and writes between our look and our write."""
        front = serve(mode)
        conditions()
        front.lost = {f"/releases/{PATH}"}
        front.before_write[f"/releases/{PATH}"] = lambda: bucket.put_object(
            Bucket="releases", Key=PATH, Body=b"theirs"
        )
        with pytest.raises(PathTaken):
            put_once(PATH, b"ours")
        assert stored(bucket) == {PATH: b"theirs"}

    def test_a_server_that_keeps_conditions_is_asked_with_them(self, serve: Serve) -> None:
        front = serve("keeps")
        put_once(PATH, b"first")
        assert front.writes(PATH) == [True]


@pytest.mark.django_db(transaction=True)
class TestPublishing:
    @pytest.mark.parametrize("mode", WITHOUT)
    def test_an_app_is_published_and_keeps_its_bytes(
        self, serve: Serve, bucket: Any, apps: Apps, mode: str
    ) -> None:
        serve(mode)
        assert apps.publish().created
        before = stored(bucket)
        assert sorted(before) == [PATH, f"{PATH}.minisig"]
        assert not apps.publish().created
        # As after a restore of the database from before the publish.
        AppVersion.objects.update(stored_at=None)
        apps.publish()
        assert stored(bucket) == before

    @pytest.mark.parametrize("mode", WITHOUT)
    def test_bytes_that_another_database_has_published_stay(
        self, serve: Serve, bucket: Any, apps: Apps, mode: str
    ) -> None:
        serve(mode)
        bucket.put_object(Bucket="releases", Key=PATH, Body=b"theirs")
        with pytest.raises(PathTaken):
            apps.publish()
        assert stored(bucket) == {PATH: b"theirs"}
        assert AppVersion.objects.get().stored_at is None

    def test_a_second_publish_of_the_app_looks_once_the_first_has_written(
        self, serve: Serve, bucket: Any, apps: Apps
    ) -> None:
        front = serve("ignores")
        conditions()
        held, let_go = Event(), Event()

        def wait() -> None:
            held.set()
            let_go.wait(60)

        front.before_write[f"/releases/{PATH}"] = wait
        bundle, signature = apps.bundle("1.0.0")
        with ThreadPoolExecutor(2) as pool:
            first = pool.submit(published, bundle, signature)
            assert held.wait(60)
            asked = len(front.asked)
            second = pool.submit(published, bundle, signature)
            waits_for_lock()
            assert len(front.asked) == asked
            let_go.set()
            assert "published" in first.result()
            assert "was there already" in second.result() or "published" in second.result()
        assert front.writes(PATH) == [False]

    def test_a_server_that_keeps_conditions_needs_no_lock(
        self, serve: Serve, apps: Apps, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def lock(name: str) -> None:
            raise AssertionError(name)

        monkeypatch.setattr("releases.micro_apps.publishing.lock_until_commit", lock)
        serve("keeps")
        assert apps.publish().created


def published(bundle: Path, signature: Path) -> str:
    out = StringIO()
    try:
        call_command("publish_app", "notes", "1.0.0", str(bundle), str(signature), stdout=out)
    finally:
        connection.close()
    return out.getvalue()


def waits_for_lock() -> None:
    """Returns once a session waits for an advisory lock."""
    waited = Event()
    for _ in range(3000):
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
            )
            if cursor.fetchone() == (1,):
                return
        waited.wait(0.02)
    raise AssertionError("nobody waits")


SAID = {
    "501": "Storage refuses conditional writes (If-None-Match)",
    "ignores": "Storage ignores conditional writes (If-None-Match)",
}


class TestTelling:
    @pytest.mark.parametrize("mode", SAID)
    def test_check_says_what_storage_lacks(self, serve: Serve, mode: str) -> None:
        serve(mode)
        assert SAID[mode] in checked()

    def test_check_says_nothing_of_one_that_keeps_them(self, serve: Serve) -> None:
        serve("keeps")
        assert "Storage" not in checked()

    @pytest.mark.parametrize(
        ("wrong", "cause"),
        [
            ({"bucket": "missing"}, "NoSuchBucket"),
            ({"endpoint": NOWHERE}, "EndpointConnectionError"),
        ],
    )
    def test_check_says_that_storage_is_away(
        self, server: str, bucket: Any, settings: Settings, wrong: dict[str, str], cause: str
    ) -> None:
        options = {"endpoint": server, **wrong}
        settings.STORAGES = {**settings.STORAGES, "default": backend(**options)}
        said = checked()
        assert "Storage could not be asked" in said
        assert cause in said

    def test_a_warning_fails_a_check_that_wants_none(self, serve: Serve) -> None:
        serve("501")
        with pytest.raises(CommandError):
            call_command("check", "--fail-level", "WARNING", stderr=StringIO())

    @pytest.mark.parametrize(("command", "asks"), [("check", True), ("findstatic", False)])
    def test_no_other_command_asks_storage(self, serve: Serve, command: str, asks: bool) -> None:
        front = serve("501")
        done = subprocess.run(
            [sys.executable, "manage.py", command, *([] if asks else ["admin/css/base.css"])],
            cwd=Path(__file__).parents[3],
            env={**os.environ, "STORAGE_URL": f"s3://releases?endpoint={front.url}&region=eu"},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert bool(front.asked) == asks
        assert (SAID["501"] in done.stderr) == asks

    @pytest.mark.parametrize(
        ("mode", "state"), [("501", "refused"), ("ignores", "ignored"), ("keeps", None)]
    )
    def test_the_start_tells_the_log(
        self, serve: Serve, caplog: pytest.LogCaptureFixture, mode: str, state: str | None
    ) -> None:
        serve(mode)
        with caplog.at_level(logging.WARNING, logger=conditional_writes.__name__):
            started()
        told = [(each.message, each.__dict__["state"]) for each in caplog.records]
        assert told == ([("storage_without_conditional_writes", state)] if state else [])

    def test_a_start_while_storage_is_away_goes_on_and_says_so(
        self, settings: Settings, caplog: pytest.LogCaptureFixture
    ) -> None:
        settings.STORAGES = {**settings.STORAGES, "default": backend(NOWHERE)}
        with caplog.at_level(logging.WARNING, logger=conditional_writes.__name__):
            started()
        assert [each.message for each in caplog.records] == ["storage_not_probed"]

    def test_the_start_does_not_wait_for_storage(self, serve: Serve) -> None:
        held = Event()
        front = serve("keeps")

        class Paths(dict[str, Any]):
            def get(self, key: str, default: Any = None) -> Any:
                return held.wait

        front.before_write = Paths()
        thread = conditional_writes.start()
        assert thread.is_alive()
        held.set()
        thread.join()

    def test_each_outcome_of_the_probe_has_a_sentence_or_none(self) -> None:
        assert {found(each) is None for each in Conditions} == {True, False}


def started() -> None:
    thread: Thread = conditional_writes.start()
    thread.join()


def checked() -> str:
    out, err = StringIO(), StringIO()
    call_command("check", stdout=out, stderr=err)
    return out.getvalue() + err.getvalue()


def test_one_process_of_a_service_asks_storage(serve: Serve) -> None:
    front = serve("501")
    with serving(STORAGE_URL=address(front.url), WEB_WORKERS="2") as service:
        eventually(lambda: bool(service.said("storage_without_conditional_writes")))
        (told,) = service.said("storage_without_conditional_writes")
        assert (told["level"], told["state"]) == ("warning", "refused")
        children = Path(f"/proc/{service.child.pid}/task/{service.child.pid}/children")
        before = [int(each) for each in children.read_text().split()]
        assert len(before) == 2
        for each in before:
            os.kill(each, signal.SIGKILL)
        eventually(lambda: service.get("/livez").status == 204)
        assert len({path for _, path, _ in front.asked}) == 1
        assert len(service.said("storage_without_conditional_writes")) == 1


def test_a_service_serves_though_storage_is_away() -> None:
    with serving(STORAGE_URL=address(NOWHERE)) as service:
        assert service.get("/livez").status == 204
        eventually(lambda: bool(service.said("storage_not_probed")))
        assert service.get("/livez").status == 204


def address(endpoint: str) -> str:
    return f"s3://releases?endpoint={endpoint}&region=eu-central-1"
