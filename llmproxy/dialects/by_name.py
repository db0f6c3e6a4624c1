"""The dialects of providers. Another one is a module with its codecs, an entry here, and its name in ``names``."""

from llmproxy.dialects import anthropic, openai
from llmproxy.dialects.anthropic.messages import MessageCodec
from llmproxy.dialects.openai.embeddings import Embeddings
from llmproxy.dialects.openai.responses import Responses
from llmproxy.dialects.protocol import Dialect
from llmproxy.prompts.images import anthropic_tokens, openai_tokens
from llmproxy.requests.call_request import Surface

DIALECTS = {
    dialect.name: dialect
    for dialect in (
        Dialect(
            "openai",
            credential=openai.bearer,
            image_tokens=lambda image, model: openai_tokens(image, model=model),
            codecs={
                Surface.CHAT: openai.ChatCompletions(),
                Surface.RESPONSES: Responses(),
                Surface.EMBEDDINGS: Embeddings(),
            },
        ),
        Dialect(
            "anthropic",
            credential=anthropic.api_key,
            image_tokens=lambda image, _: anthropic_tokens(image),
            codecs={
                Surface.CHAT: anthropic.ChatCompletions(),
                Surface.MESSAGES: MessageCodec(),
            },
        ),
    )
}
