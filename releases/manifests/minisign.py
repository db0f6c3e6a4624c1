"""Minisign signatures, as shells verify them.

A signature file has four lines: an untrusted comment, the signature (2 bytes algorithm, 8 bytes key id, 64
bytes Ed25519), a trusted comment, and a second signature over the first and the trusted comment. ``ED`` signs the
BLAKE2b-512 hash of a file, the older ``Ed`` the file itself. :meth:`Signature.claims` verifies the trusted comment
before it returns it.
"""

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from typing import Self

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from config.platform.problems.problem import Fault, instant

HASHED, LEGACY = b"ED", b"Ed"
UNTRUSTED, TRUSTED = b"untrusted comment: ", b"trusted comment: "
# The beginning of every signature file, in base64.
_BEGINS = base64.b64encode(UNTRUSTED.strip()).decode()
DIGEST_BYTES = 64
# Tolerates a signer's clock that is a little ahead. A time far ahead would block the channel or app until then.
AHEAD = timedelta(minutes=5)
TIMESTAMP_DIGITS = 11
_KEY_BYTES, _SIGNATURE_BYTES, _GLOBAL_BYTES = 2 + 8 + 32, 2 + 8 + 64, 64


class SignatureRefused(Exception):
    """A signature that does not verify, with a code and a sentence."""

    def __init__(self, code: str, detail: str) -> None:
        self.code = code
        self.detail = detail
        super().__init__(code)

    def at(self, pointer: str) -> Fault:
        return Fault(pointer, self.code, self.detail)


@dataclass(frozen=True, slots=True)
class PublicKey:
    """The public half of an update key pair."""

    id: bytes
    _key: Ed25519PublicKey = field(repr=False)

    @classmethod
    def of(cls, raw: bytes) -> Self:
        """Reads the 42 bytes of the key line: algorithm, key id, key."""
        if len(raw) != _KEY_BYTES or raw[:2] != LEGACY:
            raise ValueError("not a minisign public key")
        return cls(raw[2:10], Ed25519PublicKey.from_public_bytes(raw[10:]))

    @property
    def name(self) -> str:
        return _name(self.id)

    def verifies(self, signature: bytes, message: bytes) -> bool:
        try:
            self._key.verify(signature, message)
        except InvalidSignature:
            return False
        return True


@dataclass(frozen=True, slots=True)
class Signature:
    """A parsed signature file, not yet verified."""

    algorithm: bytes
    key_id: bytes
    _signature: bytes = field(repr=False)
    _comment: bytes = field(repr=False)
    _global: bytes = field(repr=False)

    @classmethod
    def parse(cls, document: bytes) -> Self:
        """Reads lines as minisign does, which may end with CRLF. Raises ``SignatureRefused``."""
        lines = [line.removesuffix(b"\r") for line in document.removesuffix(b"\n").split(b"\n")]
        if (
            len(lines) != 4
            or not lines[0].startswith(UNTRUSTED)
            or not lines[2].startswith(TRUSTED)
        ):
            raise SignatureRefused(
                "signature_unreadable",
                "This is not a minisign signature, which is a .sig or .minisig file of four lines.",
            )
        first, second = _line(lines[1], _SIGNATURE_BYTES), _line(lines[3], _GLOBAL_BYTES)
        if first[:2] not in {HASHED, LEGACY}:
            raise SignatureRefused(
                "signature_algorithm", "Minisign does not know the algorithm of this signature."
            )
        return cls(first[:2], first[2:10], first[10:], lines[2].removeprefix(TRUSTED), second)

    @property
    def key_name(self) -> str:
        return _name(self.key_id)

    @property
    def comment(self) -> str:
        """The trusted comment, unverified, for display."""
        return self._comment.decode("utf-8", "replace")

    @property
    def fields(self) -> Mapping[str, str]:
        """The fields of the trusted comment, unverified. Raises ``SignatureRefused``."""
        return _claims(self._comment)

    def claims(self, key: PublicKey) -> Mapping[str, str]:
        """Verifies that the trusted comment belongs to this signature, and returns its fields.

        :meth:`check_digest` or :meth:`check_bytes` verify the signed file. Raises ``SignatureRefused``.
        """
        if self.key_id != key.id:
            raise SignatureRefused(
                "wrong_key", f"This was signed with the key {self.key_name}, not with {key.name}."
            )
        if not key.verifies(self._global, self._signature + self._comment):
            raise SignatureRefused(
                "trusted_comment_altered",
                "The trusted comment is not the signed one, or the key is a different one.",
            )
        return self.fields

    def refuse_legacy(self) -> None:
        """Raises ``SignatureRefused`` for the older format, whose check needs the whole file in memory."""
        if self.algorithm != HASHED:
            raise SignatureRefused(
                "legacy_algorithm",
                "This signature has minisign's legacy format; sign without -l, as Tauri's signer does.",
            )

    def check_digest(self, digest: bytes, key: PublicKey) -> None:
        """Raises ``SignatureRefused`` unless this signs a file with this BLAKE2b-512 digest."""
        self.refuse_legacy()
        self._check(digest, key)

    def check_bytes(self, content: bytes, key: PublicKey) -> None:
        """Raises ``SignatureRefused`` unless this signs this content, in either format."""
        hashed = self.algorithm == HASHED
        self._check(blake2b(content, digest_size=DIGEST_BYTES).digest() if hashed else content, key)

    def _check(self, message: bytes, key: PublicKey) -> None:
        if not key.verifies(self._signature, message):
            raise SignatureRefused(
                "signature_mismatch", "The signature does not match these bytes: sign them again."
            )


