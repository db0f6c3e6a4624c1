"""Reads an error that a provider sends with the status 200: an event of a stream, or the whole answer."""

import re
from collections.abc import Callable
from contextlib import suppress
from json import JSONDecoder, dumps
from math import ceil
from typing import Any

from config.platform.problems.problem import Problem
from llmproxy.dialects import ends
from llmproxy.dialects.protocol import MALFORMED, PromptUsage, TokenUsage, UnreadableAnswer
from llmproxy.dialects.reading import parse_json
from llmproxy.dialects.refusals import error_in, is_too_long, problem_of
from llmproxy.dialects.usage import reported

# The codes of OpenAI's responses that failed by what they were asked.
_OF_THE_REQUEST = frozenset({
    "invalid_prompt", "invalid_image", "invalid_image_format", "invalid_base64_image", "invalid_image_url",
    "invalid_image_mode", "image_too_large", "image_too_small", "image_parse_error", "image_file_too_large",
    "image_content_policy_violation", "unsupported_image_media_type", "empty_image_file", "failed_to_download_image",
    "image_file_not_found",
})  # fmt: skip
# The status that each kind of error has outside a stream.
_STATUSES = {
    # Anthropic's; OpenAI's servers share some.
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "timeout_error": 504,
    "overloaded_error": 529,
    # OpenAI's and Moonshot's.
    "insufficient_quota": 402,
    "rate_limit_exceeded": 429,
    "rate_limit_reached_error": 429,
    "engine_overloaded_error": 529,
    **dict.fromkeys(_OF_THE_REQUEST, 400),
    # vLLM's.
    "BadRequestError": 400,
    "NotFoundError": 404,
    # Google's.
    "INVALID_ARGUMENT": 400,
    "RESOURCE_EXHAUSTED": 429,
    "UNAVAILABLE": 503,
    "DEADLINE_EXCEEDED": 504,
    # TGI's.
    "validation": 422,
    "overloaded": 429,
    # Reasons for which an answer was broken off: DeepSeek's and others'.
    "insufficient_system_resource": 503,
    "capacity": 503,
    "timeout": 504,
}
_UNKNOWN = 500
# Members of an error that hold its status, as a number or as a kind.
_PLACES = ("status_code", "code", "status", "type", "error_type")
# TGI begins the text of an error without a kind like this.
_AT_FAULT = "Input validation error"
# Members of an answer that was begun before it failed.
_MADE = ("choices", "output", "content", "usage")


class FailedAnswer(Exception):
    """A failure in place of a whole answer, and what it costs.

    ``reported`` and ``prompt`` are what the provider reports of it, ``size`` the bytes of the output that stands in it.
    ``is_refusal``: nothing of an answer was made.
    """

    def __init__(
        self,
        problem: Problem,
        reported: TokenUsage | None,
        *,
        size: int = 0,
        prompt: PromptUsage | None = None,
        is_refusal: bool = False,
    ) -> None:
        super().__init__(problem.code)
        self.problem = problem
        self.reported = reported
        self.size = size
        self.prompt = prompt
        self.is_refusal = is_refusal


# The brackets of JSON, the blank line that ends an event, and strings, within which neither means anything.
_MARKS = re.compile(rb'"(?:[^"\\]|\\.)*"?|[{\[]|[}\]]|(?:\r?\n){2}', re.DOTALL)
_USAGE = b'"usage"'
_DECODER = JSONDecoder()
# A usage stands in an answer, or in the response of an event. One that stands deeper is something that a model wrote.
_OUTER = (1, 2)
# Each look reads on to the end; thousands, as a model may write them into the input of a tool, would take seconds.
_MOST_LOOKED_AT = 32


def last_usage(tail: bytes) -> Any:
    """The last ``usage`` object in the end of an answer or stream that could not be read; None without one."""
    at = len(tail)
    for _ in range(_MOST_LOOKED_AT):
        if (at := tail.rfind(_USAGE, 0, at)) < 0:
            break
        rest = tail[at + len(_USAGE) :].decode("utf-8", "replace")
        start = rest.find("{")
        if start < 0 or rest[:start].strip() != ":":
            continue
        try:
            usage, end = _DECODER.raw_decode(rest, start)
        except (ValueError, RecursionError):
            continue
        if _closes(rest[end:].encode()) in _OUTER:
            return usage
    return None


