"""An app from its pipeline to a shell: published by command on one side, asked for over HTTP on the other."""

import base64
import runpy
import subprocess
import time
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import pytest
import requests

from accounts.audit import Actor
from licensing.licences import set_terms
from licensing.models import Licence
from tests.releases.micro_apps.conftest import archive, file
from tests.releases.signing import Signer, encoded
from tests.served.conftest import Ground, SignIn
from tests.served.people import Person
from tests.served.service import Service, running_service
from tests.served.shell import Shell
from tests.standins.cdn import running_cdn

# One for each test: services share a database, where a version keeps its first signature.
APPS = ["notes", "proved", "signed", "tauri"]
ROOT = Path(__file__).resolve().parent.parent.parent
TAURI = ROOT / "tests" / "wire" / "node_modules" / ".bin" / "tauri"


@pytest.fixture
def entitled(person: Person, database, now) -> Person:
    with database.rows():
        licence = Licence.objects.get(client__users__email=person.email)
        set_terms(
            licence_id=licence.pk,
            plan=licence.plan,
            entitlements=APPS,
            reason="x",
            by=Actor(name="test"),
            now=now,
        )
    return person


class Published:
    """A service whose storage is a folder, and an app key of some make."""

    def __init__(self, service: Service, storage: Path, folder: Path) -> None:
        self.service, self.storage, self.folder = service, storage, folder

    def publish(self, version: str, signature: Path, app: str = "notes") -> str:
        return self.service.manage(
            "publish_app", app, version, str(self.folder / "bundle.tar.gz"), str(signature)
        )


def serving(ground: Ground, tmp_path: Path, public: str, **variables: str) -> Iterator[Published]:
    storage, folder = tmp_path / "storage", tmp_path / "built"
    folder.mkdir(exist_ok=True)
    (folder / "bundle.tar.gz").write_bytes(archive(file("index.html", b"<!doctype html>")))
    own = {"APPS_PUBLIC_KEY": public, "STORAGE_URL": storage.as_uri(), **variables}
    with running_service(tmp_path, {**ground.environ, **own}) as service:
        yield Published(service, storage, folder)


def manifest(shell: Shell, channel: str, app: str = "notes") -> requests.Response:
    return shell.get(f"/v1/apps/{app}/manifest?channel={channel}")


def verified(answer: dict[str, str], storage: Path, folder: Path, public: Path) -> None:
    """As a shell would: hash and signature of what lies at the address, by minisign itself."""
    path = storage / answer["url"].partition("/apps/")[2].join(["apps/", ""])
    assert sha256(path.read_bytes()).hexdigest() == answer["sha256"]
    signature = folder / "served.minisig"
    signature.write_bytes(base64.b64decode(answer["sig"]))
    subprocess.run(
        ["minisign", "-V", "-m", path, "-x", signature, "-p", public],
        check=True,
        capture_output=True,
    )


@pytest.mark.full
def test_a_published_version_is_offered_and_never_replaced(
    ground: Ground, tmp_path: Path, entitled: Person, sign_in: SignIn
) -> None:
    signer = Signer()
    for place in serving(ground, tmp_path, base64.b64encode(signer.public).decode()):
        content = (place.folder / "bundle.tar.gz").read_bytes()
        signature = place.folder / "bundle.tar.gz.minisig"
        signature.write_bytes(signer.app(content, app="notes", version="1.0.0"))
        assert "published" in place.publish("1.0.0", signature)
        assert "was there already" in place.publish("1.0.0", signature)
        shell = sign_in(place.service, entitled)
        answer = manifest(shell, "latest")
        assert answer.status_code == 200, answer.text
        assert answer.json()["version"] == "1.0.0"
        assert manifest(shell, "stable").status_code == 404
        again = shell.get(
            "/v1/apps/notes/manifest?channel=latest",
            headers={"If-None-Match": answer.headers["ETag"]},
        )
        assert (again.status_code, again.content) == (304, b"")


