from typing import Never

from django.http import HttpRequest
from django.urls import path, re_path
from django.views.decorators.csrf import csrf_exempt

from config.platform.problems.problem import NotFound
from llmproxy.api.message_views import MessageModelViewSet, MessageViewSet
from llmproxy.api.views import ModelCallViewSet, ModelViewSet

app_name = "llmproxy"


@csrf_exempt
def nothing_here(request: HttpRequest) -> Never:
    """Names the addresses that there are: SDKs of OpenAI try others, and show this sentence alone."""
    patterns = [str(each.pattern) for each in urlpatterns[:-1]]
    known = ", ".join(each for each in patterns if "<" not in each)
    raise NotFound(f"There is nothing at this address. Below /v1/llm/ there are: {known}.")


urlpatterns = [
    path("complete", ModelCallViewSet.as_view({"post": "complete"}), name="complete"),
    path("stream", ModelCallViewSet.as_view({"post": "stream"}), name="stream"),
    path("chat/completions", ModelCallViewSet.as_view({"post": "chat"}), name="chat-completions"),
    path("responses", ModelCallViewSet.as_view({"post": "responses"}), name="responses"),
    path(
        "responses/input_tokens",
        ModelCallViewSet.as_view({"post": "input_tokens"}),
        name="response-counts",
    ),
    path("embeddings", ModelCallViewSet.as_view({"post": "embeddings"}), name="embeddings"),
    path("messages", MessageViewSet.as_view({"post": "create"}), name="messages"),
    path("messages/count_tokens", MessageViewSet.as_view({"post": "count"}), name="message-counts"),
    # Anthropic's SDKs add these paths to the same base address as OpenAI's.
    path("v1/messages", MessageViewSet.as_view({"post": "create"}, schema=None)),
    path("v1/messages/count_tokens", MessageViewSet.as_view({"post": "count"}, schema=None)),
    path("v1/models", MessageModelViewSet.as_view({"get": "list"}, schema=None)),
    path("v1/models/<path:name>", MessageModelViewSet.as_view({"get": "retrieve"}, schema=None)),
    path("models", ModelViewSet.as_view({"get": "list"}), name="models"),
    path("models/<path:name>", ModelViewSet.as_view({"get": "retrieve"}), name="model"),
    # The last: any other address.
    re_path("", nothing_here, name="nothing"),
]
