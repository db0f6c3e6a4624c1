"""``/.well-known/jwks.json``: the public keys that verify access tokens, from memory."""

from typing import Any

from django.http import HttpResponse
from django.http.response import HttpResponseBase
from django.utils import timezone
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework.request import Request

from accounts.keys.key_ring import ring
from config.platform.api.etags import unless_known
from config.platform.api.views import APIView, ForEverybody

MAX_AGE = 300
CONTENT_TYPE = "application/jwk-set+json"
CACHE_CONTROL = f"public, max-age={MAX_AGE}"

_TEXT: dict[str, Any] = {"type": "string"}
_KEYS: dict[str, Any] = {
    "type": "object",
    "description": "A JWK set (RFC 7517) of keys that sign, will sign, or signed within the last 90 days.",
    "properties": {
        "keys": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "kty": {"const": "RSA"},
                    "kid": {**_TEXT, "description": "The key's RFC 7638 thumbprint."},
                    "use": {"const": "sig"},
                    "alg": {"const": "RS256"},
                    "n": _TEXT,
                    "e": _TEXT,
                },
                "required": ["kty", "kid", "use", "alg", "n", "e"],
            },
        }
    },
    "required": ["keys"],
}
_CACHE = OpenApiParameter(
    "Cache-Control",
    str,
    OpenApiParameter.HEADER,
    response=[200, 304],
    description=f"`{CACHE_CONTROL}`",
)


class KeysView(ForEverybody, APIView):
    """Serves the keys without authentication and without a query: the ring reads the rows every few seconds."""

    @extend_schema(
        operation_id="keys",
        parameters=[_CACHE],
        responses={
            (200, CONTENT_TYPE): _KEYS,
            304: OpenApiResponse(description="The set has not changed since `If-None-Match`."),
        },
        tags=["access"],
    )
    def get(self, request: Request) -> HttpResponseBase:
        """The public keys that verify access tokens."""
        body, etag = ring.jwks(now=timezone.now())
        response = HttpResponse(body, content_type=CONTENT_TYPE)
        response["ETag"] = etag
        response["Cache-Control"] = CACHE_CONTROL
        return unless_known(request, response)
