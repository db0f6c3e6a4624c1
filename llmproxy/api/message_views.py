"""Calls of Anthropic's Messages API over HTTP."""

from functools import partial
from typing import Any, cast

from django.http import HttpResponseBase
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from config.api.schema import problems
from config.middleware.request_id import current as request_id
from config.ratelimits import limits as ratelimits
from licensing.callers import caller_of
from llmproxy.api.schema import EXAMPLES, MESSAGE_HEADERS, STREAMS, model_call, ref
from llmproxy.api.views import ModelCallViewSet
from llmproxy.calls.token_counts import count_tokens
from llmproxy.requests.messages import parse, parse_count


class MessageViewSet(ModelCallViewSet):
    """Metered calls in the shapes of Anthropic's SDKs, with errors in theirs."""

    @model_call(
        "llm_messages",
        request=ref("MessagesRequest"),
        answer=ref("MessageAnswer"),
        stream=STREAMS["messages"],
        headers=MESSAGE_HEADERS,
        examples=EXAMPLES,
    )
    def create(self, request: Request) -> HttpResponseBase:
        """Ask a model with Anthropic's SDKs; ``stream`` in the body selects events or one piece.

        These SDKs ask at ``/v1/llm/v1/messages``, with ``/v1/llm`` as their base URL; both addresses are the same.
        """
        response = self._answer(request, partial(parse, headers=request.headers))
        # Where these SDKs look for it.
        response.headers["request-id"] = request_id()
        return response

    @problems(
        *("invalid_request", "provider_rejected", "licence_suspended", "model_calls_stopped"),
        *("not_entitled", "not_found", "rate_limited", "monthly_cap_exceeded"),
        *("daily_limit_reached", "budget_exceeded", "provider_unavailable"),
    )
    @extend_schema(
        operation_id="llm_messages_count_tokens",
        parameters=MESSAGE_HEADERS,
        request={"application/json": ref("MessagesCountRequest")},
        responses={(200, "application/json"): ref("MessageCount")},
        tags=["models"],
    )
    def count(self, request: Request) -> Response:
        """Count the tokens of a prompt without asking it. Costs nothing.

        Anthropic's SDKs ask at ``/v1/llm/v1/messages/count_tokens``; both addresses are the same.
        """
        caller = caller_of(request)
        now = timezone.now()
        ratelimits.count("counts.user", key=str(caller.user_id), now=now)
        asked = parse_count(cast("dict[str, Any]", request.data), headers=request.headers)
        tokens = count_tokens(caller=caller, request=asked, now=now)
        return Response({"input_tokens": tokens}, headers={"request-id": request_id()})