def _closes(rest: bytes) -> int:
    """The brackets that are open at the beginning of these bytes, up to the end of their answer or event."""
    closed = 0
    for each in _MARKS.finditer(rest):
        if each[0] in (b"}", b"]"):
            closed += 1
        elif each[0] in (b"{", b"["):
            closed -= 1
        elif each[0].isspace():
            break
    return closed


def is_failure(answer: Any) -> bool:
    """Returns whether an object is an error. vLLM's has no member ``error``."""
    return bool(answer.get("error")) or answer.get("object") == "error"


def is_refusal(body: bytes) -> bool:
    """Returns whether a body in place of a whole answer refuses the call: a page, or an error alone."""
    if body.lstrip().startswith(b"<"):
        return True
    try:
        answer, _ = parse_json(body)
        return is_failure(answer) and not any(map(answer.get, _MADE))
    except (ValueError, TypeError, AttributeError, RecursionError):
        return False


def failure_within(part: dict[str, Any], reason: Any) -> Any:
    """The error of a part of an answer, or a reason for its end that says that it has failed; None without either."""
    return part.get("error") or (reason if reason and ends.is_failure(reason) else None)


def failed_choice(choices: Any) -> Any:
    """The failure of the first choice that has failed, as ``failure_within`` finds it."""
    for each in choices if isinstance(choices, list) else ():
        # Asked of every chunk, nearly all of which have neither.
        reason = each.get("finish_reason")
        if (reason or each.get("error")) and (error := failure_within(each, reason)):
            return error
    return None


def failed_part(error: Any, *, key: str) -> Problem:
    """The problem of what ``failure_within`` has found."""
    is_reason = isinstance(error, str) and ends.is_failure(error)
    return failure_of({"error": {"code": error} if is_reason else error}, key=key)


def raise_failure(
    answer: Any,
    made: Any,
    *,
    key: Callable[[], str],
    error: Any = None,
    reported: Callable[[Any], TokenUsage | None] = reported,
    size_of: Callable[[Any], int] = lambda _: 0,
) -> None:
    """Raises the failure that a whole answer reports, where it is one, or has no list of what was ``made``.

    ``error`` is that of a part of it. ``size_of`` finds the bytes of output in what was made, and may not know its
    form.
    """
    has_failed = is_failure(answer)
    if has_failed or error or not isinstance(made, list):
        problem: Problem = UnreadableAnswer()
        if has_failed or error:
            problem = failure_of(answer, key=key()) if has_failed else failed_part(error, key=key())
        known, size = reported(answer.get("usage")), 0
        with suppress(*MALFORMED):
            size = size_of(made) if isinstance(made, list) else 0
        raise FailedAnswer(problem, known, size=size) if known or size else problem


def failure_of(answer: dict[str, Any], *, key: str) -> Problem:
    """The problem of an error, as if its provider had refused the call, made with this key, with it."""
    error = error_in(answer)
    body, given = dumps({"error": error}).encode(), _status_of(error)
    status = given or _UNKNOWN
    if status == _UNKNOWN and (is_too_long(body) or error["message"].startswith(_AT_FAULT)):
        # Servers notice a context that is too long in the middle of an answer too, mostly without a status.
        status = 400
    problem = problem_of(status, _retry_after(error), body, key=key)
    if given is None and problem.said is not None:
        problem.said = problem.said._replace(status=None)
    return problem


def _status_of(error: dict[str, Any]) -> int | None:
    values = [str(error.get(place)) for place in _PLACES]
    numbers = [int(value) for value in values if len(value) == 3 and value.isdecimal()]
    kinds = [_STATUSES[value] for value in values if value in _STATUSES]
    return next((status for status in [*numbers, *kinds] if 400 <= status < 600), None)


def _retry_after(error: dict[str, Any]) -> dict[str, str]:
    """The wait in seconds that an error asks for, as a header: ``retry_after``, or Google's ``12.5s``."""
    details = error.get("details")
    waits = [each.get("retryDelay") for each in details] if isinstance(details, list) else []
    for wait in (error.get("retry_after"), *waits):
        try:
            return {"Retry-After": str(ceil(float(str(wait).removesuffix("s"))))}
        except (ValueError, OverflowError):
            continue
    return {}
