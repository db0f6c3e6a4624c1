"""Embeddings of the stand-in provider: the same vector for the same text."""

from base64 import b64encode
from hashlib import sha256
from struct import pack
from typing import Any

from tests.standins.provider.answers import Answer, Json, dump, split


class Embeddings(Answer):
    """A vector for each text of a request, or for each list of tokens."""

    MEMBERS = frozenset({"model", "input", "dimensions", "encoding_format", "user"})

    @classmethod
    def as_chat(cls, body: Json) -> Json:
        if body.get("input") in ("", []):
            raise ValueError("'input' cannot be empty.")
        said = " ".join(each for each in _inputs(body) if isinstance(each, str))
        return {**body, "messages": [{"role": "user", "content": said}]}

    def _pieces(self, question: str) -> list[str]:
        return []

    def usage(self) -> Json:
        given = sum(
            len(split(each) if isinstance(each, str) else each) for each in _inputs(self.body)
        )
        return {"prompt_tokens": given, "completion_tokens": 0, "total_tokens": given}

    def completion(self) -> Json:
        made = [
            {"object": "embedding", "index": index, "embedding": self._vector(each)}
            for index, each in enumerate(_inputs(self.body))
        ]
        body: Json = {"object": "list", "data": made, "model": self.body["model"]}
        known = {name: self.usage()[name] for name in ("prompt_tokens", "total_tokens")}
        return {**body, "usage": known} if self.asked.usage == "yes" else body

    def _vector(self, given: Any) -> list[float] | str:
        size = self.body.get("dimensions") or 16
        seed = sha256(dump(given)).digest()
        # Exact in 32 bits, so that both encodings say the same.
        numbers = [seed[at % len(seed)] / 256 - 0.5 for at in range(size)]
        if self.body.get("encoding_format") == "base64":
            return b64encode(pack(f"<{size}f", *numbers)).decode()
        return numbers


def _inputs(body: Json) -> list[Any]:
    """The texts and lists of tokens."""
    given = body["input"]
    is_one = isinstance(given, str) or (bool(given) and isinstance(given[0], int))
    return [given] if is_one else [one if isinstance(one, str | list) else [one] for one in given]
