"""Applies Django's middleware of signed-in pages to those pages only.

Callers of the API send a token with each request: they have no session, and no messages for a next page.
"""

from collections.abc import Callable

from django.contrib.auth.middleware import AuthenticationMiddleware
from django.contrib.messages.middleware import MessageMiddleware
from django.contrib.sessions.middleware import SessionMiddleware
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django_otp.middleware import OTPMiddleware

from config.platform.problems.rendering import PAGES


class PageMiddleware(SessionMiddleware, AuthenticationMiddleware, MessageMiddleware):
    """The session of an operator, or of a person who sets a password; its user, and messages for the next page.

    It inherits from three classes of Django's, because the admin's checks look for each. The second factor reads the
    device of a session when a page checks whether it was proved.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        super().__init__(OTPMiddleware(get_response))
        self._elsewhere = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        if request.path_info.startswith(PAGES):
            return super().__call__(request)  # type: ignore[return-value]  # there is no ASGI here
        return self._elsewhere(request)

    def process_request(self, request: HttpRequest) -> None:
        SessionMiddleware.process_request(self, request)
        AuthenticationMiddleware.process_request(self, request)
        MessageMiddleware.process_request(self, request)

    def process_response(self, request: HttpRequest, response: HttpResponse) -> HttpResponse:
        # The session is saved last.
        answer = MessageMiddleware.process_response(self, request, response)
        return SessionMiddleware.process_response(self, request, answer)
