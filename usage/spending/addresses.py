"""Addresses of the console's lists of calls."""

from datetime import datetime
from typing import Any
from urllib.parse import urlencode

from django.urls import reverse


def calls_between(since: datetime, until: datetime, **looked_for: Any) -> str:
    """The address of the calls that were admitted in this time."""
    given = {"opened_at__gte": since, "opened_at__lt": until, **looked_for}
    chosen = {name: value for name, value in given.items() if value}
    return f"{reverse('admin:usage_usagerecord_changelist')}?{urlencode(chosen)}"
