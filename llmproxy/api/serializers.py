"""The list of models, in OpenAI's shape and in Anthropic's."""

from datetime import UTC, datetime
from typing import Any

from drf_spectacular.utils import extend_schema_serializer
from rest_framework import serializers

from llmproxy.requests.call_request import Surface


class ModelSerializer(serializers.Serializer[Any]):
    id = serializers.CharField(source="name")
    object = serializers.CharField(read_only=True, default="model")
    created = serializers.SerializerMethodField()
    owned_by = serializers.CharField(read_only=True, default="shell-backend")
    context_length = serializers.IntegerField(
        allow_null=True, help_text="Tokens of prompt and answer together; null where unknown."
    )
    max_output_tokens = serializers.IntegerField(
        help_text="The most output that a call may ask for, and gets where it names no limit."
    )
    surfaces = serializers.ListField(
        child=serializers.ChoiceField(choices=[each.value for each in Surface]),
        help_text="Where it answers: `chat`, `responses`, `messages`, `embeddings`.",
    )
    input_modalities = serializers.ListField(
        child=serializers.CharField(),
        help_text="What a prompt may hold, as far as is known; the model may take more.",
    )
    output_modalities = serializers.ListField(child=serializers.CharField())

    def get_created(self, model: Any) -> int:
        return int(model.created_at.timestamp()) if model.created_at else 0


@extend_schema_serializer(many=False)
class ModelListSerializer(serializers.Serializer[Any]):
    object = serializers.CharField(read_only=True, default="list")
    data = ModelSerializer(many=True)  # type: ignore[assignment] # OpenAI's name of the member


class MessageModelSerializer(serializers.Serializer[Any]):
    type = serializers.CharField(read_only=True, default="model")
    id = serializers.CharField(source="name")
    display_name = serializers.CharField(source="name")
    created_at = serializers.SerializerMethodField()
    lifecycle = serializers.CharField(read_only=True, default="active")
    max_input_tokens = serializers.IntegerField(source="context_length")
    max_tokens = serializers.IntegerField(source="max_output_tokens")

    def get_created_at(self, model: Any) -> datetime:
        # Anthropic's word for an unknown time.
        return model.created_at or datetime.fromtimestamp(0, UTC)


class MessageModelPageSerializer(serializers.Serializer[Any]):
    """The page of a list of models that Anthropic's SDKs ask for; without a limit, all that fit into the largest."""

    LARGEST = 1000

    limit = serializers.IntegerField(min_value=1, max_value=LARGEST, default=LARGEST)
    after_id = serializers.CharField(required=False, allow_blank=True)
    before_id = serializers.CharField(required=False, allow_blank=True)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if attrs.get("after_id") and attrs.get("before_id"):
            fault = (
                "A page begins after a model or ends before one: leave out before_id or after_id."
            )
            raise serializers.ValidationError({"before_id": fault})
        return attrs
