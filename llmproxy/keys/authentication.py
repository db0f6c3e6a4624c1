"""Authentication of model calls: an access token or a personal key, as a bearer token or as ``x-api-key``."""

from typing import Any

from django.utils import timezone
from drf_spectacular.openapi import AutoSchema
from rest_framework.request import Request

from accounts.sessions.authentication import (
    AccessRevoked,
    AccessTokenAuthentication,
    InvalidAccessToken,
)
from config.platform.api.schema import BearerToken
from config.platform.db.connections import release_connection
from licensing.callers import Caller, CallerKey
from licensing.permissions import NotEntitled
from llmproxy.keys.key_text import PREFIX, KeyText
from llmproxy.keys.personal_keys import ENDED, NO_KEYS, holder_of

_PREFIX = PREFIX.encode()
NOT_VALID = "This personal key is not valid."


class CallAuthentication(AccessTokenAuthentication):
    """An access token, or a personal key, which is good here alone. Anthropic's SDKs send either as ``x-api-key``.

    A bearer token that is neither hides no key there: some programs send their own vendor's beside it.
    """

    def authenticate(self, request: Request) -> tuple[Any, Any] | None:
        header = self.get_header(request)
        given = request.META.get("HTTP_X_API_KEY")
        if not given:
            return self._authenticated(header)
        beside = b"Bearer " + given.encode("latin-1", "replace")
        if not header.startswith(b"Bearer"):
            return self._authenticated(beside)
        try:
            return self._authenticated(header)
        except InvalidAccessToken:
            if header.startswith(b"Bearer " + _PREFIX):
                raise
            return self._authenticated(beside)

    def _authenticated(self, header: bytes) -> tuple[Any, Any] | None:
        """The caller of a header of a bearer token, and the token or key."""
        raw = self.get_raw_token(header)
        if raw is None:
            return None
        if raw.startswith(_PREFIX):
            return self._holder(raw)
        token = self.get_validated_token(raw)
        return self.get_user(token), token

    def _holder(self, raw: bytes) -> tuple[Caller, CallerKey]:
        text = KeyText.parse(raw.decode("latin-1"))
        found = None if text is None else holder_of(text, now=timezone.now())
        release_connection()
        if found is None:
            raise InvalidAccessToken(NOT_VALID)
        check_key(*found)
        return found


def check_key(caller: Caller, key: CallerKey) -> None:
    """Raises ``AccessRevoked`` for a key that has ended, ``NotEntitled`` where the plan has no keys."""
    if not caller.may_call:
        raise AccessRevoked(ENDED).concerning(person=caller.user_id)
    if not key.is_allowed:
        raise NotEntitled(NO_KEYS).concerning(person=caller.user_id)


class CallSecurity(BearerToken):  # type: ignore[no-untyped-call]  # its base has no types
    """The ways in, in the schema: a bearer token as at every other address, or a header of its own."""

    target_class = f"{__name__}.CallAuthentication"
    name = ["accessToken", "apiKey"]  # type: ignore[assignment] # the library takes one or several
    # Before that of its base class.
    priority = 2

    def get_security_requirement(self, auto_schema: AutoSchema) -> list[dict[str, list[Any]]]:
        return [{name: []} for name in self.name]

    def get_security_definition(self, auto_schema: AutoSchema) -> Any:
        api_key = {
            "type": "apiKey",
            "in": "header",
            "name": "x-api-key",
            "description": "A personal key or an access token; a key is also good as a bearer token here.",
        }
        return [super().get_security_definition(auto_schema), api_key]
