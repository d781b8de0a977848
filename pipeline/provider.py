"""What a source sees of its camera's ring: slots to fill, and where to hand them over."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from kernels.errors import PinholeError
from pipeline.core import Core
from pipeline.frame import Capture, Frame, FrameTimes
from pipeline.lease import WriteLease
from pipeline.ring import Keep, Ring, RingClosed
from pipeline.sources.base import WriteSlot
from pipeline.state import CameraState

if TYPE_CHECKING:
    from pipeline.capture import CaptureLoop

SLOT_WAIT_S = 0.1  # how soon a writer that waits for a slot notices the end


class CaptureSlots:
    """What the source sees of the ring (a :class:`SlotProvider`). Capture thread only."""

    def __init__(self, core: Core, loop: CaptureLoop, ring: Ring) -> None:
        self._core = core
        self._loop = loop
        self._out: set[WriteLease] = set()
        self.ring = ring
        self.published = 0
        self.first_s: float | None = None  # when the first frame was published
        self.counted = False  # a drop was counted since this was last cleared

    def acquire(self) -> WriteSlot | None:
        """See :class:`SlotProvider`. Waits, for sources that are not live, until a slot is free or the camera ends."""
        while not self._loop.over():
            try:
                lease = self.ring.acquire_write(SLOT_WAIT_S)
            except RingClosed:
                return None
            if lease is not None:
                self._out.add(lease)
                return lease
            if self.ring.keep is Keep.NEWEST:
                self.counted = True
                return None
        return None

    def publish(self, slot: WriteSlot, capture: Capture) -> None:
        """See :class:`SlotProvider`."""
        if not isinstance(capture, Capture):
            raise PinholeError(f"the source published {type(capture).__name__} where a Capture was expected")
        lease = self._returned(slot)
        if self._loop.over():
            lease.give_back()
            return
        if self.first_s is None:
            self.first_s = time.monotonic()
        if self._core.state is not CameraState.RUNNING:
            self._loop.delivering()
        counters = self._core.counters
        frame = Frame(counters.next_sequence, capture, FrameTimes())
        counters.next_sequence += 1
        counters.captured += 1
        counters.copied_bytes += capture.copied_bytes
        self.published += 1
        lease.publish(frame)
        os.sched_yield()  # lets the GIL go: the stage, just woken, need not wait for the bookkeeping below
        published_ns = frame.times.published_ns
        counters.capture_rate.tick(published_ns)
        counters.capture.record(published_ns - capture.captured_ns)

    def give_back(self, slot: WriteSlot, reason: str | None = None) -> None:
        """See :class:`SlotProvider`."""
        self.counted = self.counted or reason is not None
        self._returned(slot).give_back(reason)

    def lost(self, reason: str, count: int = 1) -> None:
        """See :class:`SlotProvider`."""
        self._core.counters.dropped.add(reason, count)

    def take_back(self) -> int:
        """Slots that a closed source still had, now given back: how many."""
        kept, self._out = self._out, set()
        for lease in kept:
            lease.give_back()
        return len(kept)

    def _returned(self, slot: WriteSlot) -> WriteLease:
        if not isinstance(slot, WriteLease) or slot not in self._out:
            raise PinholeError("the source returned a slot that it does not have")
        self._out.remove(slot)
        return slot
