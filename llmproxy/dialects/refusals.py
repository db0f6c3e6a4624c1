"""Translates a provider's refusal to a problem: the caller's fault, or a failure of ours or the provider's."""

import logging
import re
import time
from collections.abc import Mapping
from typing import Any

from config.platform.http.retries import retry_after
from llmproxy.dialects.cleaning import cleaned
from llmproxy.dialects.model_rules import DROPPABLE, Refused
from llmproxy.dialects.protocol import (
    ProviderError,
    ProviderProblem,
    ProviderRejected,
    ProviderTimeout,
    ProviderUnavailable,
    Said,
)
from llmproxy.dialects.reading import parse_json_exactly

log = logging.getLogger(__name__)

MAX_RETRY_AFTER = 86_400
# Seconds after which a process logs again that its credential is refused; a new credential is logged at once.
LOG_AGAIN_AFTER = 3_600.0
# The request is at fault: the caller can fix it.
_CALLERS_FAULT = frozenset({400, 404, 413, 422})
_BUSY = frozenset({408, 409, 429, 503, 529})
# The statuses with which a provider refuses our credential or account.
_CREDENTIAL_REFUSED = frozenset({401, 402, 403})
# The codes of errors about either, whatever their status; no caller can fix those.
_CREDENTIAL_CODES = frozenset({
    "invalid_api_key", "authentication_error", "permission_error", "access_terminated", "account_deactivated",
    "invalid_organization", "mismatched_organization", "mismatched_project", "organization_restricted",
    "insufficient_quota", "billing_error", "billing_hard_limit_reached", "billing_not_active",
})  # fmt: skip
_CREDENTIAL_WORDS = re.compile(
    r"credit balance|usage limits|billing hard limit"
    r"|\bapi[ _-]?key\b.{0,30}\b(?:not valid|invalid|incorrect|expired|revoked)\b"
    r"|\b(?:invalid|incorrect|expired|revoked)\b.{0,30}\bapi[ _-]?key\b",
    re.IGNORECASE | re.DOTALL,
)
_QUOTED = re.compile(r"(?<!\w)(['\"`])[^'\"`]*\1(?!\w)")
# Providers' codes and words for a prompt, or a prompt and its answer, beyond the model's context.
_TOO_LONG_CODES = frozenset({"context_length_exceeded", "exceed_context_size_error"})
_TOO_LONG_WORDS = re.compile(
    r"context[ _-](?:length|window|size|limit)|\b(?:prompt|input|request) is too long|too many (?:input )?tokens"
    r"|\bexceeds? the (?:maximum|configured)\b.{0,40}\btokens\b|maximum (?:prompt|input) length"
    r"|reduce the length of (?:the|your) (?:messages|prompt|input)"
    r"|\btokens \+.{0,20}\bmust be\b",
    re.IGNORECASE | re.DOTALL,
)
_REQUEST_ID = re.compile(r"[\w-]{6,80}", re.ASCII)
# Servers' words for an unknown name of the output limit. Where a number follows, its size is refused.
_LIMIT = r"[\"'`]{0,2}\bmax_(?:completion_)?tokens\b[\"'`]{0,2}"
_REFUSED = (
    r"(?:(?:was )?un(?:supported|recogni[sz]ed|known|expected)|not (?:supported|recogni[sz]ed|permitted|allowed)"
    r"|extra inputs|does not support (?:the )?parameter)"
)
_NO_NUMBER = r"(?![^.,;]{0,80}(?<![\w.-])\d[\d,])"
_NAME_REFUSED = re.compile(
    rf"{_REFUSED}(?![\w ]{{0,40}}\bvalue)[\w ()]{{0,40}}:?\s*{_LIMIT}{_NO_NUMBER}"
    rf"|{_LIMIT}:?\s+(?:is )?{_REFUSED}{_NO_NUMBER}|\buse {_LIMIT} instead"
    rf"|\bextra_forbidden\b.{{0,60}}{_LIMIT}",
    re.IGNORECASE,
)
_LIMIT_NAMES = {"max_tokens", "max_completion_tokens"}


def _named_member(group: str) -> str:
    return rf"[\"'`]{{0,2}}\b(?P<{group}>{'|'.join(sorted(DROPPABLE))})\b[\"'`]{{0,2}}"


