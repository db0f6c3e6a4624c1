"""The default limit per person, for every view without its own, as a throttle of REST framework.

A person's requests to addresses that are limited per address, such as the licence status, are not counted here: that
would be a second round trip to the cache for each poll. Views with their own limit per person disable it by
``throttle_classes = ()``.
"""

from typing import Any

from django.utils import timezone
from rest_framework.request import Request
from rest_framework.throttling import BaseThrottle

from config.platform.edge.ratelimits.limits import count
from config.platform.edge.ratelimits.table import limit_of


class PersonThrottle(BaseThrottle):
    def allow_request(self, request: Request, view: Any) -> bool:
        """Raises ``RateLimited``."""
        person = getattr(request.user, "pk", None)
        if person is not None and limit_of(request.method or "", request.path_info) is None:
            count("api.user", key=str(person), now=timezone.now())
        return True
