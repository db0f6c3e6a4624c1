"""Messages of the console after a redirect, in a separate cookie.

In the session, saving them at the end of a request would overwrite changes by concurrent requests.
"""

from django.conf import settings
from django.contrib.messages.storage.cookie import CookieStorage
from django.http import HttpRequest


class MessageCookie(CookieStorage):
    """Django's cookie, with the session cookie's ``__Host-`` prefix where that has one."""

    def __init__(self, request: HttpRequest) -> None:
        super().__init__(request)
        self.cookie_name = settings.SESSION_COOKIE_NAME.replace("sessionid", "messages")