# Servers' words for another member that the model does not take with any value; a value out of its range is a fault.
_BOTH = re.compile(
    rf"{_named_member('one')} and {_named_member('other')} (?:cannot|can't|must not) (?:both )?be",
    re.IGNORECASE,
)
_MEMBER_REFUSED = re.compile(
    rf"{_REFUSED}(?![\w ]{{0,40}}\bvalue)[\w ()]{{0,40}}:?\s*{_named_member('before')}{_NO_NUMBER}"
    rf"|{_named_member('after')}:?\s+(?:is |are )?(?:{_REFUSED}|deprecated\b|no longer supported){_NO_NUMBER}"
    rf"|\bunsupported value:? {_named_member('valued')}[^.]{{0,20}}does not support"
    rf"|\bextra_forbidden\b.{{0,60}}{_named_member('extra')}",
    re.IGNORECASE,
)
# Words for a member that is refused beside another one of the call, and not by the model as such.
_CONDITION = re.compile(
    r"\b(?:when|while|if|unless|together|combin\w{2,9}|alongside|because|during|given|using|in \w+ mode)\b"
    r"|\bfor (?:streaming|this request|requests?)\b"
    r"|\bwith (?!(?:this|the|that|your|our|[\"'`]?[\w/.:-]*\d))",
    re.IGNORECASE,
)
_MEMBER_CODES = {"unsupported_parameter", "unknown_parameter", "unsupported_value"}
# Servers say it at the beginning, and may repeat what a caller sent.
LOOKED_AT = 2_000
_NAME_CODES = {"unsupported_parameter", "unknown_parameter"}
# The detail of a refusal that comes without a message.
_DETAILS = {413: "This is more than the model accepts at once. Please send less."}
_last_logged: dict[str, Any] = {"key": "", "at": 0.0}


class LimitNameRefused(ProviderRejected):
    """The server does not know the output limit by the name that it was sent; the other may do."""


class MemberRefused(ProviderRejected):
    """The model does not take a member that a call may do without: ``refused``."""

    refused = Refused("")


class ContextTooLong(ProviderRejected):
    """The prompt, or the prompt with its answer, does not fit into the model's context."""

    sdk_code = "context_length_exceeded"
    default_detail = "This is longer than the model's context. Please send less."


def problem_of(
    status: int, headers: Mapping[str, str], body: bytes, *, key: str
) -> ProviderProblem:
    """The problem for the caller of an answer with another status than 200, to a request with this key."""
    problem = _problem_of(status, headers, body, key=key)
    problem.said = Said(status, cleaned(_error_of(body)["message"], key=key) or "")
    return problem


def _problem_of(
    status: int, headers: Mapping[str, str], body: bytes, *, key: str
) -> ProviderProblem:
    is_credential = refuses_credential(status, body)
    if status in _CALLERS_FAULT and not is_credential:
        kind: type[ProviderRejected] = ContextTooLong if is_too_long(body) else ProviderRejected
        if kind is ProviderRejected and _refuses_limit_name(body):
            kind = LimitNameRefused
        refused = _refused_member(body) if kind is ProviderRejected else None
        rejected = (MemberRefused if refused else kind)(
            _detail(status, headers, body, key=key) or _DETAILS.get(status)
        )
        if isinstance(rejected, MemberRefused) and refused:
            rejected.refused = refused
        return rejected
    wait = _retry_after(headers)
    if status == 504:
        return ProviderTimeout(headers=wait)
    if is_credential:
        _log_credential_refused(status, key=key)
    return ProviderUnavailable(headers=wait) if status in _BUSY else ProviderError(headers=wait)


def _refuses_limit_name(body: bytes) -> bool:
    error = _error_of(body)
    if str(error.get("code")) in _NAME_CODES and str(error.get("param")) in _LIMIT_NAMES:
        return True
    said = error["message"] or body[:LOOKED_AT].decode(errors="replace")
    return _NAME_REFUSED.search(said[:LOOKED_AT]) is not None


