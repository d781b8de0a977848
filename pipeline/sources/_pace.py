"""Frame times on an absolute schedule: nothing drifts, and being late skips whole frame times instead of bursting."""

from __future__ import annotations

from fractions import Fraction

_SECOND_NS = 1_000_000_000


class Schedule:
    """Times of a constant rate, exact in rationals. Not thread-safe: its source's capture thread only.

    ``skipped`` counts the frame times that were left out because the caller came a whole period late or more.
    """

    def __init__(self, rate: Fraction, start_ns: int) -> None:
        self._period_ns = _SECOND_NS / rate
        self._start_ns = start_ns
        self._index = 0
        self.skipped = 0

    def next(self, now_ns: int) -> tuple[int, int]:
        """(due, offset): when the next frame is due and how far that is from the start, both in nanoseconds.

        The time is at most one period before ``now_ns``. Each time is given once.
        """
        lost = max(0, int((now_ns - self._start_ns) / self._period_ns) - self._index)
        self.skipped += lost
        offset_ns = int((self._index + lost) * self._period_ns)
        self._index += lost + 1
        return self._start_ns + offset_ns, offset_ns
