"""Calls of Anthropic's Messages API over HTTP."""

from functools import partial

from django.http import HttpResponseBase
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request

from config.api.schema import problems
from config.middleware.request_id import current as request_id
from llmproxy.message_schema import HEADERS, MESSAGE, MESSAGE_EVENT, MESSAGE_EXAMPLES
from llmproxy.schema import REMAINING
from llmproxy.surfaces.messages import parse
from llmproxy.surfaces.messages_schema import MESSAGES_REQUEST
from llmproxy.views import CALL_PROBLEMS, ModelCallViewSet


class MessageViewSet(ModelCallViewSet):
    """Metered calls in the shapes of Anthropic's SDKs, with errors in theirs."""

    @problems(*CALL_PROBLEMS)
    @extend_schema(
        operation_id="llm_messages",
        parameters=[*HEADERS, *REMAINING],
        request={"application/json": MESSAGES_REQUEST},
        responses={(200, "application/json"): MESSAGE, (200, "text/event-stream"): MESSAGE_EVENT},
        examples=MESSAGE_EXAMPLES,
        tags=["models"],
    )
    def create(self, request: Request) -> HttpResponseBase:
        """Ask a model with Anthropic's SDKs; ``stream`` in the body selects events or one piece."""
        response = self._answer(request, partial(parse, headers=request.headers))
        # Where these SDKs look for it.
        response.headers["request-id"] = request_id()
        return response