def decoded(text: str) -> bytes:
    """Decodes a signature file from strict base64, as shells do. Raises ``SignatureRefused``."""
    raw = _canonical(text.encode("ascii", "replace"))
    if not raw:
        raise SignatureRefused("signature_not_base64", _not_base64(text))
    return raw


def time_of(claims: Mapping[str, str], *, now: datetime) -> datetime:
    """Returns when a signature was made, by its trusted comment. Raises ``SignatureRefused``."""
    stamp = claims.get("timestamp", "")
    if not (stamp.isascii() and stamp.isdecimal() and len(stamp) <= TIMESTAMP_DIGITS):
        raise SignatureRefused("no_timestamp", "The trusted comment has no timestamp:<seconds>.")
    signed_at = datetime.fromtimestamp(int(stamp), UTC)
    if signed_at > now + AHEAD:
        raise SignatureRefused(
            "timestamp_ahead", f"The time of the signature, {instant(signed_at)}, is in the future."
        )
    return signed_at


def _canonical(encoded: bytes) -> bytes:
    """Decodes base64 without spaces or line breaks; empty if ``encoded`` is not the one canonical form."""
    try:
        raw = base64.b64decode(encoded, validate=True)
    except binascii.Error:
        return b""
    # Python ignores spare bits that are not zero; other decoders refuse them.
    return raw if base64.b64encode(raw) == encoded else b""


def _not_base64(text: str) -> str:
    if text.startswith(UNTRUSTED.decode().strip()):
        return "Encode the signature file in base64."
    if text != "".join(text.split()):
        return "The signature has spaces or line breaks, which shells refuse."
    if "://" in text or text.endswith((".sig", ".minisig")):
        return "This says where the signature file is. Put the file's contents here."
    if text.startswith(_BEGINS) and len(text) % 4:
        return "The base64 is cut off, or lacks the = at its end. Put the whole contents of the .sig file here."
    return "The signature is not canonical base64."


def _line(line: bytes, length: int) -> bytes:
    raw = _canonical(line)
    if len(raw) != length:
        raise SignatureRefused(
            "signature_unreadable", "A line of this minisign signature is damaged or cut off."
        )
    return raw


def _name(key_id: bytes) -> str:
    """A key id as minisign prints it."""
    return key_id[::-1].hex().upper()


def _claims(comment: bytes) -> Mapping[str, str]:
    """Parses ``timestamp:1700000000<tab>file:app.exe<tab>version:1.2.3``; skips words without a value."""
    try:
        fields = [each.partition(":") for each in comment.decode().split("\t")]
    except UnicodeDecodeError:
        raise SignatureRefused(
            "trusted_comment_unreadable", "The trusted comment is not UTF-8."
        ) from None
    named = [(name, value) for name, colon, value in fields if colon]
    claims = dict(named)
    if len(claims) != len(named):
        raise SignatureRefused("trusted_comment_unreadable", "The trusted comment repeats a field.")
    return claims
