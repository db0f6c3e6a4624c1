"""Shapes of publishing and of update checks."""

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from releases.models import CHANNEL, CHANNEL_LENGTH
from releases.versions import MAX_LENGTH, STRICT


class PublishQuerySerializer(serializers.Serializer[Any]):
    """How to publish."""

    ch = serializers.RegexField(
        CHANNEL, max_length=CHANNEL_LENGTH, help_text="The channel, as `stable`."
    )
    rollback = serializers.BooleanField(
        default=False, help_text="Publish although the channel has a newer version."
    )
    dry_run = serializers.BooleanField(
        default=False, help_text="Check everything and change nothing."
    )


class PublishedSerializer(serializers.Serializer[Any]):
    """What a channel serves now."""

    channel = serializers.CharField()
    version = serializers.CharField()
    url = serializers.URLField(help_text="The manifest's address at the CDN.")
    purged = serializers.BooleanField(
        allow_null=True,
        help_text="Whether the CDN serves it already; null where no purge is configured, and for a dry run.",
    )


@extend_schema_field({"type": "string", "maxLength": MAX_LENGTH, "pattern": f"^{STRICT.pattern}$"})
class VersionField(serializers.CharField):
    """A strict SemVer version; the rule says what is wrong with one that is none."""


class UpdateQuerySerializer(serializers.Serializer[Any]):
    """Which shell asks. A name that nobody knows is no fault: there is no update for it."""

    ch = serializers.CharField(help_text="The channel, as `stable`.")
    os = serializers.CharField(help_text="As `darwin`, `linux` or `windows`.")
    arch = serializers.CharField(
        required=False, help_text="As `aarch64`; any where it is left out."
    )
    current_version = VersionField(
        required=False, help_text="What the shell has; 204 if that is not older."
    )
