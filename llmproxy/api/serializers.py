"""The list of models, in OpenAI's shape."""

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
