"""Serializers of publishing and of update checks."""

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from releases.models import CHANNEL, CHANNEL_LENGTH
from releases.versions import MAX_LENGTH, STRICT


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


class PublishedSerializer(serializers.Serializer[Any]):
    """The current release of a channel."""

    channel = serializers.CharField()
    version = serializers.CharField()
    url = serializers.URLField(help_text="The manifest's address at the CDN.")
    purged = serializers.BooleanField(
        allow_null=True,
        help_text="Whether the CDN serves it already; null for a dry run or without a configured purge.",
    )


@extend_schema_field({"type": "string", "maxLength": MAX_LENGTH, "pattern": f"^{STRICT.pattern}$"})
class VersionField(serializers.CharField):
    """A strict SemVer version, which the rule validates."""


class UpdateQuerySerializer(serializers.Serializer[Any]):
    """The shell that checks for an update. Unknown names are not faults: there is no update for them."""

    ch = serializers.CharField(help_text="The channel, as `stable`.")
    os = serializers.CharField(help_text="As `darwin`, `linux` or `windows`.")
    arch = serializers.CharField(required=False, help_text="As `aarch64`; default: any.")
    current_version = VersionField(
        required=False, help_text="The version of the shell; 204 if it is not older."
    )
