"""Views of micro apps."""

from typing import cast
from uuid import UUID

from django.http import HttpResponse
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework.permissions import IsAuthenticated
from rest_framework.request import Request
from rest_framework.response import Response

from config.platform.api.etags import tag_of, unless_known
from config.platform.api.schema import problems
from config.platform.api.views import ViewSet
from licensing.callers import caller_of
from licensing.permissions import LicenceWorks, NotEntitled
from releases.micro_apps.offers import offered
from releases.micro_apps.serializers import AppManifestSerializer, AppQuerySerializer


class AppViewSet(ViewSet):
    """Answers with the versions of micro apps that a shell installs."""

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
    def manifest(self, request: Request, slug: str) -> HttpResponse:
        """The caller's version of an app: pinned for its client, else for its plan, else the channel's."""
        query = AppQuerySerializer(data=request.query_params)
        query.is_valid(raise_exception=True)
        caller = caller_of(request)
        if slug not in caller.entitlements:
            # Also for apps that do not exist: the apps of others are private.
            raise NotEntitled
        offer = offered(
            slug=slug,
            client_id=cast("UUID", caller.client_id),
            plan_id=cast("int", caller.plan_id),
            channel=query.validated_data["channel"],
        )
        shown = AppManifestSerializer(offer).data
        headers = {"ETag": tag_of(*shown.values()), "Cache-Control": "private, no-cache"}
        return unless_known(request, Response(shown, headers=headers))
