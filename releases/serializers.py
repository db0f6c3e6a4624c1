"""Shapes of publishing and of update checks."""

from typing import Any

from rest_framework import serializers

from releases.models import CHANNEL, CHANNEL_LENGTH
from releases.platforms import ARCHITECTURES


def channel_field() -> serializers.RegexField:
    return serializers.RegexField(
        CHANNEL, max_length=CHANNEL_LENGTH, help_text="The channel, as `stable`."
    )


class PublishQuerySerializer(serializers.Serializer[Any]):
    """How to publish."""

    ch = channel_field()
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
        help_text="Whether the CDN serves it already; null where no purge is configured.",
    )


class UpdateQuerySerializer(serializers.Serializer[Any]):
    """Which shell asks."""

    ch = channel_field()
    os = serializers.ChoiceField(sorted(ARCHITECTURES))
    arch = serializers.CharField(
        required=False, max_length=40, help_text="As `aarch64`; any where it is left out."
    )
    current_version = serializers.CharField(
        required=False, max_length=120, help_text="What the shell has; 204 if that is not older."
    )
