"""The way in from the WSGI server: requests that no header can break."""

from typing import Any

from django.core.handlers.wsgi import WSGIHandler, WSGIRequest
from django.utils.http import parse_header_parameters


class Request(WSGIRequest):
    """A request whose Content-Type decides nothing about how we decode.

    Django raises on some malformed ones while it makes the request, before any handler of errors, and decodes
    addresses and forms with whatever codec a caller names. Here a malformed one is like none, which is
    answered as an unsupported media type where a body is read, and text is UTF-8.
    """

    def _set_content_type_params(self, meta: dict[str, Any]) -> None:
        try:
            self.content_type, self.content_params = parse_header_parameters(
                meta.get("CONTENT_TYPE", "")
            )
        except ValueError:
            self.content_type, self.content_params = "", {}


class Entrance(WSGIHandler):
    """The WSGI application."""

    request_class = Request
