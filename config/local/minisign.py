"""A demo key pair in minisign's own file format, so that `minisign` and Tauri's signer take it as it is.

The secret key has no password: it signs nothing but what is tried on this machine.
"""

import base64
import hashlib
import os
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

ALGORITHM, NO_PASSWORD, CHECKSUM = b"Ed", b"\0\0", b"B2"
# Salt, operations and memory of the password's derivation, which there is none of.
DERIVATION = bytes(32 + 8 + 8)


def key_pair(folder: Path, name: str) -> str:
    """The public key as its bare base64 line; makes ``<name>.key`` (mode 600) and ``<name>.pub`` where missing."""
    secret = folder / f"{name}.key"
    if not secret.exists():
        _write(secret, "minisign secret key", _new_secret())
    number, public = _public_half(secret)
    line = base64.b64encode(ALGORITHM + number + public)
    _write(folder / f"{name}.pub", f"minisign public key {number[::-1].hex().upper()}", line)
    return line.decode()


def _new_secret() -> bytes:
    number, private = os.urandom(8), Ed25519PrivateKey.generate()
    pair = private.private_bytes_raw() + private.public_key().public_bytes_raw()
    checksum = hashlib.blake2b(ALGORITHM + number + pair, digest_size=32).digest()
    return base64.b64encode(
        ALGORITHM + NO_PASSWORD + CHECKSUM + DERIVATION + number + pair + checksum
    )


def _public_half(secret: Path) -> tuple[bytes, bytes]:
    """Key number and public key, which the secret key's file repeats."""
    raw = base64.b64decode(secret.read_bytes().splitlines()[1])
    rest = raw[6 + len(DERIVATION) :]
    return rest[:8], rest[40:72]


def _write(path: Path, comment: str, line: bytes) -> None:
    new = path.with_name(f"{path.name}.new")
    new.unlink(missing_ok=True)
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as out:
        out.write(f"untrusted comment: {comment}\n".encode() + line + b"\n")
    new.replace(path)
