"""The demo key pairs: in minisign's form and in Tauri's, made once."""

import base64
import os
import shutil
import stat
import subprocess
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from releases.setting_readers import minisign_key
from tests.tools.folders import ROOT
from tests.tools.minisign import key_pair, tauri_public_key


def test_a_pair_is_made_once_and_its_secret_half_is_closed(tmp_path: Path) -> None:
    line = key_pair(tmp_path, "update")
    (tmp_path / "update.pub").unlink()
    assert key_pair(tmp_path, "update") == line
    assert (tmp_path / "update.pub").read_text().splitlines()[1] == line
    for name in ("update.key", "update.tauri.key"):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600
    assert key_pair(tmp_path, "apps") != line


def test_the_halves_belong_together(tmp_path: Path) -> None:
    public = base64.b64decode(key_pair(tmp_path, "update"))
    secret = base64.b64decode((tmp_path / "update.key").read_text().splitlines()[1])
    assert (len(public), len(secret)) == (42, 158)
    assert (public[:2], secret[:6]) == (b"Ed", b"Ed\0\0B2")
    assert public[2:10] == secret[54:62]
    signature = Ed25519PrivateKey.from_private_bytes(secret[62:94]).sign(b"release")
    Ed25519PublicKey.from_public_bytes(public[10:]).verify(signature, b"release")


def test_tauris_form_is_of_the_same_pair(tmp_path: Path) -> None:
    line = key_pair(tmp_path, "update")
    text = tauri_public_key(tmp_path, "update")
    assert base64.b64decode(text) == (tmp_path / "update.pub").read_bytes()
    assert minisign_key(text) == base64.b64decode(line)
    before = (tmp_path / "update.tauri.key").read_bytes()
    assert key_pair(tmp_path, "update") == line
    assert (tmp_path / "update.tauri.key").read_bytes() == before
    (tmp_path / "update.key").unlink()
    assert key_pair(tmp_path, "update") != line
    assert (tmp_path / "update.tauri.key").read_bytes() != before


@pytest.mark.wire
def test_tauris_signer_signs_with_it_and_minisign_verifies(tmp_path: Path) -> None:
    text = tauri_public_key(tmp_path, "update")
    file = tmp_path / "shell.tar.gz"
    file.write_bytes(b"an artifact")
    tauri = [shutil.which("node") or "node", "tests/wire/node_modules/@tauri-apps/cli/tauri.js"]
    sign = [*tauri, "signer", "sign", "-f", str(tmp_path / "update.tauri.key"), str(file)]
    environ = {**os.environ, "CI": "true"}
    subprocess.run(
        [*sign, "--app-version", "1.2.3"],
        check=True,
        cwd=ROOT,
        env=environ,
        stdin=subprocess.DEVNULL,
        capture_output=True,
    )
    signature = base64.b64decode((tmp_path / "shell.tar.gz.sig").read_bytes())
    (tmp_path / "shell.tar.gz.minisig").write_bytes(signature)
    (tmp_path / "given.pub").write_bytes(base64.b64decode(text))
    minisign = shutil.which("minisign") or "minisign"
    verify = [minisign, "-V", "-m", str(file), "-p", str(tmp_path / "given.pub")]
    done = subprocess.run(verify, check=True, capture_output=True)
    assert b"file:shell.tar.gz\tversion:1.2.3" in done.stdout


@pytest.mark.wire
def test_minisign_itself_signs_and_verifies_with_it(tmp_path: Path) -> None:
    line = key_pair(tmp_path, "update")
    file = tmp_path / "latest.json"
    file.write_text("{}")
    minisign = shutil.which("minisign") or "minisign"
    sign = [minisign, "-S", "-s", str(tmp_path / "update.key"), "-m", str(file)]
    subprocess.run(sign, check=True, stdin=subprocess.DEVNULL)
    verify = [minisign, "-V", "-m", str(file)]
    subprocess.run([*verify, "-P", line], check=True)
    subprocess.run([*verify, "-p", str(tmp_path / "update.pub")], check=True)
    file.write_text("{ }")
    assert subprocess.run([*verify, "-P", line], check=False).returncode != 0
