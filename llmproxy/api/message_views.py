"""Calls of Anthropic's Messages API over HTTP."""

from functools import partial

from django.http import HttpResponseBase
from rest_framework.request import Request
from rest_framework.response import Response

from config.platform.request.request_id import current as request_id
from licensing.callers import caller_of
from llmproxy.api.schema import EXAMPLES, MESSAGE_HEADERS, STREAMS, model_call, ref, token_count
from llmproxy.api.serializers import MessageModelPageSerializer, MessageModelSerializer
from llmproxy.api.views import ModelCallViewSet, ModelViewSet
from llmproxy.catalogue.choosing import Offered, answers_elsewhere, offered, unknown_model
from llmproxy.requests.call_request import Surface
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
        # Anthropic's SDKs read the request id here.
        response.headers["request-id"] = request_id()
        return response

    @token_count(
        "llm_messages_count_tokens",
        request=ref("MessagesCountRequest"),
        answer=ref("MessageCount"),
        headers=MESSAGE_HEADERS,
    )
    def count(self, request: Request) -> Response:
        """Count the tokens of a prompt without asking it. Costs nothing.

        Anthropic's SDKs ask at ``/v1/llm/v1/messages/count_tokens``; both addresses are the same.
        """
        tokens = self._counted(request, partial(parse_count, headers=request.headers))
        return Response({"input_tokens": tokens}, headers={"request-id": request_id()})


class MessageModelViewSet(ModelViewSet):
    """Lists the models for Anthropic's SDKs, which send a version, and for others as everywhere."""

    def list(self, request: Request) -> Response:
        if "anthropic-version" not in request.headers:
            return super().list(request)
        asked = MessageModelPageSerializer(data=request.query_params)
        asked.is_valid(raise_exception=True)
        models, has_more = _page(_answering(request), **asked.validated_data)
        names = [each.name for each in models]
        page = {
            "data": MessageModelSerializer(models, many=True).data,
            "has_more": has_more,
            "first_id": next(iter(names), None),
            "last_id": next(reversed(names), None),
        }
        return Response(page, headers={"request-id": request_id()})

    def retrieve(self, request: Request, name: str) -> Response:
        if "anthropic-version" not in request.headers:
            return super().retrieve(request, name)
        for model in offered(caller=caller_of(request)):
            if model.name == name:
                if Surface.MESSAGES not in model.surfaces:
                    raise answers_elsewhere(model.surfaces)
                data = MessageModelSerializer(model).data
                return Response(data, headers={"request-id": request_id()})
        raise unknown_model(name)


def _answering(request: Request) -> list[Offered]:
    """The models that answer in messages."""
    models = offered(caller=caller_of(request))
    return [each for each in models if Surface.MESSAGES in each.surfaces]


def _page(
    models: list[Offered], *, limit: int, after_id: str = "", before_id: str = ""
) -> tuple[list[Offered], bool]:
    """A page of models, which are in the order of their names, and whether there are more in its direction.

    A model by which a page is asked for may have gone since: its name still has a place among the others.
    """
    if before_id:
        models = [each for each in models if each.name < before_id]
        return models[-limit:], len(models) > limit
    models = [each for each in models if each.name > after_id]
    return models[:limit], len(models) > limit
