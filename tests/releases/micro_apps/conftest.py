"""An app pipeline: bundles, their key, and a storage of its own."""

import gzip
import io
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count
from pathlib import Path

import pytest
from pytest_django.fixtures import Settings

from accounts.audit import Actor
from releases.micro_apps.publishing import PublishedApp, publish_app
from releases.models import AppVersion
from tests.releases.signing import Signer

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
BY = Actor.command("publish_app")


def archive(*members: tuple[tarfile.TarInfo, bytes]) -> bytes:
    """A gzipped tar archive of these."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for info, content in members:
            info.size = len(content) if info.isfile() else 0
            tar.addfile(info, io.BytesIO(content))
    # Without the time of its making, so that the same members are the same bytes.
    return gzip.compress(out.getvalue(), mtime=0)


def file(name: str, content: bytes = b"x", **attributes: object) -> tuple[tarfile.TarInfo, bytes]:
    """A member; its attributes are those of ``TarInfo``."""
    info = tarfile.TarInfo(name)
    for key, value in attributes.items():
        setattr(info, key, value)
    return info, content


@dataclass
class Apps:
    """Publishes versions of apps whose bundles say which they are."""

    signer: Signer
    files: Path
    folder: Path
    seconds: Iterator[int] = field(default_factory=lambda: count(1))

    def bundle(
        self, version: str, content: bytes | None = None, *, slug: str = "notes"
    ) -> tuple[Path, Path]:
        """A bundle and its signature, as files."""
        content = content if content is not None else archive(file("index.html", version.encode()))
        bundle = self.folder / "bundle.tar.gz"
        bundle.write_bytes(content)
        signature = self.folder / "bundle.tar.gz.minisig"
        signature.write_bytes(
            self.signer.app(content, app=slug, version=version, at=next(self.seconds))
        )
        return bundle, signature

    def publish(
        self, version: str = "1.0.0", *, slug: str = "notes", content: bytes | None = None
    ) -> PublishedApp:
        bundle, signature = self.bundle(version, content, slug=slug)
        return publish_app(
            slug=slug, version=version, bundle=bundle, signature=signature, by=BY, now=NOW
        )

    def version(self, version: str = "1.0.0", *, slug: str = "notes") -> AppVersion:
        return self.publish(version, slug=slug).version

    def stored(self) -> list[str]:
        """The paths that storage has."""
        if not self.files.exists():
            return []
        return sorted(str(p.relative_to(self.files)) for p in self.files.rglob("*") if p.is_file())


@pytest.fixture
def apps(settings: Settings, tmp_path: Path) -> Apps:
    signer, files, folder = Signer(), tmp_path / "published", tmp_path / "built"
    folder.mkdir()
    settings.APPS_PUBLIC_KEY = signer.public
    settings.CDN_URL = "https://cdn.shell.test"
    settings.STORAGES = {
        **settings.STORAGES,
        "default": {
            "BACKEND": "releases.delivery.storage.Files",
            "OPTIONS": {"location": str(files)},
        },
    }
    return Apps(signer, files, folder)
