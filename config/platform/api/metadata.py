"""The answer to OPTIONS beyond its ``Allow`` header."""

from typing import Any

from rest_framework.metadata import BaseMetadata


class NoMetadata(BaseMetadata):
    """Returns no metadata: the schema describes calls, and the library's answer would describe internals."""

    def determine_metadata(self, request: Any, view: Any) -> dict[str, Any]:
        return {}
