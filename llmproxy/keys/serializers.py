"""The shapes of personal keys."""

from typing import Any

from drf_spectacular.utils import extend_schema_serializer
from rest_framework import serializers

from accounts.api.serializers import TextField
from llmproxy.keys.personal_keys import MOST_DAYS
from usage.limits import LEAST_OUTPUT

LARGEST = 2**63 - 1


class NumberField(serializers.IntegerField):
    """A whole number, as in the schema; REST framework's own field accepts strings too."""

    def to_internal_value(self, data: Any) -> int:
        if type(data) is not int:
            self.fail("invalid")
        return super().to_internal_value(data)


class NewKeySerializer(serializers.Serializer[Any]):
    name = TextField(max_length=60)
    days = NumberField(
        min_value=1,
        max_value=MOST_DAYS,
        required=False,
        allow_null=True,
        help_text=f"Days until it ends; without it {MOST_DAYS}.",
    )
    monthly_output_tokens = NumberField(
        min_value=LEAST_OUTPUT,
        max_value=LARGEST,
        required=False,
        allow_null=True,
        help_text="A cap of its own, at most yours; its calls count towards yours as well.",
    )


class MadeKeySerializer(serializers.Serializer[Any]):
    id = serializers.UUIDField(source="row.id")
    name = serializers.CharField(source="row.name")
    key = serializers.CharField(source="text", help_text="Shown only this once.")
    expires_at = serializers.DateTimeField(source="row.expires_at")


class KeySerializer(serializers.Serializer[Any]):
    id = serializers.UUIDField()
    name = serializers.CharField()
    created_at = serializers.DateTimeField()
    expires_at = serializers.DateTimeField()
    last_used_at = serializers.DateTimeField(allow_null=True, help_text="To the minute.")


@extend_schema_serializer(many=False)
class KeyListSerializer(serializers.Serializer[Any]):
    keys = KeySerializer(many=True)
