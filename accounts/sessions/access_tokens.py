"""Access tokens: RS256 JWTs of one hour (RFC 9068) by simplejwt's token class, signed by the key ring."""

import json
from base64 import urlsafe_b64decode
from datetime import UTC, datetime
from functools import lru_cache
from time import time
from typing import Any, Self, cast
from uuid import UUID, uuid4

import jwt
from django.conf import settings
from rest_framework_simplejwt.backends import TokenBackend
from rest_framework_simplejwt.exceptions import ExpiredTokenError, TokenBackendError, TokenError
from rest_framework_simplejwt.settings import api_settings
from rest_framework_simplejwt.tokens import Token

from accounts.hooks import Claims
from accounts.keys.key_ring import ring

TYPE = "at+jwt"


class RingBackend(TokenBackend):
    """simplejwt's backend with the key ring's keys, each named by the header's ``kid``."""

    def encode(self, payload: dict[str, Any]) -> str:
        """Signs a token. The library's own method writes neither ``kid`` nor ``typ``."""
        kid, key = ring.signer(now=datetime.now(UTC))
        claims = {"iss": self.issuer, **payload, "kid": kid}
        return jwt.encode(claims, key, self.algorithm, headers={"kid": kid, "typ": TYPE})

    def get_verifying_key(self, token: Any) -> Any:
        """The public key that ``kid`` names; no other member of the header chooses a key."""
        key = ring.verifier(_kid_of(token.partition(b".")[0]), now=datetime.now(UTC))
        if key is None:
            raise TokenBackendError("Token is signed by an unknown key")
        return key


@lru_cache(maxsize=64)
def _kid_of(header: bytes) -> str:
    """The ``kid`` of a token's first segment, which is the same in every token of one key.

    The library decodes the whole token for it, and again to verify it: a tenth of a licence poll.
    """
    _check_text(header)
    try:
        members = jwt.get_unverified_header(header + b".e30.")
    except (jwt.InvalidTokenError, RecursionError) as error:
        raise TokenBackendError("Token is invalid") from error
    # A header's critical extensions must be understood, and none is.
    if members.get("typ") != TYPE or "crit" in members:
        raise TokenBackendError("Token is of another kind")
    return str(members.get("kid", ""))


def _check_text(segment: bytes) -> None:
    """Refuses JSON that is not plain UTF-8 (RFC 8259, 8.1): the library reads UTF-16, UTF-32 and byte order marks."""
    try:
        json.loads(urlsafe_b64decode(segment + b"==").decode())
    except (ValueError, RecursionError) as error:
        raise TokenBackendError("Token is invalid") from error


_backend = RingBackend(
    api_settings.ALGORITHM, issuer=api_settings.ISSUER, leeway=api_settings.LEEWAY
)


class AccessToken(Token):
    """An access token. The server decides by ``user_id``, ``session_id`` and ``epoch``."""

    token_type = "access"  # nosec B105 # noqa: S105 - the name of a kind, not a token
    lifetime = api_settings.ACCESS_TOKEN_LIFETIME

    user_id: UUID
    session_id: UUID
    epoch: int

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
        """A new token of a session, which it does not outlive; ``str()`` signs it."""
        token = cls()
        end = now + cls.lifetime
        # In place of the library's own claims.
        token.payload = {
            "jti": str(uuid4()),
            "sub": str(user_id),
            "cid": str(claims.client_id),
            "plan": claims.plan,
            "entitlements": list(claims.entitlements),
            "sid": str(session_id),
            "ver": epoch,
            "iat": int(now.timestamp()),
            "exp": int((min(end, session_end) if session_end else end).timestamp()),
        }
        if settings.TOKEN_AUDIENCE:
            token.payload["aud"] = settings.TOKEN_AUDIENCE
        return token

    @property
    def expires_in(self) -> int:
        """The lifetime in seconds."""
        return int(self.payload["exp"]) - int(self.payload["iat"])

    @classmethod
    @lru_cache(maxsize=4096)
    def _verified(cls, raw: bytes) -> Self:
        token = cls(cast("Any", raw))
        _check_text(raw.split(b".")[1])
        return token

    @classmethod
    def of(cls, raw: bytes) -> Self:
        """The token of these bytes; TokenError or TokenBackendError if it is not valid now.

        A signature is verified once: a shell sends the same token for an hour. The key and the end are checked again.
        """
        token = cls._verified(raw)
        _backend.get_verifying_key(raw)
        token.verify()
        return token

    def get_token_backend(self) -> TokenBackend:
        return _backend

    def verify(self) -> None:
        """Checks the types of the claims that the server decides by, and the exact end.

        The leeway that the backend grants is for ``iat``, because a clock may have been set back.
        """
        ver, iat, exp = (self.payload.get(name) for name in ("ver", "iat", "exp"))
        if type(ver) is not int or type(iat) is not int or type(exp) is not int:
            raise TokenError("A claim is no number")
        if exp - iat > self.lifetime.total_seconds():
            raise TokenError("Token lasts too long")
        # A token from before the setting names no audience, and goes on until it expires.
        audience = settings.TOKEN_AUDIENCE
        if audience and self.payload.get("aud", audience) != audience:
            raise TokenError("Token is for others")
        # Not the library's current_time, which is when this object was made.
        if exp <= time():
            raise ExpiredTokenError("Token is expired")
        self.user_id, self.session_id, self.epoch = self._uuid("sub"), self._uuid("sid"), ver

    def _uuid(self, claim: str) -> UUID:
        try:
            return UUID(self.payload.get(claim))
        except (AttributeError, TypeError, ValueError) as error:
            raise TokenError("A claim is no UUID") from error
