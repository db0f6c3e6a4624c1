"""nginx as the CDN, asked all the time: once a publish has said that it is purged, nobody reads the old release."""

import base64
import json
import shutil
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from os import environ
from pathlib import Path
from typing import Any

import pytest
import requests

from releases.delivery.storage import IMMUTABLE_CACHE, POINTER_CACHE
from tests.releases.signing import Signer, encoded
from tests.served.conftest import Ground
from tests.served.service import HOST, Service, running_service
from tests.tools.children import Program
from tests.tools.ports import free
from tests.tools.wire import PATH

pytestmark = pytest.mark.wire

# The edge keeps what it may, and on PURGE reads the origin anew; a file that is gone takes the old one's place.
CONF = """
daemon off;
master_process off;
pid nginx.pid;
error_log error.log;
events {{ worker_connections 1024; }}
http {{
    access_log off;
    client_body_temp_path body;
    proxy_temp_path proxy;
    fastcgi_temp_path fastcgi;
    uwsgi_temp_path uwsgi;
    scgi_temp_path scgi;
    proxy_cache_path kept keys_zone=edge:1m inactive=1h;

    server {{
        listen {host}:{edge};
        location / {{
            error_page 418 = @purge;
            if ($request_method = PURGE) {{ return 418; }}
            proxy_pass http://{host}:{origin};
            proxy_cache edge;
            proxy_cache_key $uri;
            proxy_cache_lock on;
            proxy_cache_valid 404 1s;
            proxy_cache_bypass $http_x_refresh;
            add_header X-Cache $upstream_cache_status always;
        }}
        location @purge {{
            proxy_method GET;
            proxy_set_header X-Refresh 1;
            proxy_pass http://{host}:{edge};
        }}
    }}
    server {{
        listen {host}:{origin};
        root {storage};
        location ~ /latest\\.json(\\.minisig)?$ {{ add_header Cache-Control "{pointer}"; }}
        location / {{ add_header Cache-Control "{immutable}"; }}
    }}
}}
"""
READERS = 4
PUBLISHED = 8
# Some time in the past.
SIGNED_FROM = 1_763_000_000
PLATFORMS = ("darwin-aarch64", "windows-x86_64")


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """A service, the CDN before its storage, and a pipeline's key."""

    service: Service
    cdn: str
    storage: Path
    signer: Signer
    secret: str
    numbers: Iterator[int] = field(default_factory=partial(count, 1))

    def release(self) -> tuple[bytes, str]:
        """A manifest and its signature, newer than those before; its artifacts lie in storage."""
        number, platforms = next(self.numbers), {}
        version = f"1.{number}.0"
        for platform in PLATFORMS:
            name = f"shell-{platform}.tar.gz"
            content = f"{platform} {version}".encode() * 500
            file = self.storage / "shell" / version / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
            platforms[platform] = {
                "url": f"{self.cdn}/shell/{version}/{name}",
                "signature": self.signer.artifact(content, file=name, version=version),
            }
        document = {
            "version": version,
            "channel": "stable",
            "pub_date": "2026-11-20T12:00:00Z",
            "platforms": platforms,
        }
        body = json.dumps(document).encode()
        return body, self.signer.manifest(body, SIGNED_FROM + number)

    def publish(self, body: bytes, signature: str) -> dict[str, Any]:
        answer = requests.post(
            f"{self.service.url}/v1/internal/manifest/publish?ch=stable",
            data=body,
            headers={
                "Authorization": f"Bearer {self.secret}",
                "Content-Type": "application/json",
                "X-Manifest-Signature": signature,
            },
            timeout=60,
        )
        assert answer.status_code in {200, 201}, answer.text
        done: dict[str, Any] = answer.json()
        return done


