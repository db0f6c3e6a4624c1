"""The request and response bodies of access."""

import re
from typing import Any
from uuid import UUID

from drf_spectacular.utils import extend_schema_field, extend_schema_serializer
from rest_framework import serializers
from rest_framework.request import Request

from accounts.models import Session
from accounts.sessions.sign_in import MAX_PASSWORD

DEVICE_MAX = 200
UUID_PATTERN = "[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"


def validated(serializer: type[serializers.Serializer[Any]], request: Request) -> dict[str, Any]:
    """The body of a request by a serializer; raises its validation errors."""
    body = serializer(data=request.data)
    body.is_valid(raise_exception=True)
    valid: dict[str, Any] = body.validated_data
    return valid


class TextField(serializers.CharField):
    """A string, as in the schema; REST framework's own field accepts numbers too."""

    def to_internal_value(self, data: Any) -> str:
        if not isinstance(data, str):
            self.fail("invalid")
        return str(super().to_internal_value(data))


class DeviceField(TextField):
    """The fingerprint of a device; optional."""

    def __init__(self, **kwargs: Any) -> None:
        kwargs |= {"allow_blank": True, "allow_null": True, "required": False}
        told = "A random name of the installation, the same in every sign-in and refresh."
        super().__init__(max_length=DEVICE_MAX, help_text=told, **kwargs)


@extend_schema_field({"type": "string", "format": "uuid", "pattern": f"^{UUID_PATTERN}$"})
class IdField(serializers.UUIDField):
    """A UUID in its usual spelling, as in the schema; REST framework's own field accepts numbers too."""

    def to_internal_value(self, data: Any) -> UUID:
        if not isinstance(data, str) or not re.fullmatch(UUID_PATTERN, data):
            self.fail("invalid", value=data)
        found: UUID = super().to_internal_value(data)
        return found


class LoginSerializer(serializers.Serializer[Any]):
    email = TextField(max_length=254)
    password = TextField(max_length=MAX_PASSWORD, trim_whitespace=False, write_only=True)
    device_fp = DeviceField()
    end_session = IdField(
        required=False,
        allow_null=True,
        help_text="After `device_limit_reached`: the `id` of the device to sign out for this one.",
    )


class AnyTokenField(TextField):
    """Any string; the rule refuses those that are not tokens."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(trim_whitespace=False, **kwargs)
        self.validators = []


class RefreshSerializer(serializers.Serializer[Any]):
    refresh = AnyTokenField()
    device_fp = DeviceField()


class LogoutSerializer(serializers.Serializer[Any]):
    refresh = AnyTokenField(allow_blank=True)


class TokenPairSerializer(serializers.Serializer[Any]):
    access = serializers.CharField(help_text="Access token (a JWT), for the Authorization header.")
    refresh = serializers.CharField(
        help_text="Refresh token: good for one use at /v1/auth/refresh."
    )
    expires_in = serializers.IntegerField(help_text="Seconds that the access token lasts.")


class ClientSerializer(serializers.Serializer[Any]):
    id = serializers.UUIDField(source="client_id")
    name = serializers.CharField(source="client_name")


class MeSerializer(serializers.Serializer[Any]):
    id = serializers.UUIDField(source="user_id")
    email = serializers.CharField()
    client = ClientSerializer(source="*")


class SessionSerializer(serializers.Serializer[Any]):
    id = serializers.UUIDField()
    device_fp = serializers.CharField(allow_blank=True)
    started_at = serializers.DateTimeField()
    last_used_at = serializers.DateTimeField()
    current = serializers.SerializerMethodField(help_text="Whether this request uses the session.")

    def get_current(self, session: Session) -> bool:
        return bool(session.pk == self.context["current"])


@extend_schema_serializer(many=False)
class SessionListSerializer(serializers.Serializer[Any]):
    sessions = SessionSerializer(many=True)


class PasswordChangeSerializer(serializers.Serializer[Any]):
    current = TextField(max_length=MAX_PASSWORD, trim_whitespace=False, write_only=True)
    new = TextField(max_length=MAX_PASSWORD, trim_whitespace=False, write_only=True)


class PasswordResetSerializer(serializers.Serializer[Any]):
    email = TextField(max_length=254)
