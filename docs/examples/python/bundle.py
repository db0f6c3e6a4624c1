"""A micro app's bundle: fetched, proved and unpacked. Needs `requests` and `cryptography`.

``public_key`` is the last line of `apps.pub`, compiled into the shell: neither the service nor the CDN can replace it.
"""

import base64
import hashlib
import io
import tarfile
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import requests
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

LIMIT_BYTES = 256 * 2**20


class Refused(Exception):
    """The bundle is not what the key's holder signed for this app: keep the version that is installed."""


def install(manifest: dict[str, Any], slug: str, public_key: str, apps: Path) -> Path:
    """Unpacks what `/v1/apps/{slug}/manifest` offers into a folder of its version."""
    with requests.get(manifest["url"], timeout=60, allow_redirects=False, stream=True) as answer:
        answer.raise_for_status()
        content = answer.raw.read(LIMIT_BYTES)
    prove(content, manifest, slug, public_key)
    target = apps / slug / str(manifest["version"])
    target.parent.mkdir(parents=True, exist_ok=True)
    # Aside first, so that a folder that is there is whole.
    with TemporaryDirectory(dir=target.parent) as aside:
        with tarfile.open(fileobj=io.BytesIO(content), mode="r:gz") as archive:
            # Nothing outside of the folder, no links out of it, no devices.
            archive.extractall(Path(aside, "app"), filter="data")
        try:
            Path(aside, "app").rename(target)
        except OSError:
            # A version never changes: one that was there, or came meanwhile, is this one.
            if not target.is_dir():
                raise
    return target


def prove(content: bytes, manifest: dict[str, Any], slug: str, public_key: str) -> None:
    """Raises ``Refused`` unless the bytes, the app and the version are the signer's."""
    if hashlib.sha256(content).hexdigest() != manifest["sha256"]:
        raise Refused("Other bytes than the manifest's.")
    key = base64.b64decode(public_key)
    try:
        _, line, trusted, closing, *_ = base64.b64decode(manifest["sig"]).decode().split("\n")
        signed, comment = base64.b64decode(line), trusted.removeprefix("trusted comment: ")
        verifier = Ed25519PublicKey.from_public_bytes(key[10:])
        # "ED" is a signature of the hash; the number of the key follows.
        if signed[:10] != b"ED" + key[2:10]:
            raise Refused("Signed by another key.")
        verifier.verify(signed[10:], hashlib.blake2b(content).digest())
        verifier.verify(base64.b64decode(closing), signed[10:] + comment.encode())
    except (ValueError, InvalidSignature) as error:
        raise Refused("Not a signature of these bytes.") from error
    # Without this, another app's bundle would pass, and an old version under a new number.
    claims = dict(field.partition(":")[::2] for field in comment.split("\t"))
    if (claims.get("app"), claims.get("version")) != (slug, manifest["version"]):
        raise Refused("Signed for another app or version.")
