"""Shapes of micro apps."""

from typing import Any

from rest_framework import serializers

from releases.models import AppChannel


class AppQuerySerializer(serializers.Serializer[Any]):
    """Which channel; a pin wins over it."""

    channel = serializers.ChoiceField(choices=AppChannel.Name.values, default="stable")


class AppManifestSerializer(serializers.Serializer[Any]):
    """A version of an app and how to verify it."""

    version = serializers.CharField(help_text="SemVer.")
    url = serializers.URLField(help_text="The bundle at the CDN; it never changes.")
    sig = serializers.CharField(help_text="Base64 of the bundle's minisign file.")
    sha256 = serializers.CharField(help_text="Of the bundle, in lower-case hex.")
