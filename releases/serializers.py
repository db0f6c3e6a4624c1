"""Serializers of publishing and of update checks."""

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers
from rest_framework.fields import empty

from config.platform.text.versions import MAX_LENGTH, STRICT
from releases.models import CHANNEL, CHANNEL_LENGTH, WHOLE


class ShareField(serializers.IntegerField):
    """A number; an empty one, as of a pipeline's variable that is not set, is refused: it is no hundred."""

    def get_value(self, dictionary: Any) -> Any:
        return dictionary.get(self.field_name, empty)


class PublishQuerySerializer(serializers.Serializer[Any]):
    """Options of a publish."""

    ch = serializers.RegexField(
        CHANNEL, max_length=CHANNEL_LENGTH, help_text="The channel, as `stable`."
    )
    rollback = serializers.BooleanField(
        default=False, help_text="Publish even if the channel has a newer version."
    )
    dry_run = serializers.BooleanField(
        default=False, help_text="Check everything and change nothing."
    )
    share = ShareField(
        min_value=1,
        max_value=WHOLE,
        default=WHOLE,
        help_text="Percent of the shells to offer it to, by `install_id`. Operators raise it; a repeat does not.",
    )

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if attrs["rollback"] and attrs["share"] < WHOLE:
            fault = "An older version is offered to all shells: leave out share or rollback."
            raise serializers.ValidationError({"share": fault})
        return attrs


class PublishedSerializer(serializers.Serializer[Any]):
    """The current release of a channel."""

    channel = serializers.CharField()
    version = serializers.CharField()
    url = serializers.URLField(help_text="The manifest's address at the CDN.")
    share = serializers.IntegerField(
        help_text="Percent of the shells that are offered it. Below 100 the CDN keeps the previous release."
    )
    purged = serializers.BooleanField(
        allow_null=True,
        help_text="Whether the CDN serves it already; null for a dry run, a share below 100, or no configured purge.",
    )


@extend_schema_field({"type": "string", "maxLength": MAX_LENGTH, "pattern": f"^{STRICT.pattern}$"})
class VersionField(serializers.CharField):
    """A strict SemVer version, which the rule validates."""


@extend_schema_field({"type": "string", "pattern": r"^[^\u0000]*$"})
class NameField(serializers.CharField):
    """Any name; an address cannot have a NUL character."""


class UpdateQuerySerializer(serializers.Serializer[Any]):
    """The shell that checks for an update. Unknown names are not faults: there is no update for them."""

    ch = NameField(help_text="The channel, as `stable`.")
    os = NameField(help_text="As `darwin`, `linux` or `windows`.")
    arch = NameField(required=False, help_text="As `aarch64`; default: any.")
    current_version = VersionField(
        required=False, help_text="The version of the shell; 204 if it is not older."
    )
    version = VersionField(
        required=False,
        help_text="The version that the client is pinned to (`shell.version` of the licence status): this published "
        "release of the channel, in place of what the channel offers.",
    )
    install_id = serializers.CharField(
        required=False,
        max_length=128,
        trim_whitespace=False,
        help_text="Opaque and always the same: decides whether a release for a share of the shells is offered.",
    )
