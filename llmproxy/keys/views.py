"""The HTTP views of personal keys."""

from uuid import UUID

from django.utils import timezone
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.api.serializers import validated
from accounts.people.operators import actor_of
from accounts.sessions.authentication import still_there
from config.platform.api.schema import no_content, problems
from config.platform.api.views import ViewSet
from config.platform.problems.problem import NotFound
from licensing.callers import caller_of
from llmproxy.keys.personal_keys import MOST_DAYS, end_key, make_key
from llmproxy.keys.serializers import KeyListSerializer, MadeKeySerializer, NewKeySerializer
from llmproxy.models import PersonalKey


@extend_schema(tags=["personal keys"])
class KeyViewSet(ViewSet):
    """The caller's personal keys, for editors and command lines. A key itself is no access to them."""

    @extend_schema(operation_id="personal_keys", responses=KeyListSerializer)
    def list(self, request: Request) -> Response:
        """List the caller's live personal keys, the newest first."""
        keys = PersonalKey.objects.filter(user=request.user.pk).live(at=timezone.now())
        shape = KeyListSerializer({"keys": keys})
        return Response(shape.data, headers={"Cache-Control": "private, no-cache"})

    @problems("not_entitled", "too_many_keys")
    @extend_schema(
        operation_id="make_personal_key",
        request=NewKeySerializer,
        responses={201: MadeKeySerializer},
    )
    def create(self, request: Request) -> Response:
        """Make a personal key, good for model calls alone. The answer is the only one that shows it."""
        given = validated(NewKeySerializer, request)
        with still_there():
            made = make_key(
                caller=caller_of(request),
                name=given["name"],
                days=given.get("days") or MOST_DAYS,
                monthly_output_tokens=given.get("monthly_output_tokens"),
                by=actor_of(request),
                now=timezone.now(),
            )
        headers = {"Cache-Control": "no-store", "Pragma": "no-cache"}
        return Response(MadeKeySerializer(made).data, status=201, headers=headers)

    @problems("not_found")
    @extend_schema(
        operation_id="end_personal_key",
        parameters=[OpenApiParameter("id", UUID, OpenApiParameter.PATH)],
        responses=no_content("Ended; its running calls end within 15 s."),
    )
    def destroy(self, request: Request, id: UUID) -> Response:  # noqa: A002 - as the path says it
        """End one of the caller's personal keys."""
        now = timezone.now()
        mine = PersonalKey.objects.filter(user=request.user.pk, pk=id).select_related("user")
        key = mine.live(at=now).first()
        if key is None or not end_key(key=key, by=actor_of(request), now=now):
            raise NotFound("You have no such key.")
        return Response(status=204)
