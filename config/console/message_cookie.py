"""Messages of the console after a redirect, in a cookie of their own.

In the session they would be written with all of it at the end of a request, over what other requests stored meanwhile.
"""

from django.conf import settings
from django.contrib.messages.storage.cookie import CookieStorage
from django.http import HttpRequest


class MessageCookie(CookieStorage):
    """Django's cookie under a name that browsers take for this host alone, where the session's has such a name."""

    def __init__(self, request: HttpRequest) -> None:
        super().__init__(request)
        self.cookie_name = settings.SESSION_COOKIE_NAME.replace("sessionid", "messages")
