"""The demo release: what a new user publishes first is what the service takes and shells verify."""

import base64
import json
import time
from pathlib import Path

import pytest
from django.utils import timezone
from pytest_django.fixtures import Settings

from accounts.audit import Actor
from releases.manifests.minisign import PublicKey
from releases.pipeline.submissions import Submission
from releases.publishing import publish
from tests.standins.cdn import running_cdn
from tests.tools import Unready, environment
from tests.tools.minisign import key_pair
from tests.tools.release import build, main


@pytest.mark.full
@pytest.mark.django_db
def test_a_demo_release_is_published_as_it_is_built(tmp_path: Path, settings: Settings) -> None:
    line = key_pair(tmp_path, "update")
    settings.UPDATE_PUBLIC_KEY = base64.b64decode(line)
    settings.PUBLISH_PLATFORMS = ["darwin-aarch64", "windows-x86_64"]
    files = {"BACKEND": "releases.delivery.storage.Files"}
    files["OPTIONS"] = {"location": str(tmp_path / "storage")}  # type: ignore[assignment]
    settings.STORAGES = {**settings.STORAGES, "default": files}
    with running_cdn() as cdn:
        cdn.origin = tmp_path / "storage"
        settings.CDN_URL, settings.CDN_PURGE = cdn.url, "purge"
        for version in ("1.0.0", "1.1.0"):
            at = int(time.time()) + (version == "1.1.0")
            out = build(tmp_path, version=version, channel="stable", cdn=cdn.url, at=at)
            body = (out / "latest.json").read_bytes()
            signature = base64.b64encode((out / "latest.json.minisig").read_bytes()).decode()
            submission = Submission(
                channel="stable", body=body, document=json.loads(body), signature=signature
            )
            done = publish(submission=submission, by=Actor(name="demo"), now=timezone.now())
            assert (done.version, done.created, done.purged) == (version, True, True)
    assert PublicKey.of(settings.UPDATE_PUBLIC_KEY).name


def test_the_release_needs_a_local_run_with_its_own_cdn(tmp_path: Path) -> None:
    environment.write(tmp_path / "env", {"BASE_URL": "http://127.0.0.1:8000"})
    with pytest.raises(Unready):
        main(["1.0.0", "--folder", str(tmp_path)])
