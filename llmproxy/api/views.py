"""Model calls over HTTP: parse, admit, relay."""

from collections.abc import Callable
from functools import partial
from json import dumps
from typing import Any, cast

import orjson
from django.conf import settings
from django.http import HttpResponse, HttpResponseBase, StreamingHttpResponse
from django.utils import timezone
from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework.permissions import IsAuthenticated
from rest_framework.request import Request
from rest_framework.response import Response

from config.platform.api.negotiation import WhateverAccept
from config.platform.api.schema import problems
from config.platform.api.views import ViewSet
from config.platform.edge.ratelimits import limits as ratelimits
from config.platform.problems.problem import Problem
from config.platform.request.request_id import current as request_id
from licensing.callers import caller_of
from licensing.permissions import LicenceWorks
from llmproxy.api.client_disconnect import disconnect_check
from llmproxy.api.schema import EXAMPLES, STREAMS, chat_request, model_call, ref, token_count
from llmproxy.api.serializers import ModelListSerializer, ModelSerializer
from llmproxy.calls import bodies
from llmproxy.calls.admission import admit
from llmproxy.calls.call import Call
from llmproxy.calls.relay import Stream, complete, stream
from llmproxy.calls.token_counts import count_tokens
from llmproxy.catalogue.choosing import UnknownModel, offered, unknown_model
from llmproxy.keys.authentication import CallAuthentication
from llmproxy.prompts.estimates import files_in
from llmproxy.requests import embeddings, responses
from llmproxy.requests.call_request import CallRequest
from llmproxy.requests.chat import parse

# The bytes of a prompt that one count of the limit allows.
COUNTED_AT_ONCE = 256 * 1024
# A prompt with files counts as this many: a small one may hold pages that take long to read.
FILES_COUNT = 8


