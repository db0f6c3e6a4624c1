"""Storage: files that are replaced in one step, and objects of an S3 server."""

import base64
import os
import stat
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from socket import create_server, socket
from threading import Thread
from typing import Any

import boto3
import pytest
import requests
from botocore.config import Config
from django.core.files.base import ContentFile
from django.core.files.storage import default_storage
from moto.s3.responses import S3Response
from moto.server import ThreadedMotoServer
from pytest_django.fixtures import Settings

from releases.delivery.object_storage import Objects
from releases.delivery.storage import (
    IMMUTABLE_CACHE,
    POINTER_CACHE,
    Files,
    PathTaken,
    StorageUnavailable,
    cache_control_of,
    pointer_path,
    put,
    put_once,
)
from tests.releases.conftest import Pipeline

NAME = pointer_path("stable")


def test_the_pointer_of_a_channel_changes_and_everything_else_stays() -> None:
    assert cache_control_of("shell/stable/latest.json") == POINTER_CACHE
    assert cache_control_of("shell/stable/latest.json.minisig") == POINTER_CACHE
    assert cache_control_of("shell/1.2.3/shell.tar.gz") == IMMUTABLE_CACHE
    assert cache_control_of("apps/notes/1.0.0/bundle.tar.gz") == IMMUTABLE_CACHE
    assert POINTER_CACHE == "public, max-age=60, stale-while-revalidate=300"


def test_storage_is_what_settings_name(settings: Settings, tmp_path: Path) -> None:
    settings.STORAGES = {
        **settings.STORAGES,
        "default": {
            "BACKEND": "releases.delivery.storage.Files",
            "OPTIONS": {"location": str(tmp_path)},
        },
    }
    put(NAME, b"{}")
    assert (tmp_path / NAME).read_bytes() == b"{}"
    with default_storage.open(NAME) as stored:
        assert stored.read() == b"{}"


def test_a_file_is_readable_for_the_server_that_serves_it(tmp_path: Path) -> None:
    Files(location=str(tmp_path)).save(NAME, ContentFile(b"{}"))
    assert stat.S_IMODE((tmp_path / NAME).stat().st_mode) == 0o644


@pytest.fixture
def _strict_umask() -> Iterator[None]:
    before = os.umask(0o077)
    yield
    os.umask(before)


@pytest.mark.usefixtures("_strict_umask")
def test_published_folders_are_open_whatever_the_umask(tmp_path: Path) -> None:
    """modoboa/modoboa-installer#53"""
    files = Files(location=str(tmp_path / "made" / "published"))
    files.save(NAME, ContentFile(b"{}"))
    assert files.create("apps/notes/1.0.0/bundle.tar.gz", b"bundle")
    assert not files.create("apps/notes/1.0.0/bundle.tar.gz", b"other")
    found = sorted((tmp_path / "made").rglob("*"))
    assert len(found) == 8
    modes = {stat.S_IMODE(each.stat().st_mode) for each in found if each.is_dir()}
    assert (modes, stat.S_IMODE((tmp_path / "made").stat().st_mode)) == ({0o755}, 0o755)
    assert {stat.S_IMODE(each.stat().st_mode) for each in found if each.is_file()} == {0o644}


def test_folders_that_an_earlier_release_has_closed_are_opened_and_an_operator_s_are_not(
    tmp_path: Path,
) -> None:
    location = tmp_path / "published"
    for folder, mode in (
        (location, 0o700),
        (location / "shell", 0o700),
        (location / "apps", 0o750),
    ):
        folder.mkdir(mode=mode)
    files = Files(location=str(location))
    files.save(NAME, ContentFile(b"{}"))
    files.create("apps/a.txt", b"")
    modes = [stat.S_IMODE(each.stat().st_mode) for each in (location, *sorted(location.iterdir()))]
    assert modes == [0o700, 0o750, 0o755]


