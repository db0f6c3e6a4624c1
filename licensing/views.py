"""The licence over HTTP. Every shell asks once a minute, so this reads one row and writes nothing."""

from hashlib import blake2b
from json import dumps
from typing import Any

from django.conf import settings
from django.http import HttpResponse, HttpResponseBase, HttpResponseNotModified
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework.permissions import IsAuthenticated
from rest_framework.request import Request
from rest_framework.viewsets import ViewSet

from config.api.etags import is_known
from config.api.problems import instant
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
        caller = caller_of(request)
        etag = _tag(caller)
        response: HttpResponseBase
        if is_known(request, etag):
            # It has no content, of no type: none is to be found.
            response = HttpResponseNotModified(content_type="")
        else:
            body = dumps(_status(caller)).encode()
            response = HttpResponse(body, content_type="application/json")
        response["ETag"] = etag
        response["Cache-Control"] = "private, no-cache"
        return response


def _tag(caller: Caller) -> str:
    """Of what the answer is made from, so that one which need not be sent need not be made; and of who makes it."""
    facts = (
        settings.VERSION,
        caller.status,
        caller.grace_until,
        caller.plan,
        caller.plan_entitlements,
        caller.own_entitlements,
    )
    return f'"{blake2b(repr(facts).encode(), digest_size=16).hexdigest()}"'


def _status(caller: Caller) -> dict[str, Any]:
    status = {"status": caller.status, "plan": caller.plan, "entitlements": caller.entitlements}
    if caller.grace_until is not None:
        status["grace_until"] = instant(caller.grace_until)
    return status
