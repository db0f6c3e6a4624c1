"""Ids that begin with the time."""

import time
from uuid import RFC_4122, UUID

from config.platform.db.uuid7 import timed_uuid


def test_ids_are_uuids_of_version_7_with_their_time() -> None:
    before = time.time_ns() // 1_000_000
    made = timed_uuid()
    assert (made.version, made.variant) == (7, RFC_4122)
    assert before <= made.int >> 80 <= time.time_ns() // 1_000_000
    assert UUID(str(made)) == made


def test_ids_are_unique_and_ordered_by_time() -> None:
    made = [timed_uuid() for _ in range(1000)]
    assert len(set(made)) == 1000
    assert [each.int >> 80 for each in made] == sorted(each.int >> 80 for each in made)
    spread = {each.int & 0xFFFF for each in made}
    assert len(spread) > 900
