"""Access tokens: RS256 JWTs of one hour (RFC 9068), issued and checked through simplejwt's token class."""

from base64 import urlsafe_b64decode
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from hashlib import sha256
from json import loads
from typing import Any, Self
from uuid import UUID

import jwt
from django.conf import settings
from rest_framework_simplejwt.backends import TokenBackend
from rest_framework_simplejwt.exceptions import (
    TokenBackendError,
    TokenBackendExpiredToken,
    TokenError,
)
from rest_framework_simplejwt.tokens import Token

from accounts.keys.key_ring import ring

TYPE = "at+jwt"
REQUIRED = ["iss", "sub", "sid", "ver", "iat", "exp"]
# Hosts' clocks differ; a token from further ahead was not made by one of ours.
CLOCKS_DIFFER_SECONDS = 60
# A shell shows the same token for an hour, once a minute and more. What cannot change of it, that a key of ours has
# signed these bytes, is found out once in each process; whether that key is still believed, and all else, each time.
# Some 10 MB when full. By digests, so that nobody's token lies in memory.
REMEMBERED = 8192
_verified: OrderedDict[bytes, dict[str, Any]] = OrderedDict()


@dataclass(frozen=True, slots=True, kw_only=True)
class Claims:
    """What a token says of its holder's client. For the shell to show; the server decides by rows."""

    client_id: UUID
    plan: str
    entitlements: Sequence[str]


class RingBackend(TokenBackend):
    """simplejwt's backend with a ring of keys: the header's ``kid`` picks one, and only RS256 is known."""

    def encode(self, payload: dict[str, Any]) -> str:
        kid, key = ring.signer(now=datetime.now(UTC))
        claims = {"iss": self.issuer, **payload, "kid": kid}
        return jwt.encode(claims, key, algorithm="RS256", headers={"kid": kid, "typ": TYPE})

    def decode(self, token: Any, verify: bool = True) -> dict[str, Any]:  # noqa: FBT001, FBT002 - as its base has it
        """The claims of a token of ours; nothing in its header chooses a key or an algorithm but a known ``kid``."""
        key = self.get_verifying_key(token)
        name = sha256(token).digest()
        claims = _verified.get(name)
        if claims is None:
            claims = self._verify(token, key)
            if len(_verified) >= REMEMBERED:
                _verified.popitem(last=False)
            _verified[name] = claims
        elif claims["exp"] <= datetime.now(UTC).timestamp():
            raise TokenBackendExpiredToken("Token is expired")
        return dict(claims)

    def _verify(self, token: Any, key: Any) -> dict[str, Any]:
        # The library's leeway for clocks would hold for what has expired, too; verify() looks at `iat` alone.
        options: Any = {"require": REQUIRED, "verify_aud": False, "verify_iat": False}
        try:
            return jwt.decode(token, key, algorithms=["RS256"], issuer=self.issuer, options=options)
        except jwt.ExpiredSignatureError as error:
            raise TokenBackendExpiredToken("Token is expired") from error
        except (jwt.InvalidTokenError, OverflowError) as error:
            raise TokenBackendError("Token is invalid") from error

    def get_verifying_key(self, token: Any) -> Any:
        key = ring.verifier(_kid_of(bytes(token).partition(b".")[0]), now=datetime.now(UTC))
        if key is None:
            raise TokenBackendError("Token is signed by an unknown key")
        return key


class AccessToken(Token):
    """One hour's access at most. ``user_id``, ``session_id`` and ``epoch`` are what the server goes by."""

    token_type = "access"  # noqa: S105 - the name of a kind, not a token
    lifetime = settings.ACCESS_LIFETIME
    _token_backend = RingBackend("RS256", issuer=settings.BASE_URL)

    user_id: UUID
    session_id: UUID
    epoch: int

    def __init__(self, token: Any = None, verify: bool = True) -> None:  # noqa: FBT001, FBT002 - as its base has it
        # simplejwt starts a new one with claims of its own (a kind, a jti); ours are those of issue() and no others.
        if token is not None:
            super().__init__(token, verify)

    @classmethod
    def issue(
        cls,
        *,
        user_id: UUID,
        session_id: UUID,
        epoch: int,
        claims: Claims,
        now: datetime,
        session_end: datetime | None = None,
    ) -> Self:
        """A new token for a session, which it does not outlive; ``str()`` signs it."""
        token = cls()
        end = now + settings.ACCESS_LIFETIME
        token.payload = {
            "sub": str(user_id),
            "cid": str(claims.client_id),
            "plan": claims.plan,
            "entitlements": list(claims.entitlements),
            "sid": str(session_id),
            "ver": epoch,
            "iat": int(now.timestamp()),
            "exp": int((min(end, session_end) if session_end else end).timestamp()),
        }
        return token

    @property
    def expires_in(self) -> int:
        """Seconds that it lasts from its issue on."""
        return int(self.payload["exp"]) - int(self.payload["iat"])

    def verify(self) -> None:
        """What the signature does not cover: that the claims we go by are of their types."""
        ver, iat = self.payload["ver"], self.payload["iat"]
        if type(ver) is not int or type(iat) is not int:
            raise TokenError("Token holds no number where one belongs")
        if iat > datetime.now(UTC).timestamp() + CLOCKS_DIFFER_SECONDS:
            raise TokenError("Token is of the future")
        self.user_id = _uuid(self.payload["sub"])
        self.session_id = _uuid(self.payload["sid"])
        self.epoch = ver


@lru_cache(maxsize=64)
def _kid_of(header: bytes) -> str:
    """The key that a token's first part names, the same bytes in all tokens of one key.

    The library would take the whole token apart for it, and again to verify it, which looks at this part too.
    """
    try:
        says = loads(urlsafe_b64decode(header + b"=" * (-len(header) % 4)))
    except (ValueError, RecursionError) as error:
        raise TokenBackendError("Token is invalid") from error
    kid = says.get("kid") if isinstance(says, dict) else None
    # What a header calls critical must be understood, and no extension is.
    if not isinstance(kid, str) or says.get("typ") != TYPE or "crit" in says:
        raise TokenBackendError("Token is of another kind")
    return kid


def _uuid(text: object) -> UUID:
    if not isinstance(text, str):
        raise TokenError("Token names nobody")
    return _parsed(text)


# The same of each shell for as long as it is signed in.
@lru_cache(maxsize=2 * REMEMBERED)
def _parsed(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError as error:
        raise TokenError("Token names nobody") from error
