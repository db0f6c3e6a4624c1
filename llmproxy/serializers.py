"""The list of models, in OpenAI's shape."""

from typing import Any

from drf_spectacular.utils import extend_schema_serializer
from rest_framework import serializers


class ModelSerializer(serializers.Serializer[Any]):
    id = serializers.CharField(source="name")
    object = serializers.CharField(read_only=True, default="model")
    created = serializers.SerializerMethodField()
    owned_by = serializers.CharField(read_only=True, default="shell-backend")

    def get_created(self, model: Any) -> int:
        return int(model.created_at.timestamp()) if model.created_at else 0


@extend_schema_serializer(many=False)
class ModelListSerializer(serializers.Serializer[Any]):
    object = serializers.CharField(read_only=True, default="list")
    data = ModelSerializer(many=True)  # type: ignore[assignment] # OpenAI's name of the member
