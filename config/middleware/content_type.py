"""Makes a Content-Type safe for Django, which reads it before any error handler can answer.

Django raises on some malformed values, and decodes addresses and forms with any codec of Python that a caller names.
"""

from collections.abc import Callable, Iterable
from typing import Any

from django.utils.http import parse_header_parameters

Application = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


def with_safe_content_type(application: Application) -> Application:
    """Wraps a WSGI application, for which a malformed Content-Type counts as none and text is always UTF-8."""

    def call(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        environ["CONTENT_TYPE"] = _safe(environ.get("CONTENT_TYPE", ""))
        return application(environ, start_response)

    return call


def _safe(content_type: str) -> str:
    try:
        _, parameters = parse_header_parameters(content_type)
    except ValueError:
        return ""
    charset = parameters.get("charset", "utf-8").lower()
    if charset in {"utf-8", "utf8"}:
        return content_type
    if "*" in content_type:
        # An extended parameter (RFC 2231) would win over the one below.
        return ""
    # The last one counts. Django ignores a charset that it does not know, and the parser of JSON refuses it.
    return f"{content_type}; charset={'utf-8' if charset == 'us-ascii' else 'unsupported'}"
