"""A driver's stamps and numbers: when a frame was captured, by which clock, and how many are missing before it."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

from pipeline.frame import Capture
from pipeline.v4l2.queue import Dequeued

OLDEST_NS = 10_000_000_000  # no frame waits so long; a stamp before that is of another clock, whatever its flag says
_WRAP = 1 << 32
MOST_LOST = 1 << 16  # a larger step of the number is a new count


class Stamps:
    """One stream's. ``details`` says what the stamps are, for the camera's state; the rest is the capture thread's."""

    def __init__(self) -> None:
        self.details: dict[str, Any] = {"clock": None, "marks": None, "unusable": 0, "lost_frames": 0}
        self._last_sequence: int | None = None
        self._last_ns = 0

    def gap(self, sequence: int) -> int:
        """How many frames are missing before this one; 0 where the driver begins to count anew, or repeats itself."""
        last, self._last_sequence = self._last_sequence, sequence
        if last is None:
            return 0
        missing = (sequence - last) % _WRAP - 1
        if not 0 < missing <= MOST_LOST:
            return 0
        self.details["lost_frames"] += missing
        return missing

    def capture(self, taken: Dequeued, copied_bytes: int) -> Capture:
        """When it was captured: the driver's stamp if that is on the monotonic clock and makes sense, else now.

        A stamp that lies ahead, goes back, or repeats the last one makes no sense.
        """
        now_ns, wall_ns = time.monotonic_ns(), time.time_ns()
        stamp_ns, details = taken.stamp_ns, self.details
        if details["marks"] is None:
            details["clock"] = "monotonic" if taken.monotonic else "not stated: the host's arrival time is used"
            details["marks"] = "start of exposure" if taken.marks_start else "end of frame"
        usable = taken.monotonic and self._last_ns < stamp_ns <= now_ns and now_ns - stamp_ns < OLDEST_NS
        if not usable:
            if taken.monotonic:
                details["unusable"] += 1
            return Capture(now_ns, wall_ns, copied_bytes=copied_bytes)
        self._last_ns = stamp_ns
        return Capture(stamp_ns, wall_ns - (now_ns - stamp_ns), "driver", copied_bytes)

    @staticmethod
    def with_copy(capture: Capture, copied_bytes: int) -> Capture:
        """The same, with what it took to get the frame into its slot."""
        return replace(capture, copied_bytes=copied_bytes)
