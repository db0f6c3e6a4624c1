"""The HTTP views of sign-in, sessions and passwords."""

from typing import Any, cast
from uuid import UUID

from django.utils import timezone
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.permissions import AllowAny
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.api.serializers import (
    LoginSerializer,
    LogoutSerializer,
    MeSerializer,
    PasswordChangeSerializer,
    PasswordResetSerializer,
    RefreshSerializer,
    SessionListSerializer,
    TokenPairSerializer,
    validated,
)
from accounts.device_names import device_name
from accounts.hooks import Caller
from accounts.models import Session
from accounts.people.operators import actor_of
from accounts.people.password_links import request_reset
from accounts.people.users import WrongPassword, change_password
from accounts.sessions.access_tokens import AccessToken
from accounts.sessions.authentication import still_there
from accounts.sessions.known_places import limits_of_holder
from accounts.sessions.retries import LONGEST_KEY, SHORTEST_KEY, checked_key
from accounts.sessions.revocation import end_session, revoke_all, sign_out
from accounts.sessions.rotation import rotate
from accounts.sessions.sign_in import Device, InvalidCredentials, TokenPair, account_of, sign_in
from config.platform.api.schema import no_content, problems
from config.platform.api.views import ViewSet
from config.platform.edge.outermost import FORGET
from config.platform.edge.ratelimits.failed_logins import attempt
from config.platform.problems.problem import NotFound
from config.platform.request.client_address import address_of
from config.platform.request.request_id import current as request_id

IDEMPOTENCY_KEY = OpenApiParameter(
    "Idempotency-Key",
    {"type": "string", "minLength": SHORTEST_KEY, "maxLength": LONGEST_KEY, "pattern": "^[!-~]*$"},
    OpenApiParameter.HEADER,
    description=(
        "A random key that the caller chooses before the call. After a lost answer, the same token and key get "
        "the same successor again, for 24 hours or until that successor is used."
    ),
)


@extend_schema(tags=["access"])
class AccessViewSet(ViewSet):
    """Login, refresh and logout, without an access token."""

    authentication_classes = ()
    permission_classes = (AllowAny,)

    @problems("invalid_credentials", "device_limit_reached", "not_found")
    @extend_schema(operation_id="login", request=LoginSerializer, responses=TokenPairSerializer)
    def login(self, request: Request) -> Response:
        """Sign in with email and password."""
        given = validated(LoginSerializer, request)
        email, device, now = given["email"], _device(request, given), timezone.now()
        account = account_of(email, device=device)
        with attempt(*account.limits, failing=InvalidCredentials, now=now):
            return _tokens(
                sign_in(
                    email=email,
                    password=given["password"],
                    device=device,
                    end_session=given.get("end_session"),
                    now=now,
                    account=account,
                )
            )

    @problems("invalid_refresh_token")
    @extend_schema(
        operation_id="refresh",
        parameters=[IDEMPOTENCY_KEY],
        request=RefreshSerializer,
        responses=TokenPairSerializer,
    )
    def refresh(self, request: Request) -> Response:
        """Exchange a refresh token for the next pair. Each refresh token is good for one use."""
        given = validated(RefreshSerializer, request)
        return _tokens(
            rotate(
                presented=given["refresh"],
                device=_device(request, given),
                retry_key=checked_key(request.META.get("HTTP_IDEMPOTENCY_KEY")),
                now=timezone.now(),
            )
        )

    @extend_schema(
        operation_id="logout",
        request=LogoutSerializer,
        responses=no_content("Signed out, whatever the token was."),
    )
    def logout(self, request: Request) -> Response:
        """End the session of a refresh token."""
        given = validated(LogoutSerializer, request)
        sign_out(
            presented=given["refresh"],
            by_address=address_of(request),
            request_id=request_id(),
            now=timezone.now(),
        )
        return Response(status=204, headers=FORGET)


