"""The licence over HTTP. Every shell asks once a minute, so this reads one row and writes nothing."""

from hashlib import blake2b
from json import dumps
from typing import Any, cast

from django.conf import settings
from django.http import HttpRequest, HttpResponse, HttpResponseBase, HttpResponseNotModified
from django.utils.cache import get_conditional_response
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework.permissions import IsAuthenticated
from rest_framework.request import Request

from config.problems import instant
from config.viewsets import ViewSet
from licensing.callers import Caller, caller_of
from licensing.serializers import LicenceStatusSerializer

CONDITIONS = (
    "HTTP_IF_MATCH",
    "HTTP_IF_NONE_MATCH",
    "HTTP_IF_MODIFIED_SINCE",
    "HTTP_IF_UNMODIFIED_SINCE",
)


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
        response = _unchanged(request, etag) or HttpResponse(
            dumps(_status(caller)).encode(), content_type="application/json"
        )
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


def _unchanged(request: Request, etag: str) -> HttpResponseBase | None:
    """What to say in place of the answer, if it has a condition that does not hold."""
    told = request.META
    if told.get("HTTP_IF_NONE_MATCH") == etag and "HTTP_IF_MATCH" not in told:
        # As nearly every shell asks. Only GET and HEAD come here. It has no content, of no type: none is to be found.
        return HttpResponseNotModified(content_type="")
    if told.keys().isdisjoint(CONDITIONS):
        return None
    # Only headers and method are looked at, which the framework's request lends.
    return get_conditional_response(cast("HttpRequest", request), etag=etag)


def _status(caller: Caller) -> dict[str, Any]:
    status = {"status": caller.status, "plan": caller.plan, "entitlements": caller.entitlements}
    if caller.grace_until is not None:
        status["grace_until"] = instant(caller.grace_until)
    return status
