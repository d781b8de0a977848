"""One bounded profile at a time: the CUDA profiler's start and stop, with NVTX ranges for every stage meanwhile.

Everything here runs on the event loop; the driver is called in worker threads.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable

from starlette.concurrency import run_in_threadpool

from kernels.device import Device
from kernels.errors import PinholeError
from kernels.profiler import RANGES
from service.live import HubClosedError

log = logging.getLogger("pinhole.profile")

LONGEST_S = 60.0


class ProfileRunningError(PinholeError):
    """A profile is being taken, for another ``left_s`` seconds."""

    def __init__(self, left_s: float) -> None:
        self.left_s = left_s
        super().__init__(f"a profile is being taken for another {left_s:.1f} s; stop it or wait for its end")


class Profiler:
    """See the module. ``device`` is asked for at each start."""

    def __init__(self, device: Callable[[], Device]) -> None:
        self._device = device
        self._turn = asyncio.Lock()  # one start or stop at a time
        self._end: asyncio.Task[None] | None = None  # while a profile is being taken
        self._profiled: Device | None = None
        self._until_ns = 0
        self._closed = False

    @property
    def running(self) -> bool:
        """True while a profile is being taken."""
        return self._end is not None

    async def start(self, seconds: float) -> bool:
        """Begin a profile, which ends by itself; False if there are no NVTX ranges in it.

        Raises:
            ProfileRunningError, HubClosedError
            DeviceUnavailableError: there is no GPU; DeviceFailedError
        """
        async with self._turn:
            if self._closed:
                raise HubClosedError("the service is stopping")
            if self._end is not None:
                raise ProfileRunningError(max(0.0, (self._until_ns - time.monotonic_ns()) / 1e9))
            device = self._device()
            self._until_ns = time.monotonic_ns() + int(seconds * 1e9)
            # Before the start: whatever becomes of this request, what it started ends.
            self._end = asyncio.get_running_loop().create_task(self._end_after(seconds), name="profile")
            self._profiled = device
            try:
                await run_in_threadpool(device.start_profiler)
            except PinholeError:
                self._end.cancel()
                self._end = self._profiled = None
                raise
            named = RANGES.switch_on()
        log.info("a profile is being taken for %g s", seconds)
        return named

    async def stop(self) -> bool:
        """End the profile now; False if none was being taken."""
        async with self._turn:
            if self._end is None:
                return False
            self._end.cancel()
            await self._over()
            return True

    async def close(self) -> None:
        """End the profile and take no more."""
        self._closed = True
        await self.stop()

    async def _end_after(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        async with self._turn:
            await self._over()

    async def _over(self) -> None:
        RANGES.switch_off()
        assert self._profiled is not None
        try:
            await run_in_threadpool(self._profiled.stop_profiler)
        except PinholeError as error:  # the device may have been lost meanwhile; the profile is over all the same
            log.warning("the profiler did not stop: %s", error)
        finally:
            self._end = self._profiled = None
        log.info("the profile is over")


def retry_after(error: ProfileRunningError) -> str:
    """Whole seconds, as the header has them."""
    return str(math.ceil(error.left_s) or 1)
