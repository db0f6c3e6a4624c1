"""The response body of the licence."""

from typing import Any

from rest_framework import serializers

from licensing.models import ShellNotice, Standing
from licensing.models.notices import MAX_MESSAGE


class LicenceMessageSerializer(serializers.Serializer[Any]):
    """A message of the operators to the people at their shells."""

    id = serializers.UUIDField(help_text="Another one for each text.")
    level = serializers.ChoiceField(choices=ShellNotice.Level.choices)
    text = serializers.CharField(max_length=MAX_MESSAGE, help_text="Plain text.")
    until = serializers.DateTimeField(required=False, help_text="When to stop showing it.")


class LicenceShellSerializer(serializers.Serializer[Any]):
    """The members of a shell's update check that operators decide."""

    channel = serializers.CharField(
        required=False, help_text="As `ch`; else the one it was built for."
    )
    version = serializers.CharField(required=False, help_text="As `version`; else the newest.")


class LicenceStatusSerializer(serializers.Serializer[Any]):
    status = serializers.ChoiceField(choices=Standing.choices)
    plan = serializers.CharField()
    entitlements = serializers.ListField(
        child=serializers.CharField(), help_text="Micro-app slugs, sorted."
    )
    grace_until = serializers.DateTimeField(
        required=False,
        help_text="When the grace period ends; present exactly when the status is grace.",
    )

    seats = serializers.IntegerField(
        required=False,
        help_text="How many people of the client may be enabled, where there is a limit.",
    )
    devices = serializers.IntegerField(
        required=False,
        help_text="How many devices each person may be signed in on, where there is a limit.",
    )
    minimum_version = serializers.CharField(
        required=False, help_text="A shell below it shows only its update screen."
    )
    message = LicenceMessageSerializer(required=False)
    shell = LicenceShellSerializer(required=False)

    def to_representation(self, instance: Any) -> Any:
        """The members that have a value."""
        shown = super().to_representation(instance)
        return {name: value for name, value in shown.items() if value is not None}
