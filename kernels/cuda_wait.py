"""How a frame on a stream is waited for: its events, and when a core is spent on it."""

from __future__ import annotations

import threading

from kernels import cuda_events
from kernels.device import WaitMode, cuda_errors

# A frame that takes no longer is waited for with a core, by "auto": sleeping and waking up would cost as much again.
SPIN_AT_MOST_NS = 2_000_000


class Events:
    """A pair of timing events, used again once its frame is done."""

    def __init__(self, block: bool) -> None:
        from cupy.cuda import Event

        self.block = block
        self.start = Event(block=block)
        self.end = Event(block=block)


class FrameClock:
    """The events of an executor's frames, and how they are waited for: asleep or with a core."""

    def __init__(self, wait: WaitMode) -> None:
        self._wait = wait
        self._spare: dict[bool, list[Events]] = {True: [], False: []}
        self._usual_ns = 0

    def take(self) -> Events:
        block = self._wait == "block" or (self._wait == "auto" and self._usual_ns > SPIN_AT_MOST_NS)
        spare = self._spare[block]
        return spare.pop() if spare else Events(block)

    def give_back(self, events: Events, taken_ns: int) -> None:
        self._usual_ns = (7 * self._usual_ns + taken_ns) // 8
        self._spare[events.block].append(events)


class CudaCompletion:
    """Done when the frame's end event is reached. Any thread may ask."""

    def __init__(self, events: Events, clock: FrameClock) -> None:
        self._lock = threading.Lock()
        self._events: Events | None = events
        self._end = events.end
        self._clock = clock
        self._over = False
        self._gpu_ns: int | None = None

    def done(self) -> bool:
        if not self._over:
            with cuda_errors("cudaEventQuery"):
                self._over = bool(self._end.done)
        return self._over

    def wait(self) -> None:
        if not self._over:
            with cuda_errors("cudaEventSynchronize"):
                self._end.synchronize()
            self._over = True

    def gpu_ns(self) -> int | None:
        """Asked once the frame is done and not while it is waited for; the first answer lets the events go."""
        if self._over and self._gpu_ns is None:
            with self._lock:
                if self._events is not None:
                    with cuda_errors("cudaEventElapsedTime"):
                        self._gpu_ns = cuda_events.elapsed_ns(self._events.start, self._events.end)
                    self._clock.give_back(self._events, self._gpu_ns)
                    self._events = None
        return self._gpu_ns
