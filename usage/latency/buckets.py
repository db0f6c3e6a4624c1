"""Times by bucket: each begins 5 % above the one before, so that a percentile is within 5 % of the exact one."""

from collections import Counter
from collections.abc import Mapping

# Buckets are counted from one millisecond.
GROWTH = 1.05
Buckets = Counter[int]


def percentile(buckets: Mapping[int, int], share: float) -> float | None:
    """Returns the milliseconds that this share of the times do not exceed, as its bucket has them; None without any."""
    found = _place(buckets, share)
    return None if found is None else float(GROWTH ** sum(found))


def least(buckets: Mapping[int, int], share: float) -> float | None:
    """Returns the milliseconds above which the other times are, and those that share the bucket of the percentile."""
    found = _place(buckets, share)
    return None if found is None else float(GROWTH ** found[0])


def _place(buckets: Mapping[int, int], share: float) -> tuple[int, float] | None:
    """Returns a bucket, and the part of it that the percentile leaves behind."""
    before, wanted = 0, share * sum(buckets.values())
    for bucket in sorted(buckets):
        number = buckets[bucket]
        if number and before + number >= wanted:
            # Within a bucket times are taken to grow evenly; a single one is in its middle.
            return bucket, min(max(wanted - before, 0.5), number - 0.5) / number
        before += number
    return None


def read(column: Mapping[str, int]) -> Buckets:
    """Reads the column of a row, whose names are text."""
    return Counter({int(bucket): number for bucket, number in column.items()})
