"""The HTTP view of the licence. Every shell polls it once a minute, so it runs one query and writes nothing."""

from django.http import HttpResponse, HttpResponseNotModified
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from config.platform.api.etags import is_known, tag_of
from config.platform.api.views import ViewSet
from licensing.callers import caller_of
from licensing.serializers import LicenceStatusSerializer

# One for all answers: making a serializer's fields anew takes as long as filling them.
_STATUS = LicenceStatusSerializer()


class LicenceViewSet(ViewSet):
    """The caller's licence."""

    @extend_schema(
        operation_id="license_status",
        parameters=[OpenApiParameter("If-None-Match", str, OpenApiParameter.HEADER)],
        responses={
            200: LicenceStatusSerializer,
            304: OpenApiResponse(description="Nothing has changed since the named ETag."),
        },
        tags=["licence"],
    )
    def status(self, request: Request) -> HttpResponse:
        """The shell's standing, and the micro apps that it may use."""
        answer = _STATUS.to_representation(caller_of(request))
        etag = tag_of(answer)
        response: HttpResponse = (
            HttpResponseNotModified() if is_known(request, etag) else Response(answer)
        )
        response["ETag"] = etag
        response["Cache-Control"] = "private, no-cache"
        return response