def test_readers_never_see_half_a_file(tmp_path: Path) -> None:
    files = Files(location=str(tmp_path))
    contents = [bytes([each]) * 2_000_000 for each in b"ab"]
    files.save(NAME, ContentFile(contents[0]))
    seen: set[bytes] = set()
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            seen.add((tmp_path / NAME).read_bytes())

    reader = threading.Thread(target=read)
    reader.start()
    try:
        for each in contents * 15:
            files.save(NAME, ContentFile(each))
    finally:
        done.set()
        reader.join()
    assert seen
    assert seen <= set(contents)
    assert [each.name for each in (tmp_path / NAME).parent.iterdir()] == ["latest.json"]


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = Files(location=str(tmp_path))
    files.save(NAME, ContentFile(b"old"))

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("releases.delivery.storage.os.fsync", full)
    with pytest.raises(StorageUnavailable) as refusal:
        files.save(NAME, ContentFile(b"new"))
    assert (refusal.value.status, refusal.value.code) == (503, "service_unavailable")
    assert (tmp_path / NAME).read_bytes() == b"old"
    assert [each.name for each in (tmp_path / NAME).parent.iterdir()] == ["latest.json"]


BUNDLE = "apps/notes/1.0.0/bundle.tar.gz"


@pytest.mark.usefixtures("either")
class TestWhatNeverChanges:
    """A path of a version is written once, by whoever is first."""

    @pytest.fixture(params=["files", "objects"])
    def either(self, request: pytest.FixtureRequest, settings: Settings, tmp_path: Path) -> None:
        if request.param == "files":
            backend = {
                "BACKEND": "releases.delivery.storage.Files",
                "OPTIONS": {"location": str(tmp_path)},
            }
        else:
            request.getfixturevalue("bucket")
            backend = {
                "BACKEND": "releases.delivery.object_storage.Objects",
                "OPTIONS": {
                    "bucket": "releases",
                    "prefix": "of the shell",
                    "endpoint": request.getfixturevalue("server"),
                    "region": "eu-central-1",
                },
            }
        settings.STORAGES = {**settings.STORAGES, "default": backend}

    def test_the_same_bytes_again_are_as_good_as_done(self) -> None:
        put_once(BUNDLE, b"bundle")
        put_once(BUNDLE, b"bundle")
        with default_storage.open(BUNDLE) as stored:
            assert stored.read() == b"bundle"

    def test_different_bytes_are_refused_and_the_first_stay(self) -> None:
        put_once(BUNDLE, b"first")
        with pytest.raises(PathTaken):
            put_once(BUNDLE, b"other")
        with default_storage.open(BUNDLE) as stored:
            assert stored.read() == b"first"

    def test_one_of_many_concurrent_writes_is_stored(self) -> None:
        def put_it(number: int) -> bool:
            try:
                put_once(BUNDLE, bytes([number]) * 1000)
            except PathTaken:
                return False
            return True

        with ThreadPoolExecutor(8) as pool:
            assert sorted(pool.map(put_it, range(8)))[-2:] == [False, True]


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """The address of an S3 server on loopback."""
    put, one_at_a_time = S3Response.put_object, threading.Lock()

    def put_alone(response: S3Response) -> Any:
        # moto looks whether an object exists and then writes it: of two at once both would be the first.
        with one_at_a_time:
            return put(response)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(S3Response, "put_object", put_alone)
        moto = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
        moto.start()
        host, port = moto.get_host_and_port()
        yield f"http://{host}:{port}"
        moto.stop()


