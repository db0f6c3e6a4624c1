"""A pipeline that publishes over the wire to a running service, and what that service has of a channel."""

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import requests

from releases.delivery.storage import pointer_path
from releases.models import Publication, ShellArtifact, ShellChannel, ShellRelease
from tests.releases.conftest import Pipeline, Release
from tests.served.database import Database

PUBLISH = "/v1/internal/manifest/publish"
SECRET = "a-secret-of-the-one-served-pipeline"


@dataclass
class ServedPipeline(Pipeline):
    """Publishes to `url` on `channel`; `files` is the folder of the service's storage."""

    url: str = ""
    channel: str = "stable"

    def environ(self) -> dict[str, str]:
        """Returns the variables of a service that takes this pipeline's releases."""
        return {
            "CDN_URL": self.cdn.url,
            "UPDATE_PUBLIC_KEY": base64.b64encode(self.signer.public).decode(),
            "STORAGE_URL": self.files.as_uri(),
            "PUBLISH_SECRETS": f"another-secret-of-another-pipeline,{SECRET}",
        }

    def manifest(self, version: str) -> dict[str, Any]:
        return self.document(version, self.channel)

    def made(self, version: str) -> Release:
        return self.signed(self.manifest(version))

    def post(self, release: Release, query: str = "", secret: str = SECRET) -> requests.Response:
        """A publish, on the pipeline's channel unless the query names another."""
        return self.send(
            release.body,
            query or f"ch={self.channel}",
            {
                "Authorization": f"Bearer {secret}",
                "Content-Type": "application/json",
                "X-Manifest-Signature": release.signature,
            },
        )

    def send(self, body: bytes, query: str, headers: Mapping[str, str]) -> requests.Response:
        return requests.post(f"{self.url}{PUBLISH}?{query}", data=body, headers=headers, timeout=60)

    def offered(self, channel: str = "") -> requests.Response:
        """Returns the offer to a shell."""
        address = f"{self.url}/v1/updates/manifest?ch={channel or self.channel}&os=darwin"
        return requests.get(address, timeout=60)

    def rows(self, database: Database) -> dict[str, Any]:
        """Returns the rows of releases, without the number of the last lease."""
        with database.rows():
            return {
                "releases": list(ShellRelease.objects.values().order_by("pk")),
                "artifacts": list(ShellArtifact.objects.values().order_by("pk")),
                "publications": list(Publication.objects.values().order_by("pk")),
                "channels": list(ShellChannel.objects.values("name", "leased_until")),
            }

    def objects(self) -> dict[str, tuple[bytes, int]]:
        """Returns the objects in storage and the times of their writes."""
        found = sorted(each for each in self.files.rglob("*") if each.is_file())
        return {str(each): (each.read_bytes(), each.stat().st_mtime_ns) for each in found}

    def pair(self) -> tuple[bytes, bytes]:
        """Returns the channel's manifest and signature in storage."""
        manifest = self.files / pointer_path(self.channel)
        return manifest.read_bytes(), Path(f"{manifest}.minisig").read_bytes()
