"""The licence over HTTP. Every shell asks once a minute, so this reads one row and writes nothing."""

from hashlib import blake2b
from json import dumps
from typing import Any, cast

from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.utils.cache import get_conditional_response
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework.permissions import IsAuthenticated
from rest_framework.request import Request
from rest_framework.viewsets import ViewSet

from config.problems import instant
from licensing.callers import Caller, caller_of
from licensing.serializers import LicenceStatusSerializer


class LicenceViewSet(ViewSet):
    """The caller's licence."""

    permission_classes = (IsAuthenticated,)

    @extend_schema(
        operation_id="license_status",
        parameters=[OpenApiParameter("If-None-Match", str, OpenApiParameter.HEADER)],
        responses={
            200: LicenceStatusSerializer,
            304: OpenApiResponse(description="Nothing has changed since the named ETag."),
        },
        tags=["licence"],
    )
    def status(self, request: Request) -> HttpResponseBase:
        """What the shell may do now, and which micro apps it may use."""
        body = dumps(_status(caller_of(request))).encode()
        etag = f'"{blake2b(body, digest_size=16).hexdigest()}"'
        # Only headers and method are looked at, which the framework's request lends.
        asked = cast("HttpRequest", request)
        response = get_conditional_response(asked, etag=etag)
        response = response or HttpResponse(body, content_type="application/json")
        response["ETag"] = etag
        response["Cache-Control"] = "private, no-cache"
        return response


def _status(caller: Caller) -> dict[str, Any]:
    status = {"status": caller.status, "plan": caller.plan, "entitlements": caller.entitlements}
    if caller.grace_until is not None:
        status["grace_until"] = instant(caller.grace_until)
    return status
