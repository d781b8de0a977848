"""Histograms of durations: log-spaced buckets, integer nanoseconds, one writer, no lock.

Values below 16 ns have a bucket each; from there an octave has 16 equal steps. A bucket's middle is therefore within
1/32 of every value in it. Count, sum, minimum and maximum are exact.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from math import ceil

STEPS_BITS = 4
STEPS = 1 << STEPS_BITS  # an octave
LARGEST_NS = (1 << 63) - 1  # 292 years; larger values count as this
_BUCKETS = (63 - STEPS_BITS) * STEPS + STEPS
RELATIVE_ERROR = 1 / (2 * STEPS)


def bucket_index(value_ns: int) -> int:
    """The bucket of a duration of 0 to ``LARGEST_NS``."""
    shift = value_ns.bit_length() - 1 - STEPS_BITS
    return value_ns if shift <= 0 else (shift << STEPS_BITS) + (value_ns >> shift)


def bucket_range_ns(index: int) -> tuple[int, int]:
    """The smallest and the largest duration of a bucket, both inside."""
    if index < 2 * STEPS:
        return index, index
    shift = (index >> STEPS_BITS) - 1
    low = (index - (shift << STEPS_BITS)) << shift
    return low, low + (1 << shift) - 1


@dataclass(frozen=True, slots=True)
class HistogramSnapshot:
    """What a histogram held at one moment. ``min_ns`` and ``max_ns`` are None while it is empty.

    ``buckets`` are (index, count) of the buckets that hold something, in order; see :func:`bucket_range_ns`.
    """

    count: int = 0
    sum_ns: int = 0
    min_ns: int | None = None
    max_ns: int | None = None
    buckets: tuple[tuple[int, int], ...] = ()

    @property
    def mean_ns(self) -> float | None:
        """The exact mean; None while empty."""
        return self.sum_ns / self.count if self.count else None

    def quantile(self, q: float) -> int | None:
        """The duration that a share ``q`` of the samples does not exceed (nearest rank), within 1/32; None if empty.

        ``quantile(0)`` is the exact minimum, ``quantile(1)`` the exact maximum.

        Raises:
            ValueError: ``q`` is not within 0 and 1.
        """
        if not 0.0 <= q <= 1.0:
            raise ValueError(f"a quantile is 0 to 1, got {q}")
        if self.min_ns is None or self.max_ns is None:
            return None
        if q == 0.0:
            return self.min_ns
        if q == 1.0:
            return self.max_ns
        rank = max(1, ceil(q * self.count * (1 - 1e-12)))
        seen = 0
        for index, count in self.buckets:
            seen += count
            if seen >= rank:
                low, high = bucket_range_ns(index)
                return min(max((low + high) // 2, self.min_ns), self.max_ns)
        return self.max_ns

    def cumulative(self, bounds_ns: Iterable[int]) -> list[int]:
        """For each bound, how many samples were at most that long, to the resolution of the buckets.

        Ascending bounds give what a Prometheus histogram wants; its ``+Inf`` is ``count``.
        """
        middles = [(sum(bucket_range_ns(index)) // 2, count) for index, count in self.buckets]
        return [sum(count for middle, count in middles if middle <= bound) for bound in bounds_ns]

    def since(self, earlier: HistogramSnapshot) -> HistogramSnapshot:
        """What was added after ``earlier``, a snapshot of the same histogram; extremes to the buckets' resolution."""
        before = dict(earlier.buckets)
        added = tuple((i, n - before.get(i, 0)) for i, n in self.buckets if n > before.get(i, 0))
        if not added:
            return HistogramSnapshot()
        low, high = bucket_range_ns(added[0][0])[0], bucket_range_ns(added[-1][0])[1]
        assert self.min_ns is not None
        assert self.max_ns is not None
        return HistogramSnapshot(
            self.count - earlier.count,
            self.sum_ns - earlier.sum_ns,
            max(low, self.min_ns),
            min(high, self.max_ns),
            added,
        )


class LogHistogram:
    """Counts durations. :meth:`record` from one thread only, :meth:`snapshot` from any; neither blocks on the other."""

    def __init__(self) -> None:
        self._counts = [0] * _BUCKETS
        self._sum_ns = 0
        self._min_ns = LARGEST_NS
        self._max_ns = 0
        # A sequence lock: odd while a record is half done.
        self._turn = 0

    def record(self, value_ns: int) -> None:
        """Count one duration; below 0 counts as 0, as clocks of different origin may disagree by a little."""
        value_ns = min(max(value_ns, 0), LARGEST_NS)
        self._turn += 1
        self._counts[bucket_index(value_ns)] += 1
        self._sum_ns += value_ns
        if value_ns < self._min_ns:
            self._min_ns = value_ns
        if value_ns > self._max_ns:
            self._max_ns = value_ns
        self._turn += 1

    def snapshot(self) -> HistogramSnapshot:
        """A consistent copy: count, sum and buckets are of the same samples."""
        while True:
            turn = self._turn
            counts = self._counts.copy()
            total, low, high = self._sum_ns, self._min_ns, self._max_ns
            if turn % 2 == 0 and turn == self._turn:
                break
            time.sleep(0)
        buckets = tuple((index, count) for index, count in enumerate(counts) if count)
        if not buckets:
            return HistogramSnapshot()
        return HistogramSnapshot(sum(count for _, count in buckets), total, low, high, buckets)
