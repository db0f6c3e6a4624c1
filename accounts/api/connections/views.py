"""The HTTP views of connections."""

from datetime import datetime
from typing import cast

from django.utils import timezone
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.api.connections.serializers import (
    AccessSerializer,
    AuthorizationSerializer,
    AuthorizeSerializer,
    CompleteSerializer,
    ConnectionListSerializer,
    ConnectionSerializer,
    ConnectionTokenSerializer,
)
from accounts.api.serializers import validated
from accounts.connections.authorisation import begin
from accounts.connections.disconnecting import disconnect
from accounts.connections.grants import access_token, complete
from accounts.connections.providers import configured
from accounts.hooks import Caller
from accounts.models import Connection
from accounts.people.operators import actor_of
from accounts.sessions.access_tokens import AccessToken
from accounts.sessions.authentication import still_there
from config.platform.api.schema import no_content, problems
from config.platform.api.views import ViewSet
from config.platform.edge.ratelimits import limits as ratelimits

PROVIDER = OpenApiParameter(
    "provider",
    {"type": "string", "pattern": "^[-a-zA-Z0-9_]+$"},
    OpenApiParameter.PATH,
    description="A name from `providers` of the list.",
)
FAILURES = ("not_configured", "provider_error", "provider_unavailable", "provider_timeout")
UNSHARED = {"Cache-Control": "no-store", "Pragma": "no-cache"}


@extend_schema(tags=["connections"])
class ConnectionViewSet(ViewSet):
    """The caller's connections to third parties. A shell receives access tokens only; all other secrets stay here."""

    @extend_schema(operation_id="connections", responses=ConnectionListSerializer)
    def list(self, request: Request) -> Response:
        """The caller's connections, and the providers that can be connected."""
        rows = Connection.objects.filter(user=request.user.pk).order_by("provider")
        providers = sorted(configured())
        shape = ConnectionListSerializer(
            {"connections": rows, "providers": providers},
            context={"now": timezone.now(), "configured": providers},
        )
        return Response(shape.data, headers={"Cache-Control": "private, no-cache"})

    @problems("not_configured")
    @extend_schema(
        operation_id="authorize_connection",
        parameters=[PROVIDER],
        request=AuthorizeSerializer,
        responses=AuthorizationSerializer,
    )
    def authorize(self, request: Request, provider: str) -> Response:
        """Start an authorisation, to be completed within ten minutes, and get the address for the person's browser."""
        given = validated(AuthorizeSerializer, request)
        with still_there():
            begun = begin(
                user_id=_caller(request).user_id,
                session_id=cast("AccessToken", request.auth).session_id,
                provider=provider,
                redirect_uri=given["redirect_uri"],
                now=timezone.now(),
            )
        return Response(AuthorizationSerializer(begun).data, headers=UNSHARED)

    @problems("state_invalid", "provider_rejected", *FAILURES)
    @extend_schema(
        operation_id="complete_connection",
        parameters=[PROVIDER],
        request=CompleteSerializer,
        responses={201: ConnectionSerializer},
    )
    def complete(self, request: Request, provider: str) -> Response:
        """Complete an authorisation with the parameters of the provider's redirect."""
        given = validated(CompleteSerializer, request)
        now = timezone.now()
        _count(request, now)
        connection = complete(
            user_id=_caller(request).user_id,
            session_id=cast("AccessToken", request.auth).session_id,
            provider=provider,
            code=given["code"],
            state=given["state"],
            issuer=given.get("iss"),
            by=actor_of(request),
            now=now,
        )
        shape = ConnectionSerializer(connection, context={"now": now, "configured": configured()})
        return Response(shape.data, status=201, headers=UNSHARED)

    @problems("connection_not_found", "reauthorisation_needed", *FAILURES)
    @extend_schema(
        operation_id="connection_token",
        parameters=[PROVIDER],
        request={"application/json": ConnectionTokenSerializer},
        responses=AccessSerializer,
    )
    def token(self, request: Request, provider: str) -> Response:
        """An access token for the third party, renewed if necessary. The body may be left out."""
        given = validated(ConnectionTokenSerializer, request)
        now = timezone.now()
        access = access_token(
            user_id=_caller(request).user_id,
            provider=provider,
            refused=given.get("refused"),
            before_asking=lambda: _count(request, now),
            by=actor_of(request),
            now=now,
        )
        return Response(AccessSerializer(access).data, headers=UNSHARED)

    @problems("connection_not_found")
    @extend_schema(
        operation_id="disconnect",
        parameters=[PROVIDER],
        responses=no_content(
            "Deleted here, and revoked at the provider as soon as it can be reached."
        ),
    )
    def destroy(self, request: Request, provider: str) -> Response:
        """Disconnect."""
        disconnect(
            user_id=_caller(request).user_id,
            provider=provider,
            by=actor_of(request),
            now=timezone.now(),
        )
        return Response(status=204)


def _caller(request: Request) -> Caller:
    return cast("Caller", request.user)


def _count(request: Request, now: datetime) -> None:
    """Counts a call that reaches the third party. Raises ``RateLimited``."""
    ratelimits.count("connections.user", key=str(_caller(request).user_id), now=now)
