"""The CDN before storage: having it forget what it keeps, and reading what anybody reads from it.

A way to purge is a function of paths (as storage has them) and of a reference: the same reference twice asks for
the same thing. It returns whether the CDN says that it is done, and raises ``PurgeFailed``.
"""

import time
from collections.abc import Callable, Mapping, Sequence

from django.conf import settings
from django.utils.module_loading import import_string

from releases.delivery.fetching import FetchRefused, fetch, status_of

Purger = Callable[[Sequence[str], str], bool]
# Each is loaded only where it is wanted.
WAYS: Mapping[str, str] = {
    "purge": "releases.delivery.cdn.purge_by_http",
    "cloudfront": "releases.delivery.cloudfront.invalidate",
}
# For each address.
PURGE_SECONDS = 10.0
# Not kept in the first place: nginx's modules and Varnish say so in one of these ways.
NOTHING_KEPT = frozenset({404, 410, 412})
# A manifest has at most 1 MiB.
LIMIT_BYTES = 2 * 2**20


class PurgeFailed(Exception):
    """Why the CDN did not take the request: a word for the console."""

    def __init__(self, code: str) -> None:
        self.code = code
        super().__init__(code)


def is_purged() -> bool:
    """Whether there is a CDN that has to be told."""
    return bool(settings.CDN_PURGE)


def purge(paths: Sequence[str], *, reference: str) -> bool:
    """Has the CDN forget these; whether it says that it has. Raises ``PurgeFailed``."""
    way: Purger = import_string(WAYS[settings.CDN_PURGE.partition(":")[0]])
    return way(paths, reference)


def purge_by_http(paths: Sequence[str], reference: str) -> bool:
    """``PURGE`` to each public address; what answers has forgotten it."""
    for path in paths:
        deadline = time.monotonic() + PURGE_SECONDS
        try:
            status = status_of("PURGE", f"{settings.CDN_URL}/{path}", deadline=deadline)
        except FetchRefused as refused:
            raise PurgeFailed(refused.code) from refused
        if not 200 <= status < 300 and status not in NOTHING_KEPT:
            raise PurgeFailed(f"answered_{status}")
    return True


def serves(expected: Mapping[str, bytes | None], *, deadline: float) -> bool:
    """Whether the public address of each path gives these bytes, or for None no file at all.

    It is asked exactly as anybody asks: nothing is added that a cache could tell apart. ``deadline`` on the
    monotonic clock.
    """
    return all(_serves(path, content, deadline) for path, content in expected.items())


def _serves(path: str, content: bytes | None, deadline: float) -> bool:
    # Read also where the time is over: a purge that took all of it may well have done its work.
    seconds = max(deadline - time.monotonic(), 1.0)
    try:
        with fetch(
            f"{settings.CDN_URL}/{path}", limit=LIMIT_BYTES, deadline=time.monotonic() + seconds
        ) as fetched:
            return content == b"".join(fetched)
    except FetchRefused as refused:
        return content is None and refused.code == "not_found"
