"""Serializers of micro apps."""

from base64 import b64encode
from typing import Any

from rest_framework import serializers

from releases.models import AppChannel


class AppQuerySerializer(serializers.Serializer[Any]):
    """The channel; a pin overrides it."""

    channel = serializers.ChoiceField(choices=AppChannel.Name.values, default="stable")


class Base64Field(serializers.CharField):
    """Bytes as base64."""

    def to_representation(self, value: Any) -> str:
        return b64encode(value).decode()


class AppManifestSerializer(serializers.Serializer[Any]):
    """A version of an app, with its signature and checksum."""

    version = serializers.CharField(help_text="SemVer.")
    url = serializers.URLField(help_text="The bundle at the CDN; it never changes.")
    sig = Base64Field(source="signature", help_text="Base64 of the bundle's minisign file.")
    sha256 = serializers.CharField(help_text="Of the bundle, in lower-case hex.")
