"""Access tokens: RS256 JWTs of one hour (RFC 9068), issued and checked through simplejwt's token class."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Self
from uuid import UUID

import jwt
from django.conf import settings
from rest_framework_simplejwt.backends import TokenBackend
from rest_framework_simplejwt.exceptions import TokenBackendError, TokenError
from rest_framework_simplejwt.tokens import Token

from accounts.key_ring import ring

TYPE = "at+jwt"


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

    def get_verifying_key(self, token: Any) -> Any:
        try:
            header = jwt.get_unverified_header(token)
        except jwt.InvalidTokenError as error:
            raise TokenBackendError("Token is invalid") from error
        kid = header.get("kid")
        if header.get("typ") != TYPE or not isinstance(kid, str):
            raise TokenBackendError("Token is of another kind")
        key = ring.verifier(kid, now=datetime.now(UTC))
        if key is None:
            raise TokenBackendError("Token is signed by an unknown key")
        return key


class AccessToken(Token):
    """One hour's access. ``user_id``, ``session_id`` and ``epoch`` are what the server goes by."""

    token_type = "access"  # noqa: S105 - the name of a kind, not a token
    lifetime = settings.ACCESS_LIFETIME
    _token_backend = RingBackend("RS256", issuer=settings.BASE_URL)

    user_id: UUID
    session_id: UUID
    epoch: int

    @classmethod
    def issue(
        cls, *, user_id: UUID, session_id: UUID, epoch: int, claims: Claims, now: datetime
    ) -> Self:
        """A new token for a session; ``str()`` signs it."""
        token = cls()
        # simplejwt starts a payload with claims of its own (a kind, a jti); ours are these and no others.
        token.payload = {
            "sub": str(user_id),
            "cid": str(claims.client_id),
            "plan": claims.plan,
            "entitlements": list(claims.entitlements),
            "sid": str(session_id),
            "ver": epoch,
            "iat": int(now.timestamp()),
            "exp": int((now + settings.ACCESS_LIFETIME).timestamp()),
        }
        return token

    def verify(self) -> None:
        """What the signature does not cover: that the claims we go by are there and of their types."""
        self.check_exp()
        try:
            self.user_id = UUID(self.payload["sub"])
            self.session_id = UUID(self.payload["sid"])
            self.epoch = int(self.payload["ver"])
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise TokenError("Token lacks a claim") from error