def _refused_member(body: bytes) -> Refused | None:
    """The member that a model does not take, where a refusal is about one that a call may do without."""
    error = _error_of(body)
    said = (error["message"] or body[:LOOKED_AT].decode(errors="replace"))[:LOOKED_AT]
    # Another value may be taken, unless its default is the only one.
    is_of_value = (
        str(error.get("code")) == "unsupported_value" and "only the default" not in said.lower()
    )
    is_lasting = _CONDITION.search(said) is None and not is_of_value
    if str(error.get("code")) in _MEMBER_CODES and str(error.get("param")) in DROPPABLE:
        return Refused(str(error["param"]), is_lasting=is_lasting)
    if both := _BOTH.search(said):
        return Refused(both["other"].lower(), both["one"].lower())
    found = _MEMBER_REFUSED.search(said)
    member = next(filter(None, found.groups())).lower() if found else None
    return Refused(member, is_lasting=is_lasting) if member else None


def refuses_credential(status: int, body: bytes) -> bool:
    """Returns whether a refusal is about our key or account, by its status, or its text: some servers answer 400."""
    return status in _CREDENTIAL_REFUSED or _says(body, _CREDENTIAL_CODES, _CREDENTIAL_WORDS)


def _log_credential_refused(status: int, *, key: str) -> None:
    """Logs that the provider refuses our credential: once an hour, not once a call."""
    now = time.monotonic()
    if _last_logged["key"] != key or now - _last_logged["at"] >= LOG_AGAIN_AFTER:
        _last_logged.update(key=key, at=now)
        log.error("provider_refuses_credential", extra={"status": status})


def error_in(answer: Any) -> dict[str, Any]:
    """The error in an answer, as OpenAI's servers write it: with a member ``message`` that is text.

    vLLM's and Mistral's is the answer itself, Ollama's and TGI's is a text, and FastAPI's servers call it ``detail``: a
    text, or what is wrong at each place. A server of more than one dialect puts its errors into a list.
    """
    answer = answer[0] if isinstance(answer, list) and answer else answer
    if not isinstance(answer, dict):
        return {"message": ""}
    given = answer.get("error") or answer
    error = given if isinstance(given, dict) else {"message": given, **answer}
    return {**error, "message": _text(error.get("message") or error.get("detail"))}


def _text(said: Any) -> str:
    if isinstance(said, dict):
        said = said.get("detail") or said.get("message")
    if isinstance(said, list):
        return "; ".join(filter(None, map(_fault, said)))
    return said if isinstance(said, str) else ""


def _fault(fault: Any) -> str:
    """One fault of FastAPI's. Its ``input`` repeats what the caller sent."""
    if not isinstance(fault, dict) or not isinstance(fault.get("msg"), str):
        return ""
    place = fault.get("loc")
    where = ".".join(map(str, place)) if isinstance(place, list) else ""
    return f"{where}: {fault['msg']}" if where else str(fault["msg"])


def is_too_long(body: bytes) -> bool:
    """Returns whether an error, in an answer or an event of a stream, means that the call exceeds the context."""
    return _says(body, _TOO_LONG_CODES, _TOO_LONG_WORDS)


def _says(body: bytes, codes: frozenset[str], words: re.Pattern[str]) -> bool:
    error = _error_of(body)
    named = {str(error.get(place)) for place in ("code", "type")}
    # Quoted parts repeat the caller's text.
    return bool(named & codes) or bool(words.search(_QUOTED.sub("", error["message"])))


def _detail(status: int, headers: Mapping[str, str], body: bytes, *, key: str) -> str | None:
    """Returns the part of a provider's message that a caller may read, or a reference for operators."""
    if not (message := _error_of(body)["message"]):
        return None
    request_id = headers.get("x-request-id") or headers.get("request-id") or ""
    is_sane = _REQUEST_ID.fullmatch(request_id) and cleaned(request_id, key=key) == request_id
    also = f", its request {request_id}" if is_sane else ""
    withheld = f"{ProviderRejected.default_detail} Its reason is not shown (status {status}{also})."
    return cleaned(message, key=key) or withheld


def _error_of(body: bytes) -> dict[str, Any]:
    try:
        return error_in(parse_json_exactly(body))
    except (ValueError, RecursionError):
        return {"message": ""}


def _retry_after(headers: Mapping[str, str]) -> dict[str, str] | None:
    """The ``Retry-After`` of a refusal, in seconds, where it is a sane one."""
    after = retry_after(headers)
    return None if after is None or after > MAX_RETRY_AFTER else {"Retry-After": str(after)}
