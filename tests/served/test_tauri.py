"""A release as it is made in earnest: signed by Tauri's own signer, published, served, and verified by minisign."""

import base64
import hashlib
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import requests
import yaml

from releases.delivery.storage import pointer_path
from tests.releases.issuer import AUDIENCE, REQUIRED, Issuer
from tests.served.conftest import Ground
from tests.served.releasing import PUBLISH, SECRET
from tests.served.service import Service, running_service
from tests.standins.cdn import Cdn, running_cdn
from tests.tools.folders import ROOT

pytestmark = pytest.mark.wire

TAURI = ROOT / "tests" / "wire" / "node_modules" / "@tauri-apps" / "cli" / "tauri.js"
PASSWORD = "a password of the pipeline"
PLATFORMS = ("darwin-aarch64", "windows-x86_64")
# Its own: other tests publish to the usual ones, and what they have published stays.
CHANNEL = "tauri"


@dataclass
class Workshop:
    """The workshop of releases: keys as `tauri signer generate` writes them, and the files of a build."""

    folder: Path

    def generate(self) -> None:
        self._tauri("generate", "-w", str(self.folder / "update.key"), "-p", PASSWORD)

    @property
    def public(self) -> str:
        """Returns the key for an app's configuration, byte for byte."""
        return (self.folder / "update.key.pub").read_text()

    def sign(self, file: Path, *options: str) -> str:
        """The text of the `.sig` file, byte for byte; in a second of its own, because a newer signature counts."""
        time.sleep(1 - time.time() % 1)
        key = ["-f", str(self.folder / "update.key"), "-p", PASSWORD]
        self._tauri("sign", *key, *options, str(file))
        return file.with_name(f"{file.name}.sig").read_text()

    def build(self, version: str, cdn: Cdn) -> dict[str, Any]:
        """The manifest of a build whose artifacts have been uploaded."""
        return {
            "version": version,
            "channel": CHANNEL,
            "pub_date": "2026-11-20T12:00:00Z",
            "platforms": {each: self._artifact(each, version, cdn) for each in PLATFORMS},
        }

    def _artifact(self, platform: str, version: str, cdn: Cdn) -> dict[str, str]:
        file = self.folder / f"Shell_{version}_{platform}.tar.gz"
        file.write_bytes(os.urandom(300_000))
        path = f"/shell/{platform}/{version}/{file.name}"
        cdn.files[path] = file.read_bytes()
        return {"url": f"{cdn.url}{path}", "signature": self.sign(file, "--app-version", version)}

    def verifies(self, content: bytes, signature: bytes) -> bool:
        """By Debian's minisign, from the public key that Tauri has written."""
        file, key = self.folder / "served", self.folder / "served.pub"
        file.write_bytes(content)
        file.with_name("served.minisig").write_bytes(signature)
        key.write_bytes(base64.b64decode(self.public))
        minisign = shutil.which("minisign") or "minisign"
        done = subprocess.run(
            [minisign, "-V", "-m", str(file), "-p", str(key)], check=False, capture_output=True
        )
        return done.returncode == 0

    def _tauri(self, *arguments: str) -> None:
        subprocess.run(
            [shutil.which("node") or "node", str(TAURI), "signer", *arguments],
            check=True,
            env={**os.environ, "CI": "true"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
        )


@pytest.fixture(scope="module")
def cdn() -> Iterator[Cdn]:
    with running_cdn() as cdn:
        yield cdn


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    workshop = Workshop(tmp_path_factory.mktemp("workshop"))
    workshop.generate()
    return workshop


@pytest.fixture(scope="module")
def publisher(ground: Ground, workshop: Workshop, cdn: Cdn) -> Iterator[Service]:
    environ = {
        **ground.environ,
        "CDN_URL": cdn.url,
        "UPDATE_PUBLIC_KEY": workshop.public,
        "STORAGE_URL": (workshop.folder / "storage").as_uri(),
        "PUBLISH_SECRETS": SECRET,
    }
    with running_service(ground.folder, environ) as service:
        yield service
        assert service.errors() == []


def published(
    service: Service, body: bytes, signature: str, options: str = ""
) -> requests.Response:
    headers = {
        "Authorization": f"Bearer {SECRET}",
        "Content-Type": "application/json",
        "X-Manifest-Signature": signature,
    }
    address = f"{service.url}{PUBLISH}?ch={CHANNEL}{options}"
    return requests.post(address, data=body, headers=headers, timeout=60)


def test_a_release_that_tauri_signs_is_published_served_and_verified_again_by_minisign(
    publisher: Service, workshop: Workshop, cdn: Cdn
) -> None:
    manifest = workshop.folder / "latest.json"
    manifest.write_text(json.dumps(workshop.build("1.4.2", cdn)))
    response = published(publisher, manifest.read_bytes(), workshop.sign(manifest))
    assert response.status_code == 201, response.text

    asked = f"{publisher.url}/v1/updates/manifest?ch={CHANNEL}&os=darwin&current_version=1.4.1"
    served = requests.get(asked, timeout=30)
    assert served.content == manifest.read_bytes()
    signature = base64.b64decode(served.headers["X-Manifest-Signature"])
    assert workshop.verifies(served.content, signature)
    stored = workshop.folder / "storage" / pointer_path(CHANNEL)
    beside = Path(f"{stored}.minisig").read_bytes()
    assert workshop.verifies(stored.read_bytes(), beside)
    for entry in served.json()["platforms"].values():
        artifact = requests.get(entry["url"], timeout=30).content
        assert workshop.verifies(artifact, base64.b64decode(entry["signature"]))
        assert not workshop.verifies(artifact[:-1], base64.b64decode(entry["signature"]))
    assert not workshop.verifies(served.content + b"\n", signature)


def test_a_release_for_a_share_reaches_its_shells_as_tauri_signed_it(
    publisher: Service, workshop: Workshop, cdn: Cdn
) -> None:
    asked = f"{publisher.url}/v1/updates/manifest?ch={CHANNEL}&os=darwin&current_version=1.4.2"
    stored = workshop.folder / "storage" / pointer_path(CHANNEL)
    before = stored.read_bytes() if stored.exists() else None
    manifest = workshop.folder / "latest.json"
    manifest.write_text(json.dumps(workshop.build("1.4.3", cdn)))
    body, signature = manifest.read_bytes(), workshop.sign(manifest)
    response = published(publisher, body, signature, "&share=50")
    assert (response.status_code, response.json()["share"]) == (201, 50)
    answers = [requests.get(f"{asked}&install_id=shell-{n}", timeout=30) for n in range(20)]
    # By what support computes.
    digests = (hashlib.sha256(f"1.4.3:shell-{n}".encode()).hexdigest() for n in range(20))
    places = [int(each[:8], 16) % 100 for each in digests]
    assert [each.content == body for each in answers] == [place < 50 for place in places]
    for each in answers:
        assert each.headers["Cache-Control"].startswith("private")
        if each.content == body:
            header = base64.b64decode(each.headers["X-Manifest-Signature"])
            assert workshop.verifies(each.content, header)
    assert requests.get(asked, timeout=30).content != body
    assert (stored.read_bytes() if stored.exists() else None) == before


def test_an_artifact_that_tauri_signed_without_its_version_is_refused(
    publisher: Service, workshop: Workshop, cdn: Cdn
) -> None:
    document = workshop.build("1.5.0", cdn)
    file = workshop.folder / "Shell_1.5.0_darwin-aarch64.tar.gz"
    document["platforms"]["darwin-aarch64"]["signature"] = workshop.sign(file)
    manifest = workshop.folder / "latest.json"
    manifest.write_text(json.dumps(document))
    response = published(publisher, manifest.read_bytes(), workshop.sign(manifest))
    assert response.status_code == 422
    assert [(each["pointer"], each["code"]) for each in response.json()["errors"]] == [
        ("/platforms/darwin-aarch64/signature", "version_not_signed")
    ]


def steps_of_the_recipe() -> list[dict[str, Any]]:
    """Returns the steps of the docs' jobs that sign and publish a release, without installing packages."""
    recipe = ROOT / "docs" / "examples" / "github" / "release.yaml"
    jobs = yaml.safe_load(recipe.read_text())["jobs"]
    steps = [step for job in ("sign", "publish") for step in jobs[job]["steps"]]
    return [step for step in steps if "run" in step and "name" in step]


def test_the_recipe_in_the_docs_publishes_by_an_identity_token(
    ground: Ground, workshop: Workshop, cdn: Cdn
) -> None:
    (workshop.folder / "dist").mkdir()
    (workshop.folder / "node_modules").symlink_to(TAURI.parents[2])
    for name in ("Shell.app.tar.gz", "Shell_1.6.0_x64-setup.exe"):
        file = workshop.folder / "dist" / name
        file.write_bytes(os.urandom(1000))
        cdn.files[f"/shell/1.6.0/{name}"] = file.read_bytes()
    with running_cdn() as host:
        issuer = Issuer(host)
        demanded = ",".join(f"{name}={value}" for name, value in REQUIRED.items())
        environ = {
            **ground.environ,
            "CDN_URL": cdn.url,
            "UPDATE_PUBLIC_KEY": workshop.public,
            "STORAGE_URL": (workshop.folder / "storage").as_uri(),
            "PUBLISH_OIDC_ISSUER": issuer.url,
            "PUBLISH_OIDC_AUDIENCE": AUDIENCE,
            "PUBLISH_OIDC_CLAIMS": demanded,
        }
        token = json.dumps({"value": issuer.token(datetime.now(UTC))}).encode()
        encoded = quote(AUDIENCE, safe="")
        # Older versions of curl write escapes in small letters.
        for each in (encoded, encoded.replace("%3A%2F%2F", "%3a%2f%2f")):
            host.files[f"/token?api-version=2&audience={each}"] = token
        with running_service(ground.folder, environ) as service:
            given = {
                "BASE_URL": service.url,
                "CDN_URL": cdn.url,
                "AUDIENCE": AUDIENCE,
                "CHANNEL": "recipe",
                "VERSION": "1.6.0",
                "ACTIONS_ID_TOKEN_REQUEST_TOKEN": "of the runner",
                "ACTIONS_ID_TOKEN_REQUEST_URL": f"{host.url}/token?api-version=2",
            }
            secrets = {
                "TAURI_SIGNING_PRIVATE_KEY": (workshop.folder / "update.key").read_text(),
                "TAURI_SIGNING_PRIVATE_KEY_PASSWORD": PASSWORD,
            }
            for step in steps_of_the_recipe():
                # As the docs hand them out: to the step that signs alone.
                theirs = {name: secrets[name] for name in step.get("env", ()) if name in secrets}
                done = subprocess.run(
                    ["bash", "-eo", "pipefail", "-c", step["run"]],
                    cwd=workshop.folder,
                    env={**os.environ, **given, **theirs, "CI": "true"},
                    stdin=subprocess.DEVNULL,
                    capture_output=True,
                    text=True,
                    check=False,
                )
                assert done.returncode == 0, done.stdout + done.stderr
            asked = f"{service.url}/v1/updates/manifest?ch=recipe&os=windows&arch=x86_64"
            served = requests.get(asked, timeout=30)
            assert served.content == (workshop.folder / "latest.json").read_bytes()
            signature = base64.b64decode(served.headers["X-Manifest-Signature"])
            assert workshop.verifies(served.content, signature)
