"""Many samples of a latency as counts per bucket, made where the rows are and merged in the driver."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from streamling.telemetry.catalog import BOUNDS_MS


@dataclass(frozen=True, slots=True)
class BucketCounts:
    """Samples per bucket of `BOUNDS_MS`, one more than there are bounds."""

    buckets: tuple[int, ...] = (0,) * (len(BOUNDS_MS) + 1)
    sum: float = 0.0

    @property
    def count(self) -> int:
        return sum(self.buckets)

    def __add__(self, other: BucketCounts) -> BucketCounts:
        buckets = tuple(one + two for one, two in zip(self.buckets, other.buckets, strict=True))
        return BucketCounts(buckets, self.sum + other.sum)


def one_sample(milliseconds: float) -> BucketCounts:
    bucket = bisect_left(BOUNDS_MS, milliseconds)
    return bucket_counts([number == bucket for number in range(len(BOUNDS_MS) + 1)], milliseconds)


def bucket_counts(buckets: Sequence[int], total: float) -> BucketCounts:
    return BucketCounts(tuple(int(count) for count in buckets), float(total))