class ModelCallViewSet(ViewSet):
    """Metered calls to a model."""

    authentication_classes = (CallAuthentication,)
    permission_classes = (IsAuthenticated, LicenceWorks)
    # Calls have a limit of their own.
    throttle_classes = ()
    content_negotiation_class = WhateverAccept

    @model_call(
        "llm_complete",
        request=chat_request(stream=False),
        answer=ref("ChatCompletion"),
        examples=EXAMPLES,
    )
    def complete(self, request: Request) -> HttpResponseBase:
        """Ask a model and receive its answer in one piece."""
        return self._answer(request, partial(parse, stream=False))

    @model_call(
        "llm_stream", request=chat_request(stream=True), stream=STREAMS["chat"], examples=EXAMPLES
    )
    def stream(self, request: Request) -> HttpResponseBase:
        """Ask a model and receive its answer as server-sent events."""
        return self._answer(request, partial(parse, stream=True))

    @model_call(
        "llm_chat_completions",
        request=ref("ChatRequest"),
        answer=ref("ChatCompletion"),
        stream=STREAMS["chat"],
        examples=EXAMPLES,
    )
    def chat(self, request: Request) -> HttpResponseBase:
        """Ask a model with OpenAI's SDKs; ``stream`` in the body selects events or one piece."""
        return self._answer(request, partial(parse, stream=None))

    @model_call(
        "llm_responses",
        request=ref("ResponsesRequest"),
        answer=ref("ModelResponse"),
        stream=STREAMS["responses"],
    )
    def responses(self, request: Request) -> HttpResponseBase:
        """Ask a model by OpenAI's Responses API, without state."""
        return self._answer(request, responses.parse)

    @token_count(
        "llm_responses_input_tokens",
        request=ref("ResponsesRequest"),
        answer=ref("ResponseInputTokens"),
    )
    def input_tokens(self, request: Request) -> Response:
        """Estimate the tokens of a response's input without asking a model. Costs nothing."""
        tokens = self._counted(request, responses.parse)
        return Response({"object": "response.input_tokens", "input_tokens": tokens})

    @model_call("llm_embeddings", request=ref("EmbeddingsRequest"), answer=ref("Embeddings"))
    def embeddings(self, request: Request) -> HttpResponseBase:
        """Turn texts into vectors."""
        return self._answer(request, embeddings.parse)

    def _counted(self, request: Request, read: Callable[[dict[str, Any]], CallRequest]) -> int:
        """The tokens of a prompt, which counts several times towards the limit if it is large or has files."""
        caller, now = caller_of(request), timezone.now()
        count = partial(ratelimits.count, "counts.user", key=str(caller.user_id), now=now)
        count()
        size = len(request.body)
        if size >= COUNTED_AT_ONCE:
            count(times=size // COUNTED_AT_ONCE)
        asked = read(cast("dict[str, Any]", request.data))
        if any(files_in(asked.prompt)):
            count(times=FILES_COUNT - 1)
        return count_tokens(caller=caller, request=asked, now=now, size=size)

    def _answer(
        self, request: Request, read: Callable[[dict[str, Any]], CallRequest]
    ) -> HttpResponseBase:
        now, asked, call = timezone.now(), None, None
        caller = caller_of(request)
        limits = ratelimits.count("llm.user", key=str(caller.user_id), now=now).headers()
        try:
            asked = read(cast("dict[str, Any]", request.data))
            admission = admit(
                caller=caller,
                request=asked,
                request_id=request_id(),
                now=now,
                size=size_of(request),
            )
            call = Call(admission, has_left=disconnect_check(request.META))
            answer = stream(call) if asked.stream else complete(call)
        except Problem as problem:
            of_call = {} if call is None else call.remaining(now=timezone.now()) | call.advice()
            problem.headers |= of_call | limits
            # Callers may name any text as a model; what is none may be a secret.
            if asked is not None and not isinstance(problem, UnknownModel):
                problem.concerning(model=asked.model or settings.LLM_DEFAULT_MODEL)
            raise
        headers = call.remaining(now=timezone.now()) | limits
        if isinstance(answer, Stream):
            return _streamed(answer, headers)
        return _whole(call, answer, headers)


class ModelViewSet(ViewSet):
    """Lists the models, also for a suspended client."""

    authentication_classes = (CallAuthentication,)

    @problems("not_entitled")
    @extend_schema(
        operation_id="llm_models",
        responses={
            200: OpenApiResponse(
                ModelListSerializer, description="The models of the caller's plan."
            )
        },
        tags=["models"],
    )
    def list(self, request: Request) -> Response:
        """List the models that the caller may use.

        At ``/v1/llm/v1/models`` a caller with ``anthropic-version`` gets those of messages, in Anthropic's shape.
        """
        return Response(ModelListSerializer({"data": offered(caller=caller_of(request))}).data)

    @problems("not_entitled", "not_found")
    @extend_schema(
        operation_id="llm_model",
        responses={200: OpenApiResponse(ModelSerializer, description="The model.")},
        tags=["models"],
    )
    def retrieve(self, request: Request, name: str) -> Response:
        """Look at one of the models."""
        for model in offered(caller=caller_of(request)):
            if model.name == name:
                return Response(ModelSerializer(model).data)
        raise unknown_model(name)


def size_of(request: Request) -> int:
    """The bytes of the body. A chunked one has a length too: the most that it may be."""
    return int(request.META.get("CONTENT_LENGTH") or 0)


def _whole(call: Call, answer: dict[str, Any], headers: dict[str, str]) -> HttpResponseBase:
    try:
        body = bodies.on_worker_thread(call, _encoded, answer)
    except BaseException:
        call.give_back_room()
        raise
    given = {"Cache-Control": "no-store", **headers}
    if call.room is None:
        return HttpResponse(body, content_type="application/json", headers=given)
    given["Content-Length"] = str(len(body))
    return StreamingHttpResponse(
        bodies.Parts(call, body), content_type="application/json", headers=given
    )


def _encoded(answer: dict[str, Any]) -> bytes:
    try:
        return orjson.dumps(answer, default=lambda part: orjson.Fragment(part.json))
    except TypeError:
        # A lone surrogate or a number beyond 64 bits; the other writer takes 20 times as long.
        plain = dumps(
            answer,
            ensure_ascii=False,
            separators=(",", ":"),
            default=lambda part: orjson.loads(part.json),
        )
        return plain.encode("utf-8", "replace")


def _streamed(answer: Stream, headers: dict[str, str]) -> StreamingHttpResponse:
    response = StreamingHttpResponse(
        answer,
        content_type="text/event-stream; charset=utf-8",
        headers={
            "Cache-Control": "no-cache, no-transform",
            "X-Accel-Buffering": "no",
            **headers,
        },
    )
    # For the request's log line.
    response.how_ended = answer.how_ended  # type: ignore[attr-defined]
    return response
