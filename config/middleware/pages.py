"""Django's middleware for people who sign in to a page, on the pages that have any use for it.

Whoever calls the API brings a token with each request: there is no session to look up, nobody to be found by one, and
no message to keep for a next page.
"""

from django.contrib.auth.middleware import AuthenticationMiddleware
from django.contrib.messages.middleware import MessageMiddleware
from django.contrib.sessions.middleware import SessionMiddleware
from django.http import HttpRequest, HttpResponseBase
from django.utils.deprecation import MiddlewareMixin

from config.api.handlers import PAGES


class _OnPages(MiddlewareMixin):
    """Before a middleware of Django's: the rest of the service does not meet it."""

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        if request.path_info.startswith(PAGES):
            return super().__call__(request)  # type: ignore[return-value]  # never awaited: there is no ASGI here
        return self.get_response(request)  # type: ignore[return-value]


class PageSessions(_OnPages, SessionMiddleware):
    """The session of an operator, or of a person who sets a password."""


class PageAuthentication(_OnPages, AuthenticationMiddleware):
    """``request.user`` by that session."""


class PageMessages(_OnPages, MessageMiddleware):
    """What one page says on the next."""