@pytest.fixture(scope="module")
def published(ground: Ground) -> Iterator[Published]:
    folder = ground.folder / "edge"
    storage = folder / "storage"
    storage.mkdir(parents=True)
    edge, origin = free(HOST, 0), free(HOST, 0)
    conf = CONF.format(
        host=HOST,
        edge=edge,
        origin=origin,
        storage=storage,
        pointer=POINTER_CACHE,
        immutable=IMMUTABLE_CACHE,
    )
    (folder / "nginx.conf").write_text(conf)
    found = shutil.which("nginx", path=PATH)
    assert found, "nginx is not installed"
    signer, cdn = Signer(), f"http://{HOST}:{edge}"
    nginx = Program(
        name="nginx",
        command=[found, "-p", str(folder), "-c", "nginx.conf", "-e", "error.log"],
        log=folder / "output.log",
        environ=environ,
    ).start()
    settings = {
        "CDN_URL": cdn,
        "CDN_PURGE": "purge",
        "STORAGE_URL": storage.as_uri(),
        "UPDATE_PUBLIC_KEY": base64.b64encode(signer.public).decode(),
        "PUBLISH_SECRETS": "a-secret-of-this-one-pipeline-alone",
    }
    try:
        with running_service(ground.folder, {**ground.environ, **settings}) as service:
            yield Published(
                service=service,
                cdn=cdn,
                storage=storage,
                signer=signer,
                secret=settings["PUBLISH_SECRETS"],
            )
    finally:
        nginx.stop()


@dataclass(slots=True)
class Read:
    """The result of a read, and the time at which it began."""

    began: float
    path: str
    content: bytes


def read_on(cdn: str, path: str, reads: list[Read], done: threading.Event) -> None:
    with requests.Session() as session:
        while not done.is_set():
            began = time.monotonic()
            answer = session.get(f"{cdn}{path}", timeout=30)
            if answer.status_code == 200:
                reads.append(Read(began, path, answer.content))


@pytest.mark.wall_time
def test_no_reader_gets_the_old_release_after_the_purge(published: Published) -> None:
    path = "/shell/stable/latest.json"
    reads: list[Read] = []
    done = threading.Event()
    readers = [
        threading.Thread(target=read_on, args=(published.cdn, each, reads, done))
        for each in [path, f"{path}.minisig"] * (READERS // 2)
    ]
    history: list[tuple[float, bytes, bytes]] = []
    for reader in readers:
        reader.start()
    try:
        for _ in range(PUBLISHED):
            body, signature = published.release()
            answer = published.publish(body, signature)
            assert answer["purged"] is True, answer
            history.append((time.monotonic(), body, base64.b64decode(signature)))
            seen = len(reads)
            deadline = time.monotonic() + 60
            while len(reads) < seen + 50 and time.monotonic() < deadline:
                time.sleep(0.01)
    finally:
        done.set()
        for reader in readers:
            reader.join()
    assert len(reads) > PUBLISHED * 50
    wrong = [read for read in reads if read.content in _over(history, read)]
    assert wrong == []
    # It was a cache that was asked.
    answer = requests.get(f"{published.cdn}{path}", timeout=30)
    assert (answer.headers["X-Cache"], answer.headers["Cache-Control"]) == ("HIT", POINTER_CACHE)


def _over(history: list[tuple[float, bytes, bytes]], read: Read) -> list[bytes]:
    """Returns the contents that no read from then on may get."""
    member = 2 if read.path.endswith(".minisig") else 1
    purged = [entry for entry in history if entry[0] < read.began]
    return [entry[member] for entry in purged[:-1]]


def test_the_published_release_is_the_one_offered_and_verifies(published: Published) -> None:
    body, signature = published.release()
    assert published.publish(body, signature)["purged"] is True
    again = published.publish(body, signature)
    assert again["purged"] is True
    offered = requests.get(
        f"{published.service.url}/v1/updates/manifest?ch=stable&os=darwin&current_version=1.0.0",
        timeout=30,
    )
    assert (offered.content, offered.headers["X-Manifest-Signature"]) == (body, signature)
    at_the_cdn = requests.get(f"{published.cdn}/shell/stable/latest.json.minisig", timeout=30)
    assert encoded(at_the_cdn.content) == signature
