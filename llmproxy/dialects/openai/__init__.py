"""OpenAI's chat completions, and any server that speaks them (https://platform.openai.com/docs/api-reference/chat)."""

from typing import Any

from llmproxy.dialects.chat_answers import ChatCodec
from llmproxy.dialects.ends import finish_reason, unsaid
from llmproxy.dialects.failures import failed_choice, raise_failure
from llmproxy.dialects.openai.choices import message_of
from llmproxy.dialects.openai.events import EventTranslator
from llmproxy.dialects.openai.outgoing import outgoing_members
from llmproxy.dialects.openai.streamed import completion_as_chunks
from llmproxy.dialects.openai.texts import NO_TEXT, plain_size
from llmproxy.dialects.openai.tool_calls import write_whole
from llmproxy.dialects.openai.usage import usage_for_caller
from llmproxy.dialects.passing import OtherTexts, drop_costs
from llmproxy.dialects.protocol import ProviderRequest, Target, WholeAnswer
from llmproxy.dialects.reading import parse_json
from llmproxy.dialects.usage import reported
from llmproxy.requests.chat import Chat


class ChatCompletions(ChatCodec):
    """Chat completions. The base URL is that of OpenAI's own SDK, with its ``/v1``."""

    def outgoing(self, request: Chat, *, target: Target, output_limit: int) -> ProviderRequest:
        body = outgoing_members(request.members_within(output_limit), target=target)
        # OpenAI does not take the newer name beside a prediction.
        name = "max_tokens" if "prediction" in request.members else target.limit_name
        body |= {"model": target.model, name: output_limit}
        if request.stream:
            body |= {"stream": True, "stream_options": {"include_usage": True}}
        return target.post("/chat/completions", body, streamed=request.stream)

    def _read(self, body: bytes, target: Target) -> WholeAnswer:
        """Normalizes answers that differ in shape from OpenAI's."""
        answer, _ = parse_json(body)
        made = answer.get("choices") or None
        error = failed_choice(made)
        raise_failure(answer, made, key=target.key, error=error, size_of=_size_of)
        usage, choices = answer.pop("usage", None), answer["choices"]
        messages = [*map(message_of, choices)]
        size = sum(plain_size(message)[0] for message in messages)
        for message in messages:
            write_whole(message)
        for choice, message in zip(choices, messages, strict=True):
            has_calls = bool(message.get("tool_calls"))
            reason = choice.get("finish_reason") or unsaid(has_calls=has_calls)
            choice["finish_reason"] = finish_reason(reason, provider=target.provider)
        drop_costs(answer)
        size += OtherTexts(NO_TEXT).size(answer, *choices)
        known = reported(usage)
        if known is not None:
            answer["usage"] = usage_for_caller(usage, known)
        return WholeAnswer(answer, known, size)

    def as_stream(self, body: bytes) -> bytes:
        return completion_as_chunks(parse_json(body)[0])

    def translator(self, request: Chat, *, target: Target, called: str | None) -> EventTranslator:
        return EventTranslator(
            include_usage=request.include_usage,
            key=target.key,
            called=called,
            provider=target.provider,
        )


def _size_of(choices: Any) -> int:
    return sum(plain_size(message_of(each))[0] for each in choices)


def bearer(key: str) -> dict[str, str]:
    """The headers that authenticate a request."""
    return {"Authorization": f"Bearer {key}"}
