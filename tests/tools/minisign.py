"""A demo key pair, in the forms of both programs that sign.

``<name>.key`` and ``<name>.pub`` are minisign's files; the secret key has no password, so ``minisign -S -s`` asks
for none. Tauri's signer takes no key without encryption, and reads base64 of whole files: ``<name>.tauri.key`` is
the same secret key for it, encrypted with an empty password. It signs nothing but what is tried on this machine.
"""

import base64
import hashlib
import os
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

ALGORITHM, HASHED, CHECKSUM = b"Ed", b"ED", b"B2"
PLAIN, SCRYPT = b"\0\0", b"Sc"
SALT_BYTES, NUMBER_BYTES = 32, 8
# Of the derivation from a password, as libsodium's limits say it and as scrypt takes it.
OPERATIONS, MEMORY = 2**20, 2**25
COST = {"n": 2**15, "r": 8, "p": 1, "maxmem": 2**26}
DERIVATION_BYTES = SALT_BYTES + 8 + 8


def key_pair(folder: Path, name: str) -> str:
    """The public key as its bare base64 line; makes the files, the secret ones for their owner alone, where missing."""
    secret, encrypted = folder / f"{name}.key", folder / f"{name}.tauri.key"
    if not secret.exists():
        encrypted.unlink(missing_ok=True)
        _write(secret, _file("minisign secret key", _plain(_new_secret())))
    number, public = _public_half(secret)
    line = base64.b64encode(ALGORITHM + number + public)
    comment = f"minisign public key: {number[::-1].hex().upper()}"
    _write(folder / f"{name}.pub", _file(comment, line))
    if not encrypted.exists():
        file = _file("rsign encrypted secret key", _encrypted(_secret_half(secret)))
        _write(encrypted, base64.b64encode(file))
    return line.decode()


def tauri_public_key(folder: Path, name: str) -> str:
    """The public key as Tauri writes it into an app's configuration; makes the files where missing."""
    key_pair(folder, name)
    return base64.b64encode((folder / f"{name}.pub").read_bytes()).decode()


def sign(secret: Path, content: bytes, comment: str) -> bytes:
    """A signature file as both programs write it, with the unencrypted secret key, over the content's hash."""
    half = _secret_half(secret)
    private = Ed25519PrivateKey.from_private_bytes(half[NUMBER_BYTES:40])
    signature = private.sign(hashlib.blake2b(content, digest_size=64).digest())
    trusted = comment.encode()
    closing = base64.b64encode(private.sign(signature + trusted))
    line = base64.b64encode(HASHED + half[:NUMBER_BYTES] + signature)
    signed = _file("signature by the demo key", line)
    return signed + b"trusted comment: " + trusted + b"\n" + closing + b"\n"


def _new_secret() -> bytes:
    """Key number, both halves and their checksum."""
    number, private = os.urandom(NUMBER_BYTES), Ed25519PrivateKey.generate()
    pair = private.private_bytes_raw() + private.public_key().public_bytes_raw()
    checksum = hashlib.blake2b(ALGORITHM + number + pair, digest_size=32).digest()
    return number + pair + checksum


def _plain(secret: bytes) -> bytes:
    return base64.b64encode(ALGORITHM + PLAIN + CHECKSUM + bytes(DERIVATION_BYTES) + secret)


def _encrypted(secret: bytes) -> bytes:
    """With an empty password, which is what its signer tries where none is given."""
    salt = os.urandom(SALT_BYTES)
    pad = hashlib.scrypt(b"", salt=salt, dklen=len(secret), **COST)
    hidden = bytes(each ^ other for each, other in zip(secret, pad, strict=True))
    limits = OPERATIONS.to_bytes(8, "little") + MEMORY.to_bytes(8, "little")
    return base64.b64encode(ALGORITHM + SCRYPT + CHECKSUM + salt + limits + hidden)


def _secret_half(secret: Path) -> bytes:
    raw = base64.b64decode(secret.read_bytes().splitlines()[1])
    return raw[6 + DERIVATION_BYTES :]


def _public_half(secret: Path) -> tuple[bytes, bytes]:
    """Key number and public key, which the secret key's file repeats."""
    rest = _secret_half(secret)
    return rest[:NUMBER_BYTES], rest[40:72]


def _file(comment: str, line: bytes) -> bytes:
    return f"untrusted comment: {comment}\n".encode() + line + b"\n"


def _write(path: Path, content: bytes) -> None:
    new = path.with_name(f"{path.name}.new")
    new.unlink(missing_ok=True)
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as out:
        out.write(content)
    new.replace(path)
