"""A release pipeline with its key, its CDN and a storage of its own."""

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pytest_django.fixtures import Settings
from rest_framework.test import APIClient

from accounts.audit import Actor
from config.platform.env.secret_files import Secret
from releases.pipeline.submissions import Submission
from releases.publishing import PublishedRelease, publish
from tests.releases.signing import Signer
from tests.standins.cdn import Cdn, running_cdn

SECRET = "a secret of the pipeline"
# Long ago, so that what was signed around it is in the past of the real clock too.
NOW = datetime(2025, 11, 20, 12, tzinfo=UTC)
PIPELINE = Actor(name="release pipeline (secret 1)", address="192.0.2.7", request_id="request-1")
PLATFORMS = ("darwin-aarch64", "windows-x86_64")


@dataclass
class Release:
    """A manifest, ready to be sent."""

    body: bytes
    signature: str

    @property
    def document(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self.body)
        return document


@dataclass
class Pipeline:
    """Builds releases, uploads their artifacts and publishes them, by the rule or over HTTP."""

    signer: Signer
    cdn: Cdn
    files: Path
    signed_at: int = field(default=int(NOW.timestamp()) - 10_000)

    def document(self, version: str = "1.0.0", channel: str = "stable") -> dict[str, Any]:
        """A manifest whose artifacts lie at the CDN, signed."""
        return {
            "version": version,
            "channel": channel,
            "pub_date": "2026-11-20T12:00:00Z",
            "notes": "What is new.",
            "platforms": {each: self.upload(each, version) for each in PLATFORMS},
        }

    def upload(self, platform: str, version: str, content: bytes | None = None) -> dict[str, str]:
        """Puts an artifact to the CDN; gives its entry."""
        content = content or f"{platform} {version} ".encode() * 1000
        name = f"shell-{platform}.tar.gz"
        self.cdn.files[f"/shell/{version}/{name}"] = content
        return {
            "url": f"{self.cdn.url}/shell/{version}/{name}",
            "signature": self.signer.artifact(content, file=name, version=version),
        }

    def signed(self, document: dict[str, Any], *, at: int | None = None) -> Release:
        """A document as bytes with its signature; each is signed a second after the last."""
        return self.signed_bytes(json.dumps(document, indent=1).encode(), at=at)

    def signed_bytes(self, body: bytes, *, at: int | None = None) -> Release:
        self.signed_at += 1
        return Release(body, self.signer.manifest(body, at or self.signed_at))

    def release(self, version: str = "1.0.0", channel: str = "stable") -> Release:
        return self.signed(self.document(version, channel))

    def publish(
        self, release: Release, channel: str = "stable", **options: Any
    ) -> PublishedRelease:
        return publish(
            submission=Submission(
                channel=channel,
                body=release.body,
                document=release.document,
                signature=release.signature,
                **options,
            ),
            by=PIPELINE,
            now=NOW,
        )

    def post(self, release: Release, query: str = "ch=stable", secret: str = SECRET) -> Any:
        return APIClient().post(
            f"/v1/internal/manifest/publish?{query}",
            data=release.body,
            content_type="application/json",
            secure=True,
            headers={
                "Authorization": f"Bearer {secret}",
                "X-Manifest-Signature": release.signature,
            },
        )

    def stored(self, channel: str = "stable") -> tuple[bytes, bytes]:
        """Returns a channel's manifest and signature in storage."""
        manifest = self.files / "shell" / channel / "latest.json"
        return manifest.read_bytes(), manifest.with_name("latest.json.minisig").read_bytes()

    def nothing_stored(self) -> bool:
        return not self.files.exists() or not any(self.files.rglob("*.*"))


@pytest.fixture
def stop() -> Iterator[threading.Event]:
    """Ends answers that would never end."""
    event = threading.Event()
    yield event
    event.set()


@pytest.fixture
def cdn() -> Iterator[Cdn]:
    with running_cdn() as cdn:
        yield cdn


@pytest.fixture
def pipeline(cdn: Cdn, settings: Settings, tmp_path: Path) -> Pipeline:
    signer, files = Signer(), tmp_path / "published"
    settings.UPDATE_PUBLIC_KEY = signer.public
    settings.CDN_URL = cdn.url
    settings.PUBLISH_PLATFORMS = list(PLATFORMS)
    settings.PUBLISH_SECRETS = Secret("PUBLISH_SECRETS", SECRET)
    settings.RATE_LIMITS = {"publish.ip": "1000/m"}
    settings.STORAGES = {
        **settings.STORAGES,
        "default": {
            "BACKEND": "releases.delivery.storage.Files",
            "OPTIONS": {"location": str(files)},
        },
    }
    return Pipeline(signer, cdn, files)
