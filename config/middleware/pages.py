"""Django's middleware for people who sign in to pages, on those pages only.

Callers of the API send a token with each request: they have no session, and no messages for a next page.
"""

from django.contrib.auth.middleware import AuthenticationMiddleware
from django.contrib.messages.middleware import MessageMiddleware
from django.contrib.sessions.middleware import SessionMiddleware
from django.http import HttpRequest, HttpResponseBase
from django.utils.deprecation import MiddlewareMixin

from config.api.handlers import PAGES


class _OnPages(MiddlewareMixin):
    """Skips the middleware after it for addresses other than those of pages."""

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        if request.path_info.startswith(PAGES):
            return super().__call__(request)  # type: ignore[return-value]  # there is no ASGI here
        return self.get_response(request)  # type: ignore[return-value]


class PageSessionMiddleware(_OnPages, SessionMiddleware):
    """The session of an operator, or of a person who sets a password."""


class PageAuthenticationMiddleware(_OnPages, AuthenticationMiddleware):
    """``request.user`` by that session."""


class PageMessageMiddleware(_OnPages, MessageMiddleware):
    """Messages of one page for the next."""