@extend_schema(tags=["access"])
class MeViewSet(ViewSet):
    """The caller."""

    @extend_schema(operation_id="me", responses=MeSerializer)
    def retrieve(self, request: Request) -> Response:
        """The signed-in person and their client."""
        shape = MeSerializer(request.user)
        return Response(shape.data, headers={"Cache-Control": "private, no-cache"})


@extend_schema(tags=["access"])
class SessionViewSet(ViewSet):
    """The caller's sessions."""

    @extend_schema(operation_id="sessions", responses=SessionListSerializer)
    def list(self, request: Request) -> Response:
        """The caller's live sessions, the newest first."""
        sessions = Session.objects.filter(user=request.user.pk).live(at=timezone.now())
        shape = SessionListSerializer(
            {"sessions": sessions}, context={"current": _session_of(request)}
        )
        return Response(shape.data, headers={"Cache-Control": "private, no-cache"})

    @problems("not_found")
    @extend_schema(
        operation_id="end_session",
        parameters=[OpenApiParameter("id", UUID, OpenApiParameter.PATH)],
        responses=no_content("Ended."),
    )
    def destroy(self, request: Request, id: UUID) -> Response:  # noqa: A002 - as the path says it
        """End one of the caller's sessions; the device has to sign in again."""
        now = timezone.now()
        session = Session.objects.filter(user=request.user.pk, pk=id).live(at=now).first()
        if session is None:
            raise NotFound("You have no such session.")
        with still_there():
            end_session(session=session, why=Session.Ended.LOGOUT, by=actor_of(request), now=now)
        return Response(status=204)

    @extend_schema(
        operation_id="end_all_sessions", responses=no_content("Every session has ended.")
    )
    def destroy_all(self, request: Request) -> Response:
        """Sign out everywhere: ends every session, this one included."""
        with still_there():
            revoke_all(
                user_id=cast("Caller", request.user).user_id,
                by=actor_of(request),
                reason="Signed out everywhere.",
                why=Session.Ended.LOGOUT,
                now=timezone.now(),
            )
        return Response(status=204)


@extend_schema(tags=["access"])
class PasswordViewSet(ViewSet):
    """The caller's own password."""

    @problems("rate_limited")
    @extend_schema(
        operation_id="change_password",
        request=PasswordChangeSerializer,
        responses=no_content("Changed; every session has ended."),
    )
    def change(self, request: Request) -> Response:
        """Change the caller's password, which ends every session, this one included."""
        given = validated(PasswordChangeSerializer, request)
        now = timezone.now()
        user_id = cast("Caller", request.user).user_id
        limits = limits_of_holder(user_id=user_id)
        with still_there(), attempt(*limits, failing=WrongPassword, now=now):
            change_password(
                user_id=user_id,
                current=given["current"],
                new=given["new"],
                by=actor_of(request),
                now=now,
            )
        return Response(status=204)


@extend_schema(tags=["access"])
class PasswordResetViewSet(ViewSet):
    """Resets a forgotten password by a mailed link."""

    authentication_classes = ()
    permission_classes = (AllowAny,)

    @extend_schema(
        operation_id="reset_password",
        request=PasswordResetSerializer,
        responses=no_content(
            "An email is queued if the email belongs to a user; the answer does not reveal it."
        ),
    )
    def reset(self, request: Request) -> Response:
        """Request a mailed link to set a new password, good for one use within 30 minutes."""
        given = validated(PasswordResetSerializer, request)
        request_reset(email=given["email"], address=address_of(request), request_id=request_id())
        return Response(status=204)


def _session_of(request: Request) -> UUID:
    return cast("AccessToken", request.auth).session_id


def _device(request: Request, given: dict[str, Any]) -> Device:
    agent = request.headers.get("User-Agent", "")[:200]
    return Device(
        fingerprint=given.get("device_fp") or "",
        # A text that names no device may be anything.
        agent=agent if device_name(agent) else "",
        address=address_of(request),
        request_id=request_id(),
    )


def _tokens(pair: TokenPair) -> Response:
    headers = {"Cache-Control": "no-store", "Pragma": "no-cache"}
    return Response(TokenPairSerializer(pair).data, headers=headers)
