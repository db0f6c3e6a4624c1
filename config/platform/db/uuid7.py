"""UUIDs of version 7, for tables that grow indefinitely.

The ids begin with the time, so that an index on them grows at its end. An index on random ids puts each new entry on
a different page, which must be read and logged for every row of a large table.
"""

import os
import time
from uuid import UUID


def timed_uuid() -> UUID:
    """Returns a UUID of version 7 (RFC 9562): milliseconds since 1970, then 74 random bits. It is no secret."""
    milliseconds = time.time_ns() // 1_000_000
    random = int.from_bytes(os.urandom(10))
    high = milliseconds << 16 | 7 << 12 | random >> 62 & 0xFFF
    return UUID(int=high << 64 | 0b10 << 62 | random & (1 << 62) - 1)
