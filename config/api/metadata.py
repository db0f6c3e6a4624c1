"""What OPTIONS tells beyond its ``Allow`` header."""

from typing import Any

from rest_framework.metadata import BaseMetadata


class NoMetadata(BaseMetadata):
    """Nothing: what a call takes is in the schema, and how it is done, which the library would tell, is ours."""

    def determine_metadata(self, request: Any, view: Any) -> dict[str, Any]:
        return {}
