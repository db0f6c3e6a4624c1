"""Micro apps over HTTP: parse, one rule, render."""

import base64
from hashlib import blake2b
from json import dumps
from typing import cast
from uuid import UUID

from django.http import HttpResponse, HttpResponseBase
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework.permissions import IsAuthenticated
from rest_framework.request import Request
from rest_framework.viewsets import ViewSet

from config.api.etags import unless_known
from config.api.schema import problems
from licensing.callers import caller_of
from licensing.permissions import LicenceWorks, NotEntitled
from releases.micro_apps.offers import Offer, offered
from releases.micro_apps.serializers import AppManifestSerializer, AppQuerySerializer


class AppViewSet(ViewSet):
    """What a shell installs beside itself."""

    permission_classes = (IsAuthenticated, LicenceWorks)

    @problems("licence_suspended", "not_entitled", "not_found")
    @extend_schema(
        operation_id="app_manifest",
        parameters=[
            OpenApiParameter("slug", str, OpenApiParameter.PATH),
            AppQuerySerializer,
            OpenApiParameter("If-None-Match", str, OpenApiParameter.HEADER),
        ],
        responses={
            200: AppManifestSerializer,
            304: OpenApiResponse(description="Nothing has changed since the named ETag."),
        },
        tags=["releases"],
    )
    def manifest(self, request: Request, slug: str) -> HttpResponseBase:
        """The version of an app that the caller is to run: pinned for its client, else its plan, else the channel's."""
        query = AppQuerySerializer(data=request.query_params)
        query.is_valid(raise_exception=True)
        caller = caller_of(request)
        if slug not in caller.entitlements:
            # Known or not: what others may use is nobody's business.
            raise NotEntitled
        offer = offered(
            slug=slug,
            client_id=cast("UUID", caller.client_id),
            plan_id=cast("int", caller.plan_id),
            channel=query.validated_data["channel"],
        )
        body = dumps(_manifest(offer)).encode()
        etag = f'"{blake2b(body, digest_size=16).hexdigest()}"'
        response = HttpResponse(body, content_type="application/json")
        response["ETag"] = etag
        response["Cache-Control"] = "private, no-cache"
        return unless_known(request, response)


def _manifest(offer: Offer) -> dict[str, str]:
    return {
        "version": offer.version,
        "url": offer.url,
        "sig": base64.b64encode(offer.signature).decode(),
        "sha256": offer.sha256,
    }
