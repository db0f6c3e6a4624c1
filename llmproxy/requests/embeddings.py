"""OpenAI's embeddings: checks a request, and keeps the members for the provider."""

from dataclasses import dataclass
from typing import Any, ClassVar

from llmproxy.requests.call_request import CallRequest, Surface
from llmproxy.requests.checking import RequestSchema
from llmproxy.requests.labels import labels_of

_SCHEMA = RequestSchema.read("embeddings", "EmbeddingsRequest")


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddingsRequest(CallRequest):
    """A request for embeddings, which make no output."""

    schema: ClassVar = _SCHEMA
    surface: Surface = Surface.EMBEDDINGS
    output_wanted: int | None = 0

    @property
    def prompt(self) -> dict[str, Any]:
        texts = (each for each in self._inputs if isinstance(each, str))
        parts = [{"type": "text", "text": each} for each in texts]
        return {"messages": [{"role": "user", "content": parts}]}

    @property
    def token_count(self) -> int:
        """The tokens that the caller has counted, which come in place of texts."""
        return sum(
            len(each) if isinstance(each, list) else isinstance(each, int) for each in self._inputs
        )

    @property
    def count(self) -> int:
        """Returns the number of vectors to expect: one for each input; a list of tokens is one input."""
        return 1 if isinstance(self._inputs[0], int) else len(self._inputs)

    @property
    def _inputs(self) -> list[Any]:
        given = self.members["input"]
        return given if isinstance(given, list) else [given]


def parse(data: dict[str, Any]) -> EmbeddingsRequest:
    """Returns the call. Raises ``InvalidRequest`` and ``MalformedRequest``."""
    unknown = _SCHEMA.check(data)
    members = {
        name: value
        for name, value in data.items()
        if value is not None and name not in {"model", "user"}
    }
    return EmbeddingsRequest(
        model=data.get("model"), members=members, unknown=unknown, labels=labels_of(data)
    )
