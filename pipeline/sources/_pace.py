"""When frames are due: by a constant rate (:class:`Schedule`) or by a recording's stamps (:class:`MediaClock`)."""

from __future__ import annotations

from fractions import Fraction

_SECOND_NS = 1_000_000_000


class Schedule:
    """Times of a constant rate, exact in rationals: nothing drifts, and being late skips whole frame times, no burst.

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


class MediaClock:
    """Places frames in time by their stamps (PTS), in nanoseconds since the first frame. Never goes back.

    The distance to the frame before is the difference of the stamps. A stamp that is missing, repeated, goes back, or
    is more than ``max_gap_ns`` ahead (a break in the recording's clock, not a pause) counts as one nominal frame.
    """

    def __init__(self, nominal_ns: int, max_gap_ns: int = 10 * _SECOND_NS) -> None:
        self._nominal_ns = nominal_ns
        self._max_gap_ns = max(max_gap_ns, 3 * nominal_ns)
        self._position_ns: int | None = None
        self._last_pts_ns: int | None = None

    def place(self, pts_ns: int | None) -> int:
        """The position of the next frame."""
        gap_ns = self._nominal_ns
        if pts_ns is not None and self._last_pts_ns is not None and 0 < pts_ns - self._last_pts_ns <= self._max_gap_ns:
            gap_ns = pts_ns - self._last_pts_ns
        self._position_ns = 0 if self._position_ns is None else self._position_ns + gap_ns
        if pts_ns is None and self._last_pts_ns is not None:
            pts_ns = self._last_pts_ns + gap_ns
        self._last_pts_ns = pts_ns
        return self._position_ns

    def restart(self) -> None:
        """The next stamp begins a new round: one nominal frame after the last one."""
        self._last_pts_ns = None


class Playback:
    """When positions of a :class:`MediaClock` are due. A reader that is late is waited for, not hurried after.

    Small delays are caught up with, so that nothing drifts; a delay above ``patience_ns`` moves the schedule.
    """

    def __init__(self, patience_ns: int = _SECOND_NS // 5) -> None:
        self._patience_ns = patience_ns
        self._start_ns: int | None = None

    def due(self, position_ns: int, now_ns: int) -> int:
        """When the frame at ``position_ns`` is to be shown; the first one now."""
        if self._start_ns is None or now_ns - (self._start_ns + position_ns) > self._patience_ns:
            self._start_ns = now_ns - position_ns
        return self._start_ns + position_ns
