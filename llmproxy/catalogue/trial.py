"""Tries a route: one short question to its provider, as a call would ask it, which nobody is charged for."""

import time
from datetime import datetime
from typing import NamedTuple

from accounts.audit import Actor, record
from config.platform.db.connections import release_connection
from config.platform.encryption import CannotDecrypt
from config.platform.http.errors import ExchangeError
from config.platform.problems.problem import Problem
from llmproxy.catalogue.choosing import surfaces_of, target_of
from llmproxy.dialects.asking import ask_once
from llmproxy.dialects.failures import FailedAnswer
from llmproxy.dialects.forms import whole_answer
from llmproxy.dialects.protocol import NO_HEADERS, ProviderError, TokenUsage
from llmproxy.dialects.refusals import problem_of, refuses_credential
from llmproxy.models import Route
from llmproxy.requests import chat, embeddings, messages, responses
from llmproxy.requests.call_request import CallRequest, Surface

QUESTION = "Answer with the word yes."
# Room for a model that thinks before it answers.
OUTPUT_LIMIT = 64
MOST_SECONDS = 30.0
MOST_BYTES = 1024 * 1024


class Trial(NamedTuple):
    """The outcome: seconds, the tokens that the provider reported, and a sentence where it failed."""

    seconds: float
    usage: TokenUsage | None = None
    failure: str = ""


def try_route(*, route_id: int, by: Actor, now: datetime) -> Trial:
    """Asks the provider of a route; the audit log records the result. The provider may bill the few tokens."""
    route = Route.objects.select_related("model", "provider").get(pk=route_id)
    # Not held while the provider is asked.
    release_connection()
    began = time.monotonic()
    try:
        usage, failure = _asked(route), ""
    except Problem as problem:
        usage, failure = None, problem.detail
    except FailedAnswer as failed:
        usage, failure = failed.reported, failed.problem.detail
    except ExchangeError as error:
        usage, failure = None, f"{type(error).__name__}: {error}."
    except CannotDecrypt:
        usage, failure = (
            None,
            "Its key cannot be decrypted. Change the provider and enter it again.",
        )
    trial = Trial(time.monotonic() - began, usage, failure)
    outcome = {"failed": bool(failure), "milliseconds": round(trial.seconds * 1000)}
    record("route:tried", route, by=by, now=now, after=outcome)
    return trial


def _question(route: Route) -> CallRequest:
    surfaces, said = surfaces_of(route), [{"role": "user", "content": QUESTION}]
    if Surface.CHAT in surfaces:
        return chat.parse({"messages": said}, stream=False)
    if Surface.RESPONSES in surfaces:
        return responses.parse({"input": QUESTION})
    if Surface.MESSAGES in surfaces:
        asked = {"messages": said, "max_tokens": OUTPUT_LIMIT}
        return messages.parse(asked, headers=NO_HEADERS)
    return embeddings.parse({"input": QUESTION})


def _asked(route: Route) -> TokenUsage | None:
    request, target = _question(route), target_of(route)
    codec = target.codec(request.surface)
    outgoing = codec.outgoing(request, target=target, output_limit=OUTPUT_LIMIT)
    head, body = ask_once(outgoing, seconds=MOST_SECONDS, most_bytes=MOST_BYTES)
    if head.status != 200 and refuses_credential(head.status, body):
        raise ProviderError(
            f"The provider refuses the key, or its account, with the status {head.status}."
        )
    if head.status != 200:
        raise problem_of(head.status, head.headers, body, key=target.key())
    _, usage, _ = whole_answer(codec, body, target=target, request=request)
    return usage
