"""The stage thread, ``stage-<camera>``: runs the chain on the frames of the ring, and watches the capture thread."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from kernels.device import Completion, Executor
from kernels.errors import DeviceFailedError, OutOfMemoryError, PinholeError
from kernels.image import Stamp
from kernels.profiler import RANGES
from pipeline.core import Core
from pipeline.demand import Place
from pipeline.lease import ProcessLease
from pipeline.ring import RingClosed
from pipeline.work import Work

log = logging.getLogger("pinhole.stage")

TICK_S = 0.1  # how often it looks around while no frame comes
SPIN_NS = 250_000_000  # how long a spinning stage burns its core without a frame before it sleeps like a blocking one
MAX_FAILURES = 5  # frames in a row that the device failed on


class StageLoop:
    """One stage thread. It alone submits to, and closes, the camera's executors."""

    def __init__(self, core: Core, watch: Callable[[], None]) -> None:
        """``watch`` is called about every ``TICK_S`` while no frame comes."""
        self._core = core
        self._halted = core.halted
        self._watch = watch
        self._work: Work | None = None
        self._executor: Executor | None = None
        self._warm = False
        self._failures = 0
        self._logged: set[tuple[str, int]] = set()
        self._has_link = core.device.backend == "cuda"
        self._spin = core.config.wait == "spin"
        self._spin_until_ns = 0
        self._over = threading.Event()
        self.thread = threading.Thread(target=self._run, name=f"stage-{core.config.name}", daemon=True)

    def _run(self) -> None:
        core = self._core
        ticker = threading.Thread(target=self._tick, name=f"tick-{core.config.name}", daemon=True)
        try:
            if self._spin:
                ticker.start()
            core.device.activate()
            while not self._halted.is_set():
                self._step()
        except PinholeError as error:
            core.fail(core.explain(error))
        except BaseException as error:  # the thread's border: it must not die silently
            core.fail_unexpectedly("stage", error)
        finally:
            self._over.set()
            if ticker.is_alive():
                ticker.join()
            self._work = self._executor = None
            for executor in core.take_all_executors():
                self._close(executor)

    def _tick(self) -> None:
        """Own thread, where the stage spins: it cannot look at the clock while it waits for a frame without the GIL."""
        while not self._over.wait(TICK_S):
            if (work := self._core.work) is not None:
                work.ring.tick()

    def _step(self) -> None:
        """One frame, or a tick without one."""
        core, work = self._core, self._work
        if work is None:
            self._work = core.wait_work(None, TICK_S)
            if self._work is None:
                self._watch()
            return
        try:
            lease = work.ring.acquire_ready(TICK_S, self._spin and time.monotonic_ns() < self._spin_until_ns)
        except RingClosed:
            newer = core.wait_work(work, TICK_S)
            self._work = work if newer is None else newer
            self._watch()
            return
        current = core.work
        if current is not None and current.ring is work.ring:
            self._work = work = current
        if lease is None:
            self._adopt(work.executor)
            self._watch()
        else:
            name, frame = core.config.name, lease.frame
            RANGES.mark(name, "queue", frame.sequence, frame.times.picked_ns - frame.times.published_ns)
            with RANGES.range(name, "process", frame.sequence):
                self._process(work, lease)

    def _adopt(self, executor: Executor) -> None:
        """Use ``executor`` from now on, and close those that were used before."""
        if executor is self._executor:
            return
        self._executor, self._warm = executor, False
        for over in self._core.take_superseded(executor):
            self._close(over)

    def _close(self, executor: Executor) -> None:
        try:
            executor.close()
        except DeviceFailedError as error:
            log.warning("camera %s: an executor did not close: %s", self._core.config.name, error)

    def _process(self, work: Work, lease: ProcessLease) -> None:
        core = self._core
        completion: Completion | None = None
        try:
            self._adopt(work.executor)
            frame = lease.frame
            frame.chain_version = work.chain.version
            plan = work.executor.plan
            there = None if self._on_host() else lease.device_result(plan)
            result = lease.result(plan) if there is None else there
            stamp = Stamp(core.config.name, frame.sequence, frame.capture.wall_ns)
            completion = work.executor.submit(lease.source, result, work.params, stamp)
            frame.times.submitted_ns = time.monotonic_ns()
            completion.wait()
            frame.times.done_ns = time.monotonic_ns()
            frame.times.gpu_ns = completion.gpu_ns() or 0
        except DeviceFailedError as error:
            lease.abandon("device", completion)
            self._failed(error)
            return
        except BaseException as error:
            lease.abandon("memory" if isinstance(error, OutOfMemoryError) else "device", completion)
            raise
        self._failures = 0
        self._spin_until_ns = frame.times.done_ns + SPIN_NS
        # Counted before it is shown: who sees the frame sees it counted.
        linked = plan if self._has_link else None
        core.counters.count_processed(frame, linked, not self._warm, work.executor.copies, stays=there is not None)
        self._warm = True
        lease.finish(completion)
        if core.previous is not None:
            core.drop_previous(work.ring)

    def _on_host(self) -> bool:
        """Whether the next result goes to host memory. Strategies that copy leave that to those who read it there."""
        device = self._core.device
        if not device.holds_results:
            return True
        return device.memory not in ("staged", "pageable") and self._core.demand.place is Place.HOST

    def _failed(self, error: DeviceFailedError) -> None:
        self._failures += 1
        cause = self._core.explain(error)
        if (key := (error.call, error.code)) not in self._logged:
            self._logged.add(key)
            log.error("camera %s: a frame failed: %s", self._core.config.name, cause)
        if error.sticky:
            self._core.fail(cause)
            self._core.device.lose(error)
        elif self._failures >= MAX_FAILURES:
            self._core.fail(f"{self._failures} frames in a row failed: {cause}")
