"""Ids that begin with the time, for rows that are added without end; and how many are asked for at once.

An index on them grows at its end. One on ids at random takes each new entry into another page, all over, and in a
large table that is a page to be read, and written whole to the log, for every row.
"""

import os
import time
from collections.abc import Iterable
from uuid import UUID

from django.db.models.expressions import RawSQL


def timed_uuid() -> UUID:
    """A new UUID of version 7 (RFC 9562): milliseconds since 1970, then 74 random bits. It is no secret."""
    milliseconds = time.time_ns() // 1_000_000
    random = int.from_bytes(os.urandom(10))
    high = milliseconds << 16 | 7 << 12 | random >> 62 & 0xFFF
    return UUID(int=high << 64 | 0b10 << 62 | random & (1 << 62) - 1)


def one_of(ids: Iterable[UUID]) -> RawSQL:
    """For ``pk__in``: the ids as one value of a statement, where hundreds of values take Django milliseconds."""
    return RawSQL("SELECT unnest(%s::uuid[])", ([*ids],))
