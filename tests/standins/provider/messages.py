"""Answers of the stand-in provider in Anthropic's Messages API: texts alone, one token an event."""

from collections.abc import Iterator

from tests.standins.provider.answers import Answer, Json, dump


class Message(Answer):
    """A message of one text. ``tests.standins.messages_provider`` calls tools and counts tokens."""

    MEMBERS = frozenset(
        """
        max_tokens messages metadata model service_tier stop_sequences stream system temperature thinking tool_choice
        tools top_k top_p
        """.split()  # noqa: SIM905 - easier to read than a list
    )

    @classmethod
    def as_chat(cls, body: Json) -> Json:
        if body.get("tools") or not body.get("messages"):
            raise ValueError("The stand-in takes messages, and no tools.")
        return {name: body.get(name) for name in ("model", "messages", "max_tokens", "stream")}

    def completion(self) -> Json:
        return self._message([{"type": "text", "text": "".join(self.pieces)}], ended=True)

    def events(self, start: float) -> Iterator[bytes]:
        """The beginning, the pieces, and the end with its usage."""
        place = {"index": 0}
        block = {"content_block": {"type": "text", "text": ""}}
        begun = _event("message_start", message=self._message([], ended=False))
        yield begun + _event("content_block_start", **place, **block)
        for number, piece in enumerate(self.pieces):
            due = start + number * self.asked.delay
            said = f"{due:017.6f}" if self.asked.clock == "yes" else piece
            yield _event("content_block_delta", **place, delta={"type": "text_delta", "text": said})
        delta = {"stop_reason": self._reason, "stop_sequence": None}
        ended = _event("message_delta", delta=delta, usage={"output_tokens": len(self.pieces)})
        yield _event("content_block_stop", **place) + ended + _event("message_stop")

    @property
    def _reason(self) -> str:
        return "max_tokens" if self.finish == "length" else "end_turn"

    def _message(self, content: list[Json], *, ended: bool) -> Json:
        usage = self.usage()
        made = usage["completion_tokens"] if ended else 1
        return {
            "id": f"msg_{self.head['id'][-12:]}",
            "type": "message",
            "role": "assistant",
            "model": self.body["model"],
            "content": content,
            "stop_reason": self._reason if ended else None,
            "stop_sequence": None,
            "usage": {"input_tokens": usage["prompt_tokens"], "output_tokens": made},
        }


def _event(kind: str, **members: object) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), dump({"type": kind, **members}))