@pytest.fixture
def bucket(server: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    client = boto3.client(
        "s3",
        endpoint_url=server,
        region_name="eu-central-1",
        config=Config(s3={"addressing_style": "path"}),
    )
    client.create_bucket(
        Bucket="releases", CreateBucketConfiguration={"LocationConstraint": "eu-central-1"}
    )
    yield client
    for each in client.list_objects_v2(Bucket="releases").get("Contents", []):
        client.delete_object(Bucket="releases", Key=each["Key"])
    client.delete_bucket(Bucket="releases")
    client.close()


def test_an_object_has_its_bytes_its_type_and_its_cache_header(server: str, bucket: Any) -> None:
    objects = Objects(bucket="releases", endpoint=server, region="eu-central-1")
    for content in (b'{"old": 1}', b'{ "new":1 }'):
        objects.save(NAME, ContentFile(content))
        objects.save(f"{NAME}.minisig", ContentFile(b"signature"))
    head = bucket.head_object(Bucket="releases", Key=NAME)
    assert head["CacheControl"] == POINTER_CACHE
    assert head["ContentType"] == "application/json"
    assert bucket.get_object(Bucket="releases", Key=NAME)["Body"].read() == b'{ "new":1 }'
    signature = bucket.head_object(Bucket="releases", Key=f"{NAME}.minisig")
    assert (signature["CacheControl"], signature["ContentType"]) == (POINTER_CACHE, "text/plain")


def test_any_http_client_sees_the_cache_header(server: str, bucket: Any) -> None:
    Objects(bucket="releases", endpoint=server, region="eu-central-1").save(
        NAME, ContentFile(b"{}")
    )
    bucket.put_object_acl(Bucket="releases", Key=NAME, ACL="public-read")
    with requests.head(f"{server}/releases/{NAME}", timeout=30) as response:
        assert response.status_code == 200
        assert response.headers["Cache-Control"] == POINTER_CACHE


def test_a_prefix_of_the_bucket_is_kept(server: str, bucket: Any) -> None:
    objects = Objects(bucket="releases", prefix="eu/live", endpoint=server, region="eu-central-1")
    objects.save(NAME, ContentFile(b"{}"))
    listed = bucket.list_objects_v2(Bucket="releases")["Contents"]
    assert [each["Key"] for each in listed] == [f"eu/live/{NAME}"]


@pytest.mark.django_db
def test_a_publish_lands_in_the_bucket(
    server: str, bucket: Any, settings: Settings, pipeline: Pipeline
) -> None:
    options = {"bucket": "releases", "endpoint": server, "region": "eu-central-1"}
    settings.STORAGES = {
        **settings.STORAGES,
        "default": {"BACKEND": "releases.delivery.object_storage.Objects", "OPTIONS": options},
    }
    release = pipeline.release("1.0.0")
    assert pipeline.publish(release).created
    stored = bucket.get_object(Bucket="releases", Key=NAME)
    assert (stored["Body"].read(), stored["CacheControl"]) == (release.body, POINTER_CACHE)
    signature = bucket.get_object(Bucket="releases", Key=f"{NAME}.minisig")["Body"].read()
    assert base64.b64encode(signature).decode() == release.signature


@pytest.mark.parametrize("wrong", [{"bucket": "missing"}, {"endpoint": "http://127.0.0.1:9"}])
def test_a_server_that_does_not_give_what_it_has_is_a_503(
    server: str, bucket: Any, wrong: dict[str, str]
) -> None:
    options = {"bucket": "releases", "endpoint": server, "region": "eu-central-1", **wrong}
    with pytest.raises(StorageUnavailable):
        Objects(**options).content(NAME)


@pytest.mark.parametrize("wrong", [{"bucket": "missing"}, {"endpoint": "http://127.0.0.1:9"}])
def test_a_server_that_does_not_take_it_is_a_503(
    server: str, bucket: Any, wrong: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"bucket": "releases", "endpoint": server, "region": "eu-central-1", **wrong}
    with pytest.raises(StorageUnavailable):
        Objects(**options).save(NAME, ContentFile(b"{}"))


def test_a_server_that_breaks_off_is_a_503(bucket: Any) -> None:
    def broken(connection: socket) -> None:
        while (asked := connection.recv(65536)) and b"\r\n\r\n" not in asked:
            pass
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nonly this")
        connection.close()

    def serve() -> None:
        with suppress(OSError):
            while True:
                broken(listening.accept()[0])

    with create_server(("127.0.0.1", 0)) as listening:
        thread = Thread(target=serve, daemon=True)
        thread.start()
        address = f"http://127.0.0.1:{listening.getsockname()[1]}"
        with pytest.raises(StorageUnavailable):
            Objects(bucket="releases", endpoint=address, region="eu-central-1").content(NAME)
