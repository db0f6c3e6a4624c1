"""Signing as minisign and Tauri's signer do. A wire test holds it to the real minisign."""

import base64
import os
from hashlib import blake2b

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey


class Signer:
    """An update key pair."""

    def __init__(self) -> None:
        self._private = Ed25519PrivateKey.generate()
        self._id = os.urandom(8)

    @property
    def public(self) -> bytes:
        """The 42 bytes of the key line."""
        return b"Ed" + self._id + self._private.public_key().public_bytes_raw()

    @property
    def name(self) -> str:
        return self._id[::-1].hex().upper()

    def sign(self, content: bytes, comment: str, *, legacy: bool = False) -> bytes:
        """A signature file with this trusted comment."""
        message = content if legacy else blake2b(content, digest_size=64).digest()
        signature = self._private.sign(message)
        line = base64.b64encode((b"Ed" if legacy else b"ED") + self._id + signature)
        trusted = comment.encode()
        closing = base64.b64encode(self._private.sign(signature + trusted))
        return b"\n".join(
            [
                b"untrusted comment: signature from a test",
                line,
                b"trusted comment: " + trusted,
                closing,
                b"",
            ]
        )

    def manifest(self, body: bytes, at: int) -> str:
        """Returns the value of X-Manifest-Signature; `at` in seconds since 1970."""
        return encoded(self.sign(body, f"timestamp:{at}\tfile:latest.json\thashed"))

    def artifact(self, content: bytes, *, file: str, version: str, at: int = 1_700_000_000) -> str:
        """A platform's `signature`."""
        return encoded(self.sign(content, f"timestamp:{at}\tfile:{file}\tversion:{version}"))

    def app(self, content: bytes, *, app: str, version: str, at: int = 1_700_000_000) -> bytes:
        """The signature file of a micro app's bundle."""
        return self.sign(
            content, f"timestamp:{at}\tfile:bundle.tar.gz\tapp:{app}\tversion:{version}"
        )


def encoded(file: bytes) -> str:
    """A signature file as headers and manifests carry it."""
    return base64.b64encode(file).decode()
