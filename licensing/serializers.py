"""The response body of the licence."""

from typing import Any

from rest_framework import serializers

from licensing.models import Standing


class LicenceStatusSerializer(serializers.Serializer[Any]):
    status = serializers.ChoiceField(choices=Standing.choices)
    plan = serializers.CharField()
    entitlements = serializers.ListField(
        child=serializers.CharField(), help_text="Micro-app slugs, sorted."
    )
    grace_until = serializers.DateTimeField(
        required=False, help_text="When the grace ends; there exactly when the status is grace."
    )

    def to_representation(self, instance: Any) -> Any:
        """The members that have a value."""
        shown = super().to_representation(instance)
        return {name: value for name, value in shown.items() if value is not None}
