"""The request and response bodies of connections. The only secret in a response is the requested access token."""

from typing import Any

from django.core.validators import RegexValidator
from drf_spectacular.utils import extend_schema_serializer
from rest_framework import serializers

from accounts.api.serializers import TextField
from accounts.models import Connection

LONGEST_CODE = 4096
LONGEST_STATE = 200
LONGEST_ADDRESS = 200
LONGEST_TOKEN = 16 * 1024
# A pattern cannot express all of it; the rule also compares the provider's name.
CALLBACK = r"^http://127\.0\.0\.1:[1-9][0-9]{0,4}/oauth/[a-z0-9][a-z0-9_-]{0,39}/callback$"


class PrintableField(TextField):
    """A text of OAuth 2.0 (RFC 6749, appendix A): printable ASCII, unstripped."""

    def __init__(self, **kwargs: Any) -> None:
        printable = RegexValidator("^[ -~]*$", "Printable ASCII characters only.")
        super().__init__(trim_whitespace=False, validators=[printable], **kwargs)


class AuthorizeSerializer(serializers.Serializer[Any]):
    redirect_uri = TextField(
        max_length=LONGEST_ADDRESS,
        trim_whitespace=False,
        validators=[RegexValidator(CALLBACK, "Must be the shell's own callback on 127.0.0.1.")],
        help_text=(
            "`http://127.0.0.1:<port>/oauth/<provider>/callback`, where the shell listens, in exactly this "
            "form, with a port from 1 to 65535."
        ),
    )


class AuthorizationSerializer(serializers.Serializer[Any]):
    authorization_url = serializers.CharField(help_text="Address to open in the person's browser.")
    state = serializers.CharField(
        help_text="Returned in the redirect; good for one use by this session."
    )
    expires_at = serializers.DateTimeField(help_text="Time limit for the completion.")


class CompleteSerializer(serializers.Serializer[Any]):
    code = PrintableField(max_length=LONGEST_CODE, write_only=True)
    state = PrintableField(max_length=LONGEST_STATE, write_only=True)
    iss = PrintableField(
        max_length=LONGEST_ADDRESS,
        required=False,
        allow_null=True,
        help_text=(
            "`iss` of the redirect, if the provider sends it (RFC 9207). Required of providers that are known to "
            "send it: `state_invalid` without."
        ),
    )


class ConnectionSerializer(serializers.Serializer[Any]):
    provider = serializers.CharField()
    state = serializers.SerializerMethodField(
        help_text=(
            "`unavailable`: the last call to the provider failed, and the grant stays; "
            "`reauthorisation_needed`: authorize again, for the provider refuses the grant, or has refused it for six "
            "hours without a known reason."
        )
    )
    scopes = serializers.ListField(
        child=serializers.CharField(),
        help_text="Scopes that the provider granted, one word each, sorted.",
    )
    connected_at = serializers.DateTimeField(help_text="Time of the person's last consent.")
    refreshed_at = serializers.DateTimeField(help_text="Time of the provider's last tokens.")

    def get_state(self, connection: Connection) -> Connection.State:
        state = connection.state(at=self.context["now"])
        is_set_up = connection.provider in self.context["configured"]
        if state == Connection.State.HEALTHY and not is_set_up:
            return Connection.State.UNAVAILABLE
        return state


@extend_schema_serializer(many=False)
class ConnectionListSerializer(serializers.Serializer[Any]):
    connections = ConnectionSerializer(
        many=True, help_text="The caller's connections, by provider."
    )
    providers = serializers.ListField(
        child=serializers.CharField(), help_text="Providers that can be connected, sorted."
    )


class ConnectionTokenSerializer(serializers.Serializer[Any]):
    refused = PrintableField(
        max_length=LONGEST_TOKEN,
        required=False,
        allow_null=True,
        write_only=True,
        help_text=(
            "The access token that the third party refused. If it is still the current one, it is "
            "renewed early."
        ),
    )


class AccessSerializer(serializers.Serializer[Any]):
    access_token = serializers.CharField(help_text="A bearer token for the third party's API.")
    expires_at = serializers.DateTimeField(
        allow_null=True,
        help_text="Request a new token by then; null for a token that does not expire.",
    )
