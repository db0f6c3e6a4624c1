"""The CDN in front of storage: purges its copies and checks its answers.

A purger is a function of storage paths and of a reference, which identifies a request that is sent again. It returns
whether the CDN reports completion, and raises ``PurgeFailed``.
"""

import time
from collections.abc import Callable, Mapping, Sequence

from django.conf import settings
from django.utils.module_loading import import_string

from releases.delivery.fetching import FetchRefused, fetch, status_of

Purger = Callable[[Sequence[str], str], bool]
# Imported on first use: boto3 takes a while.
PURGERS: Mapping[str, str] = {
    "purge": "releases.delivery.cdn.purge_by_http",
    "cloudfront": "releases.delivery.cloudfront.invalidate",
}
# The limit for one address.
PURGE_SECONDS = 10.0
# An answer is read for so long even where a purge has taken all the time.
LEAST_SECONDS = 1.0
# The CDN had no copy: the answers of nginx's modules and Varnish.
NOTHING_KEPT = frozenset({404, 410, 412})
# A manifest has at most 1 MiB.
LIMIT_BYTES = 2 * 2**20


class PurgeFailed(Exception):
    """A purge that the CDN refused, with a code for the console."""

    def __init__(self, code: str) -> None:
        self.code = code
        super().__init__(code)


def is_purged() -> bool:
    """Returns whether a purge is configured."""
    return bool(settings.CDN_PURGE)


def purge(paths: Sequence[str], *, reference: str) -> bool:
    """Purges paths; returns whether the CDN reports completion. Raises ``PurgeFailed``."""
    purger: Purger = import_string(PURGERS[settings.CDN_PURGE.partition(":")[0]])
    return purger(paths, reference)


def purge_by_http(paths: Sequence[str], reference: str) -> bool:
    """Sends ``PURGE`` to each public address; a success means completion."""
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
    """Returns whether the public address of each path serves these bytes, or no file for None.

    The requests are those of any reader, which no cache could tell apart. ``deadline`` on the monotonic clock.
    """
    return all(_serves(path, content, deadline) for path, content in expected.items())


def _serves(path: str, content: bytes | None, deadline: float) -> bool:
    seconds = max(deadline - time.monotonic(), LEAST_SECONDS)
    try:
        with fetch(
            f"{settings.CDN_URL}/{path}", limit=LIMIT_BYTES, deadline=time.monotonic() + seconds
        ) as fetched:
            return content == b"".join(fetched)
    except FetchRefused as refused:
        return content is None and refused.code == "not_found"
