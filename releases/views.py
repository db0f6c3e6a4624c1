"""Views of publishing and of update checks."""

from typing import Any, cast

from django.http import HttpResponse
from django.utils import timezone
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.serializers import Serializer

from config.platform.api.etags import unless_known
from config.platform.api.schema import problems
from config.platform.api.views import ForEverybody, ViewSet
from config.platform.problems.problem import MalformedRequest
from releases.delivery.storage import POINTER_CACHE
from releases.pipeline.authentication import Publisher, PublisherAuthentication, actor_of
from releases.pipeline.submissions import SIGNATURE_HEADER, Submission
from releases.publishing import publish
from releases.schema import MANIFEST
from releases.serializers import PublishedSerializer, PublishQuerySerializer, UpdateQuerySerializer
from releases.updates import offered

_CACHE = OpenApiParameter(
    "Cache-Control", str, OpenApiParameter.HEADER, response=[200, 204], default=POINTER_CACHE
)


class PublishViewSet(ViewSet):
    """Publishes releases of the shell for their pipeline."""

    authentication_classes = (PublisherAuthentication,)

    @problems(
        "not_configured",
        "version_conflict",
        "downgrade_refused",
        "publish_in_progress",
        "channel_halted",
        "artifact_rejected",
    )
    @extend_schema(
        operation_id="publish_manifest",
        parameters=[
            PublishQuerySerializer,
            OpenApiParameter(
                SIGNATURE_HEADER,
                str,
                OpenApiParameter.HEADER,
                required=True,
                description="Base64 of the minisign signature of the body.",
            ),
        ],
        request={"application/json": MANIFEST},
        responses={
            200: OpenApiResponse(
                PublishedSerializer,
                description="The channel serves this already, or it was a dry run.",
            ),
            201: OpenApiResponse(PublishedSerializer, description="Published."),
        },
        tags=["releases"],
    )
    def publish(self, request: Request) -> Response:
        """Publish a manifest, after verification with its artifacts."""
        # Reads the bytes before a parser consumes the stream.
        body = request.body
        if not body:
            raise MalformedRequest("The body must be a JSON object; it was empty.")
        query = _query(PublishQuerySerializer, request)
        submission = Submission(
            channel=query["ch"],
            body=body,
            document=cast("dict[str, Any]", request.data),
            signature=request.headers.get(SIGNATURE_HEADER, ""),
            rollback=query["rollback"],
            dry_run=query["dry_run"],
            share=query["share"],
            token=cast("Publisher", request.user).token,
        )
        by = actor_of(request, cast("Publisher", request.user).name)
        done = publish(submission=submission, by=by, now=timezone.now())
        return Response(PublishedSerializer(done).data, status=201 if done.created else 200)


class UpdateViewSet(ForEverybody, ViewSet):
    """Answers update checks of shells, directly or behind a CDN."""

    @problems("not_found")
    @extend_schema(
        operation_id="update_manifest",
        parameters=[
            UpdateQuerySerializer,
            OpenApiParameter("If-None-Match", str, OpenApiParameter.HEADER),
            _CACHE,
            OpenApiParameter(
                SIGNATURE_HEADER,
                str,
                OpenApiParameter.HEADER,
                response=[200],
                description="Base64 of the minisign signature of the manifest.",
            ),
        ],
        responses={
            200: OpenApiResponse(MANIFEST, description="The manifest, byte for byte."),
            204: OpenApiResponse(
                description="The shell has this version or a newer one, or the channel has no release or is halted."
            ),
            304: OpenApiResponse(description="Nothing has changed since the named ETag."),
        },
        tags=["releases"],
    )
    def manifest(self, request: Request) -> HttpResponse:
        """The manifest of a channel, with its signature."""
        query = _query(UpdateQuerySerializer, request)
        offer, cache = offered(
            channel=query["ch"],
            system=query["os"],
            arch=query.get("arch"),
            current_version=query.get("current_version"),
            version=query.get("version"),
            install_id=query.get("install_id"),
        )
        if offer is None:
            response = HttpResponse(status=204, headers={"Cache-Control": cache})
            del response["Content-Type"]
            return response
        headers = {"Cache-Control": cache, "ETag": offer.etag, SIGNATURE_HEADER: offer.signature}
        response = HttpResponse(offer.manifest, content_type="application/json", headers=headers)
        return unless_known(request, response)


def _query(serializer: type[Serializer[Any]], request: Request) -> dict[str, Any]:
    given = serializer(data=request.query_params)
    given.is_valid(raise_exception=True)
    valid: dict[str, Any] = given.validated_data
    return valid
