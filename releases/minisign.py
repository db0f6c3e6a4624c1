"""Minisign signatures, as shells verify them.

A signature file has four lines: an untrusted comment, the signature (2 bytes algorithm, 8 bytes key id, 64
bytes Ed25519), a trusted comment, and a second signature over the first and the trusted comment. ``ED`` signs the
BLAKE2b-512 hash of a file, the older ``Ed`` the file itself. What the trusted comment claims may be read only
after both have been checked, which is why only the checks give it out.
"""

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Self

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

HASHED, LEGACY = b"ED", b"Ed"
UNTRUSTED, TRUSTED = b"untrusted comment: ", b"trusted comment: "
DIGEST_BYTES = 64
_KEY_BYTES, _SIGNATURE_BYTES, _GLOBAL_BYTES = 2 + 8 + 32, 2 + 8 + 64, 64


class SignatureRefused(Exception):
    """Why a signature does not hold: a word to grep for, and a sentence."""

    def __init__(self, code: str, detail: str) -> None:
        self.code = code
        self.detail = detail
        super().__init__(code)


@dataclass(frozen=True, slots=True)
class PublicKey:
    """The public half of an update key pair."""

    id: bytes
    _key: Ed25519PublicKey = field(repr=False)

    @classmethod
    def of(cls, raw: bytes) -> Self:
        """From the 42 bytes of the key line: algorithm, key id, key."""
        if len(raw) != _KEY_BYTES or raw[:2] != LEGACY:
            raise ValueError("not a minisign public key")
        return cls(raw[2:10], Ed25519PublicKey.from_public_bytes(raw[10:]))

    @property
    def name(self) -> str:
        """The key id as minisign prints it."""
        return self.id[::-1].hex().upper()

    def signed(self, signature: bytes, message: bytes) -> bool:
        try:
            self._key.verify(signature, message)
        except InvalidSignature:
            return False
        return True


@dataclass(frozen=True, slots=True)
class Signature:
    """A signature file, taken apart and not yet believed."""

    algorithm: bytes
    key_id: bytes
    _signature: bytes = field(repr=False)
    _comment: bytes = field(repr=False)
    _global: bytes = field(repr=False)

    @classmethod
    def parse(cls, document: bytes) -> Self:
        """Raises ``SignatureRefused``."""
        lines = document.removesuffix(b"\n").split(b"\n")
        if (
            len(lines) != 4
            or not lines[0].startswith(UNTRUSTED)
            or not lines[2].startswith(TRUSTED)
        ):
            raise SignatureRefused(
                "signature_unreadable",
                "This is not a minisign signature: the four lines of a .sig or .minisig file.",
            )
        first, second = _line(lines[1], _SIGNATURE_BYTES), _line(lines[3], _GLOBAL_BYTES)
        if first[:2] not in {HASHED, LEGACY}:
            raise SignatureRefused(
                "signature_algorithm", "This signature has an algorithm that minisign does not."
            )
        return cls(first[:2], first[2:10], first[10:], lines[2].removeprefix(TRUSTED), second)

    @property
    def key_name(self) -> str:
        """The id of the key that it names, as minisign prints it."""
        return self.key_id[::-1].hex().upper()

    @property
    def comment(self) -> str:
        """The trusted comment as it stands, to be shown; only :meth:`claims` believes it."""
        return self._comment.decode("utf-8", "replace")

    def claims(self, key: PublicKey) -> Mapping[str, str]:
        """The trusted comment, once the key and the second signature have been checked.

        It belongs to this signature then; what the signature belongs to, :meth:`check_digest` or
        :meth:`check_bytes` say. Raises ``SignatureRefused``.
        """
        if self.key_id != key.id:
            raise SignatureRefused(
                "wrong_key",
                f"This was signed with the key {self.key_id[::-1].hex().upper()}, not with {key.name}.",
            )
        if not key.signed(self._global, self._signature + self._comment):
            raise SignatureRefused(
                "trusted_comment_altered",
                "The trusted comment is not the one that was signed, or the key is another one.",
            )
        return _claims(self._comment)

    def refuse_legacy(self) -> None:
        """The older format can only be checked with the whole file in memory; ``SignatureRefused`` for it."""
        if self.algorithm != HASHED:
            raise SignatureRefused(
                "legacy_algorithm",
                "This was signed in minisign's legacy format; sign it without -l, as Tauri's signer does.",
            )

    def check_digest(self, digest: bytes, key: PublicKey) -> None:
        """That this signs a file with this BLAKE2b-512 digest, or ``SignatureRefused``."""
        self.refuse_legacy()
        self._check(digest, key)

    def check_bytes(self, content: bytes, key: PublicKey) -> None:
        """That this signs exactly this content, in either format, or ``SignatureRefused``."""
        hashed = self.algorithm == HASHED
        self._check(blake2b(content, digest_size=DIGEST_BYTES).digest() if hashed else content, key)

    def _check(self, message: bytes, key: PublicKey) -> None:
        if not key.signed(self._signature, message):
            raise SignatureRefused(
                "signature_mismatch", "The signature is not one of these bytes: sign them again."
            )


def decoded(text: str) -> bytes:
    """A signature file from its base64, as strict as shells are: no spaces, no line breaks, one form only."""
    try:
        raw = base64.b64decode(text.encode("ascii"), validate=True)
    except (binascii.Error, UnicodeEncodeError):
        raw = b""
    # Spare bits that are not zero decode here, but not everywhere.
    if not raw or base64.b64encode(raw).decode() != text:
        raise SignatureRefused("signature_not_base64", _not_base64(text))
    return raw


def _not_base64(text: str) -> str:
    if text.startswith(UNTRUSTED.decode().strip()):
        return "Give the signature file in base64, not as it is."
    if text != "".join(text.split()):
        return "The signature holds spaces or line breaks; shells refuse it."
    return "The signature is not base64 in its one canonical form."


def _line(line: bytes, length: int) -> bytes:
    try:
        raw = base64.b64decode(line, validate=True)
    except binascii.Error:
        raw = b""
    if len(raw) != length or base64.b64encode(raw) != line:
        raise SignatureRefused(
            "signature_unreadable",
            "A line of this minisign signature is damaged or cut off.",
        )
    return raw


def _claims(comment: bytes) -> Mapping[str, str]:
    """``timestamp:1700000000<tab>file:app.exe<tab>version:1.2.3`` as a mapping; words without a value are left out."""
    try:
        fields = [each.partition(":") for each in comment.decode().split("\t")]
    except UnicodeDecodeError:
        raise SignatureRefused(
            "trusted_comment_unreadable", "The trusted comment is not UTF-8."
        ) from None
    named = [(name, value) for name, colon, value in fields if colon]
    claims = dict(named)
    if len(claims) != len(named):
        raise SignatureRefused(
            "trusted_comment_unreadable", "A field of the trusted comment comes twice."
        )
    return claims
