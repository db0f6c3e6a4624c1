"""Who is calling: an access token becomes the rows it stands for, in one query."""

from collections.abc import Callable
from functools import cache
from typing import Any, Protocol, cast
from uuid import UUID

from django.conf import settings
from django.utils.module_loading import import_string
from rest_framework.request import Request
from rest_framework_simplejwt.authentication import JWTAuthentication
from rest_framework_simplejwt.exceptions import ExpiredTokenError, TokenError

from accounts.access_tokens import AccessToken
from config.problems import NotAuthenticated, Problem

SCHEME = b"bearer"
# Ours have some 800 bytes; what is much longer is not looked into.
LONGEST = 8192


class InvalidAccessToken(Problem):
    code = "invalid_access_token"
    status = 401
    title = "Not signed in"
    default_detail = "This access token is not one of ours."


class AccessTokenExpired(Problem):
    code = "access_token_expired"
    status = 401
    title = "Access token expired"
    default_detail = "This access token has expired; refresh it."


class AccessRevoked(Problem):
    code = "access_revoked"
    status = 401
    title = "Access revoked"
    default_detail = "This access has been ended. Please sign in again."


class Caller(Protocol):
    """What accounts needs to know of the row-backed caller that a higher floor loads."""

    user_id: UUID
    email: str
    epoch: int
    is_authenticated: bool

    @property
    def may_call(self) -> bool: ...


class AccessTokenAuthentication(JWTAuthentication):
    """RFC 6750 bearer tokens. The rows decide: user, session, client and licence come in one query."""

    def __init__(self) -> None:
        """The library's would look up the model of the rows that it would load."""

    def authenticate(self, request: Request) -> tuple[Any, AccessToken] | None:
        raw = _presented(request)
        if raw is None:
            return None
        try:
            token = AccessToken(cast("Any", raw))
        except ExpiredTokenError:
            raise AccessTokenExpired from None
        except TokenError:
            raise InvalidAccessToken from None
        return self.get_user(token), token

    def get_user(self, validated_token: Any) -> Any:
        caller = _loader()(user_id=validated_token.user_id, session_id=validated_token.session_id)
        if caller is None or not caller.may_call or caller.epoch != validated_token.epoch:
            raise AccessRevoked
        return caller

    def authenticate_header(self, request: Request) -> str:
        return "Bearer"


def _presented(request: Request) -> bytes | None:
    """The token of the Authorization header; None where there is none, a problem where there is half of one."""
    parts = request.META.get("HTTP_AUTHORIZATION", "").encode("latin-1", "replace").split()
    if not parts:
        return None
    if parts[0].lower() != SCHEME:
        raise NotAuthenticated("This needs a bearer access token.")
    if len(parts) != 2 or len(parts[1]) > LONGEST:
        raise InvalidAccessToken
    return bytes(parts[1])


@cache
def _loader() -> Callable[..., Caller | None]:
    loader: Callable[..., Caller | None] = import_string(settings.CALLER_LOADER)
    return loader
