"""Errors in the shape of OpenAI's API: `{"error": {"message", "type", "param", "code"}}`."""

from typing import Any

INVALID = "invalid_request_error"

# status: (type, code, message) of an error that a directive asks for.
USUAL: dict[int, tuple[str, str | None, str]] = {
    400: (INVALID, None, "The request was refused because a directive asked for it."),
    401: (INVALID, "invalid_api_key", "Incorrect API key provided."),
    403: (
        "request_forbidden",
        "unsupported_country_region_territory",
        "Country, region, or territory not supported",
    ),
    404: (INVALID, "model_not_found", "The model does not exist or you do not have access to it."),
    422: (INVALID, None, "The request was well-formed but cannot be processed."),
    429: (
        "requests",
        "rate_limit_exceeded",
        "Rate limit reached for requests per minute. Please try again later.",
    ),
    500: (
        "server_error",
        None,
        "The server had an error while processing your request. Sorry about that!",
    ),
    503: (
        "server_error",
        None,
        "The engine is currently overloaded, please try again later",
    ),
}


class ApiError(Exception):
    """An answer other than 200, raised anywhere before the first byte of a response."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        kind: str = INVALID,
        param: str | None = None,
        code: str | None = None,
        headers: tuple[tuple[str, str], ...] = (),
    ) -> None:
        super().__init__(message)
        self.status = status
        self.headers = headers
        self.body = error_body(message, kind=kind, param=param, code=code)


def error_body(
    message: str, *, kind: str = INVALID, param: str | None = None, code: str | None = None
) -> dict[str, Any]:
    """The JSON object of an error."""
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def usual_error(
    status: int, *, message: str | None, code: str | None, retry_after: str | None
) -> ApiError:
    """The error that OpenAI would send with `status`, its message and code replaced if given."""
    family = 400 if status < 500 else 500
    kind, usual_code, usual_message = USUAL.get(status, USUAL[family])
    return ApiError(
        status,
        message or usual_message,
        kind=kind,
        code=code or usual_code,
        headers=(("Retry-After", retry_after),) if retry_after else (),
    )
