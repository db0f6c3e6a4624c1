"""The declaration of Anthropic's dialect."""

from llmproxy.dialects import anthropic
from llmproxy.dialects.anthropic.messages import MessageCodec
from llmproxy.dialects.protocol import Dialect
from llmproxy.prompts.images import anthropic_tokens
from llmproxy.requests.call_request import Surface

ANTHROPIC = Dialect(
    "anthropic",
    address="https://api.anthropic.com",
    hosts=("api.anthropic.com",),
    credential=anthropic.api_key,
    image_tokens=lambda image, _: anthropic_tokens(image),
    codecs={
        Surface.CHAT: anthropic.ChatCompletions(),
        Surface.MESSAGES: MessageCodec(),
    },
)
