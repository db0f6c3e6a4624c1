"""The way in from the WSGI server: requests that no header can break, and no more around them than they need."""

from collections.abc import Callable, Iterable
from typing import Any

from django.core.handlers.wsgi import WSGIHandler, WSGIRequest, get_script_name
from django.core.signals import request_started
from django.http import HttpRequest, HttpResponseBase
from django.urls import set_script_prefix
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
    """The WSGI application: Django's own way from the server's words to a response and back, without detours."""

    request_class = Request

    def __call__(  # type: ignore[override]  # a file is not given as the response
        self, environ: dict[str, Any], start_response: Callable[..., Any]
    ) -> Iterable[bytes]:
        if environ.get("SCRIPT_NAME"):
            # Of the whole process; where there is none, Django knows what to take for it.
            set_script_prefix(get_script_name(environ))
        request_started.send(sender=Entrance, environ=environ)
        response: Any = self.get_response(Request(environ))
        response._handler_class = Entrance  # noqa: SLF001 - the sender of request_finished
        # Its pairs as they are, which it would look up one by one.
        headers = list(response.headers._store.values())  # noqa: SLF001
        headers += [("Set-Cookie", each.OutputString()) for each in response.cookies.values()]
        try:
            start_response(f"{response.status_code} {response.reason_phrase}", headers)
        except BaseException:
            # The server, which closes what it is given, is not given this.
            response.close()
            raise
        wrapped = environ.get("wsgi.file_wrapper")
        if wrapped is None or getattr(response, "file_to_stream", None) is None:
            return response  # type: ignore[no-any-return]
        # The server closes a file that it sends by itself, and nothing else.
        response.file_to_stream.close = response.close
        return wrapped(response.file_to_stream, response.block_size)  # type: ignore[no-any-return]

    def get_response(self, request: HttpRequest) -> HttpResponseBase:
        """Through all middleware. What Django would say of a refusal nobody hears (``LOGGING``)."""
        response: Any = self._middleware_chain(request)  # type: ignore[attr-defined]
        response._resource_closers.append(request.close)  # noqa: SLF001 - as Django has it
        return response  # type: ignore[no-any-return]
