"""The dialects of providers. Another one is a module with its codecs, and an entry here."""

from llmproxy.providers import anthropic, openai
from llmproxy.providers.anthropic.messages import MessageCodec
from llmproxy.providers.openai.embeddings import Embeddings
from llmproxy.providers.openai.responses import Responses
from llmproxy.providers.protocol import Dialect
from llmproxy.surfaces.model_request import Surface
from llmproxy.tokens.images import anthropic_tokens, openai_tokens

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
