"""The demo key pairs: minisign's own format, made once."""

import base64
import shutil
import stat
import subprocess
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from config.local.minisign import key_pair


def test_a_pair_is_made_once_and_its_secret_half_is_closed(tmp_path: Path) -> None:
    line = key_pair(tmp_path, "update")
    (tmp_path / "update.pub").unlink()
    assert key_pair(tmp_path, "update") == line
    assert (tmp_path / "update.pub").read_text().splitlines()[1] == line
    assert stat.S_IMODE((tmp_path / "update.key").stat().st_mode) == 0o600
    assert key_pair(tmp_path, "apps") != line


def test_the_halves_belong_together(tmp_path: Path) -> None:
    public = base64.b64decode(key_pair(tmp_path, "update"))
    secret = base64.b64decode((tmp_path / "update.key").read_text().splitlines()[1])
    assert (len(public), len(secret)) == (42, 158)
    assert (public[:2], secret[:6]) == (b"Ed", b"Ed\0\0B2")
    assert public[2:10] == secret[54:62]
    signature = Ed25519PrivateKey.from_private_bytes(secret[62:94]).sign(b"release")
    Ed25519PublicKey.from_public_bytes(public[10:]).verify(signature, b"release")


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
