"""The declaration of OpenAI's dialect."""

from llmproxy.dialects import openai
from llmproxy.dialects.openai.embeddings import Embeddings
from llmproxy.dialects.openai.responses import Responses
from llmproxy.dialects.protocol import Dialect
from llmproxy.prompts.images import openai_tokens
from llmproxy.requests.call_request import Surface

OPENAI = Dialect(
    "openai",
    address="https://api.openai.com/v1",
    hosts=(
        "api.openai.com",
        "openai.azure.com",
        "cognitiveservices.azure.com",
        "services.ai.azure.com",
    ),
    credential=openai.bearer,
    image_tokens=lambda image, model: openai_tokens(image, model=model),
    codecs={
        Surface.CHAT: openai.ChatCompletions(),
        Surface.RESPONSES: Responses(),
        Surface.EMBEDDINGS: Embeddings(),
    },
)
