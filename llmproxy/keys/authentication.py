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
from config.api.schema import BearerToken
from config.db.connections import release_connection
from licensing.callers import Caller, CallerKey
from licensing.permissions import NotEntitled
from llmproxy.keys.key_text import PREFIX, KeyText
from llmproxy.keys.personal_keys import ENDED, NO_KEYS, holder_of

_PREFIX = PREFIX.encode()
NOT_VALID = "This personal key is not valid."


class CallAuthentication(AccessTokenAuthentication):
    """An access token, or a personal key, which is good here alone. Anthropic's SDKs send either as ``x-api-key``."""

    def get_header(self, request: Request) -> Any:
        header = super().get_header(request)
        given = request.META.get("HTTP_X_API_KEY")
        if not given or header.startswith(b"Bearer"):
            return header
        return b"Bearer " + given.encode("latin-1", "replace")

    def authenticate(self, request: Request) -> tuple[Any, Any] | None:
        raw = self.get_raw_token(self.get_header(request))
        if raw is None or not raw.startswith(_PREFIX):
            return super().authenticate(request)
        return self._holder(raw)

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
