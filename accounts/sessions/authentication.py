"""Authentication of API requests: an access token leads to the caller's rows in one query."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

from rest_framework.request import Request
from rest_framework_simplejwt.authentication import JWTAuthentication
from rest_framework_simplejwt.exceptions import (
    AuthenticationFailed,
    ExpiredTokenError,
    TokenBackendError,
    TokenError,
)

from accounts.hooks import Caller, extensions
from accounts.models import User
from accounts.sessions.access_tokens import AccessToken
from config.platform.problems.problem import Problem

# A token has some 800 bytes; a much longer one is refused unread.
LONGEST = 8192


class InvalidAccessToken(Problem):
    code = "invalid_access_token"
    status = 401
    title = "Not signed in"
    default_detail = "This access token is not valid."


class AccessTokenExpired(Problem):
    code = "access_token_expired"
    status = 401
    title = "Access token expired"
    default_detail = "This access token has expired; refresh it."


class AccessRevoked(Problem):
    code = "access_revoked"
    status = 401
    title = "Access revoked"
    default_detail = "Your access has been revoked. Please sign in again."


class AccessTokenAuthentication(JWTAuthentication):
    """RFC 6750 bearer tokens. One query loads the rows that decide: user, session, client and licence."""

    www_authenticate_realm = "shell"

    def get_header(self, request: Request) -> Any:
        """The Authorization header with the scheme in the library's spelling: schemes ignore case (RFC 9110)."""
        parts = (super().get_header(request) or b"").split(maxsplit=1)
        if parts and parts[0].lower() == b"bearer":
            parts[0] = b"Bearer"
        return b" ".join(parts)

    def get_raw_token(self, header: bytes) -> bytes | None:
        try:
            token = super().get_raw_token(header)
        except AuthenticationFailed:
            raise InvalidAccessToken from None
        if token is not None and len(token) > LONGEST:
            raise InvalidAccessToken
        return token

    def get_validated_token(self, raw_token: bytes) -> AccessToken:
        try:
            return AccessToken.of(raw_token)
        except ExpiredTokenError:
            raise AccessTokenExpired from None
        # PyJWT lets an endless number overflow.
        except (TokenError, TokenBackendError, OverflowError):
            raise InvalidAccessToken from None

    def get_user(self, validated_token: Any) -> Any:
        token = validated_token
        caller = extensions().load_caller(user_id=token.user_id, session_id=token.session_id)
        return checked_caller(caller, user_id=token.user_id, epoch=token.epoch)


def checked_caller(caller: Caller | None, *, user_id: UUID, epoch: int) -> Caller:
    """The caller of a token of this epoch; raises ``AccessRevoked`` where person, session or client are no more."""
    if caller is None or not caller.may_call or caller.epoch != epoch:
        raise AccessRevoked().concerning(person=user_id)
    return caller


@contextmanager
def still_there() -> Iterator[None]:
    """Raises ``AccessRevoked`` if the caller's own user is deleted while the block changes it."""
    try:
        yield
    except User.DoesNotExist:
        raise AccessRevoked from None