def test_the_documented_shell_installs_what_is_proved_and_nothing_else(
    ground: Ground, tmp_path: Path, entitled: Person, sign_in: SignIn
) -> None:
    documented = runpy.run_path(str(ROOT / "docs" / "examples" / "python" / "bundle.py"))
    signer, other, refused = Signer(), Signer(), documented["Refused"]
    key, apps = base64.b64encode(signer.public).decode(), tmp_path / "apps"
    with running_cdn(origin=tmp_path / "storage") as cdn:
        for place in serving(ground, tmp_path, key, CDN_URL=cdn.url):
            content = (place.folder / "bundle.tar.gz").read_bytes()
            signature = place.folder / "bundle.tar.gz.minisig"
            signature.write_bytes(signer.app(content, app="proved", version="1.0.0"))
            assert "published" in place.publish("1.0.0", signature, "proved")
            offered = manifest(sign_in(place.service, entitled), "latest", "proved").json()
        installed = documented["install"](offered, "proved", key, apps)
        again = documented["install"](offered, "proved", key, apps)
        assert (again / "index.html").read_bytes() == b"<!doctype html>"
        assert list(again.parent.iterdir()) == [again] == [installed]
        stolen = {
            "another app": signer.app(content, app="mail", version="1.0.0"),
            "an old version": signer.app(content, app="proved", version="0.9.0"),
            "another key": other.app(content, app="proved", version="1.0.0"),
            "other bytes": signer.app(b"others", app="proved", version="1.0.0"),
            "no signature": b"none",
        }
        forged = {name: {**offered, "sig": encoded(file)} for name, file in stolen.items()}
        forged["another hash"] = {**offered, "sha256": "0" * 64}
        for name, given in forged.items():
            with pytest.raises(refused):
                documented["install"](given, "proved", key, tmp_path / name)
            assert not (tmp_path / name).exists()


@pytest.mark.wire
def test_a_version_that_minisign_signs_is_published_and_verified_by_it_as_served(
    ground: Ground, tmp_path: Path, entitled: Person, sign_in: SignIn
) -> None:
    folder = tmp_path / "built"
    folder.mkdir()
    secret, public = folder / "apps.key", folder / "apps.pub"
    subprocess.run(
        ["minisign", "-G", "-W", "-p", public, "-s", secret], check=True, capture_output=True
    )
    for place in serving(ground, tmp_path, public.read_text().splitlines()[1]):
        signature = minisign(secret, folder / "bundle.tar.gz", "signed")
        place.publish("1.0.0", signature, "signed")
        answer = manifest(sign_in(place.service, entitled), "latest", "signed").json()
        verified(answer, place.storage, folder, public)


@pytest.mark.wire
def test_a_key_that_tauri_made_signs_by_minisign(
    ground: Ground, tmp_path: Path, entitled: Person, sign_in: SignIn
) -> None:
    folder = tmp_path / "built"
    folder.mkdir()
    secret = folder / "apps.key"
    tauri(["signer", "generate", "-w", str(secret), "-p", "a password", "--ci"], folder)
    public = secret.with_suffix(".key.pub").read_text().strip()
    plain = folder / "apps.minisign.key"
    plain.write_bytes(base64.b64decode(secret.read_text()))
    for place in serving(ground, tmp_path, public):
        signature = minisign(plain, folder / "bundle.tar.gz", "tauri", password="a password\n")
        # As Tauri's signer writes its files.
        signature.write_bytes(base64.b64encode(signature.read_bytes()))
        place.publish("1.0.0", signature, "tauri")
        answer = manifest(sign_in(place.service, entitled), "latest", "tauri").json()
        (folder / "apps.pub").write_bytes(base64.b64decode(public))
        verified(answer, place.storage, folder, folder / "apps.pub")


def minisign(secret: Path, bundle: Path, app: str, *, password: str = "") -> Path:
    """Signs as docs/operating.md describes."""
    comment = f"timestamp:{int(time.time())}\tfile:bundle.tar.gz\tapp:{app}\tversion:1.0.0"
    subprocess.run(
        ["minisign", "-S", "-s", secret, "-m", bundle, "-t", comment],
        check=True,
        capture_output=True,
        input=password,
        text=True,
    )
    return bundle.with_name("bundle.tar.gz.minisig")


def tauri(arguments: list[str], folder: Path) -> None:
    done = subprocess.run(
        [TAURI, *arguments], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
