"""One camera: two threads, a ring, a chain that can change while it runs, and a state."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kernels.chain import Chain, Step, make_chain, make_params
from kernels.device import Device
from kernels.errors import InputError
from pipeline.capture import CaptureLoop
from pipeline.config import CameraConfig
from pipeline.core import Core, SourceFactory
from pipeline.demand import Place
from pipeline.frame import Frame
from pipeline.lease import ReadLease
from pipeline.ring import Ring, RingClosed
from pipeline.sources import make_source
from pipeline.sources.base import Source
from pipeline.stage import StageLoop
from pipeline.state import CameraState, StateError
from pipeline.stats import CameraHealth, CameraStatistics

__all__ = [
    "Camera",
    "CameraConfig",
    "CameraHealth",
    "CameraState",
    "CameraStatistics",
    "SourceFactory",
    "StateError",
]

log = logging.getLogger("pinhole.camera")

MAX_STUCK = 2  # capture threads given up at one time; each keeps a slot


class Camera:
    """One camera. Its methods may be called from any thread."""

    def __init__(self, config: CameraConfig, device: Device, source_factory: SourceFactory = make_source) -> None:
        """Check the URI and start nothing.

        ``source_factory`` makes the first source from the URI, and a fresh one for each reconnect.

        Raises:
            InputError: the URI.
        """
        self._core = Core(config, device, source_factory)
        self._first_source: Source | None = self._core.make_source()
        self._life = threading.Lock()  # one start or stop at a time
        self._capture: CaptureLoop | None = None
        self._stage: StageLoop | None = None
        self._stuck: list[CaptureLoop] = []
        self._closing: list[Ring] = []

    def check(self, field: str = "uri") -> None:
        """Raise InputError on ``field`` for what is wrong with the source now; before ``start``. May read the disk."""
        if (source := self._first_source) is not None:
            source.check(field)

    @property
    def config(self) -> CameraConfig:
        return self._core.config

    @property
    def name(self) -> str:
        return self._core.config.name

    @property
    def state(self) -> CameraState:
        return self._core.state

    @property
    def cause(self) -> str | None:
        """Why it is reconnecting or failed, without credentials; None in other states."""
        return self._core.cause

    @property
    def chain(self) -> Chain:
        """The newest chain; each frame says which one made it."""
        return self._core.chain

    def start(self) -> None:
        """Start both threads and return; whether the source opens shows in ``state``.

        Raises:
            StateError: it is not stopped.
            InputError: the URI does not make a source any more.
        """
        with self._life:
            core = self._core
            if core.state is CameraState.STOPPED:
                source = self._first_source if self._first_source is not None else core.make_source()
                self._first_source = None
            else:
                source = None
            core.move(CameraState.STARTING)
            core.open()
            self._capture = CaptureLoop(core, source)
            self._stage = StageLoop(core, self._watch)
            try:
                self._stage.thread.start()
                self._capture.thread.start()
            except RuntimeError as error:  # the system gives no more threads
                core.fail(f"no thread could be started: {error}")

    def stop(self, timeout_s: float = 2.0) -> bool:
        """End both threads and free all slots; waits up to ``timeout_s``.

        True if that is done; then it may be started again. False if a thread is stuck or a reader still holds a frame:
        memory that is in use stays until it is let go. May be called again.
        """
        deadline = time.monotonic() + timeout_s
        if not self._life.acquire(timeout=timeout_s):
            return False
        try:
            return self._stop(deadline)
        finally:
            self._life.release()

    def _stop(self, deadline: float) -> bool:
        core = self._core
        if core.state is not CameraState.STOPPED:
            if core.state is not CameraState.STOPPING:
                core.move(CameraState.STOPPING)
            core.halt()
            work, previous = core.work, core.previous
            for ring in (previous, work.ring if work is not None else None):
                if ring is not None:
                    ring.close(0)
            alive = self._join(deadline)
            if alive:
                log.error("camera %s: %s did not end in time and keeps its memory", self.name, ", ".join(alive))
                return False
            self._capture = self._stage = None
            self._closing += core.take_rings()
            core.move(CameraState.STOPPED)
        self._closing = [ring for ring in self._closing if not ring.close(max(0.0, deadline - time.monotonic()))]
        if self._closing:
            log.warning("camera %s: readers still hold frames; their memory is freed when they let go", self.name)
        return not self._closing

    def _join(self, deadline: float) -> list[str]:
        """Wait for all threads, interrupting the captures again and again; names of those that are left."""
        while True:
            # Anew each time: until the stage has ended it may still put a fresh capture in a stuck one's place.
            captures = [loop for loop in (self._capture, *self._stuck) if loop is not None]
            threads = [loop.thread for loop in captures]
            if self._stage is not None:
                threads.append(self._stage.thread)
            for loop in captures:
                if loop.thread.is_alive():
                    loop.interrupt()
            left_s = deadline - time.monotonic()
            alive = [thread for thread in threads if thread.is_alive()]
            if not alive or left_s <= 0:
                self._stuck = [loop for loop in self._stuck if loop.thread.is_alive()]
                return [thread.name for thread in alive]
            alive[0].join(min(left_s, 0.05))

    def _watch(self) -> None:
        """Stage thread, while no frame comes: is the capture thread stuck in its source?"""
        loop = self._capture
        if loop is None or (cause := loop.watch(time.monotonic_ns())) is None:
            return
        self._stuck = [*(old for old in self._stuck if old.thread.is_alive()), loop]
        if len(self._stuck) > MAX_STUCK:
            self._core.fail(f"{cause}, {len(self._stuck)} times; its threads are stuck")
            return
        log.warning("camera %s: %s; trying with a fresh source", self.name, cause)
        self._capture = CaptureLoop(self._core, None, wait_first=True)
        self._capture.thread.start()

    def set_chain(self, ops: Sequence[Mapping[str, Any]] | Chain) -> Chain:
        """Replace the chain as a whole; returns it with its version. Compiles here, so it may take seconds.

        Raises:
            InputError: names what is wrong.
            OutOfMemoryError, CompileError, DeviceFailedError: in every case the old chain goes on.
        """

        def make(old: Chain) -> Chain:
            if isinstance(ops, Chain):
                return Chain(ops.steps, old.version + 1)
            return make_chain(ops, version=old.version + 1)

        return self._core.set_chain(make)

    def set_params(self, index: int, params: Mapping[str, Any]) -> Chain:
        """Change some parameters of one op; the others keep their values. Compiles nothing.

        Raises:
            InputError: names what is wrong; nothing has changed.
        """

        def make(old: Chain) -> Chain:
            if isinstance(index, bool) or not isinstance(index, int) or not 0 <= index < len(old.steps):
                allowed = f"0 to {len(old.steps) - 1}" if old.steps else "none, the chain is empty"
                raise InputError("index", f"there is no operation {index!r}", allowed)
            if not isinstance(params, Mapping):
                raise InputError(f"ops[{index}].params", "must be an object", "{parameter: value, …}")
            step = old.steps[index]
            values = {**step.params.model_dump(), **params}
            changed = Step(step.op, make_params(step.op, values, f"ops[{index}].params"))
            return Chain((*old.steps[:index], changed, *old.steps[index + 1 :]), old.version + 1)

        return self._core.set_chain(make)

    def latest(self) -> ReadLease | None:
        """The newest result, also while reconnecting and after the end; None before the first and once stopped."""
        for _ in range(2):  # the old ring may go while it is asked, because the new one has a picture
            work, previous = self._core.work, self._core.previous
            for ring in (work.ring if work is not None else None, previous):
                if ring is not None and (lease := ring.latest()) is not None:
                    return lease
        return None

    def wait_newer(self, sequence: int, timeout_s: float) -> ReadLease | None:
        """The newest result once its number is above ``sequence``; None after the time, or at once when stopped."""
        core, deadline = self._core, time.monotonic() + timeout_s
        while not core.off:
            work = core.work
            left_s = max(0.0, deadline - time.monotonic())
            if work is not None:
                try:
                    lease = work.ring.wait_newer(sequence, left_s)
                except RingClosed:
                    pass
                else:
                    return lease
            core.wait_change(work, max(0.0, deadline - time.monotonic()))
            if time.monotonic() >= deadline:
                return None
        return None

    def subscribe(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call ``callback`` after each new result and change of state; returns what ends that.

        It is called in the camera's threads and must not block.
        """
        return self._core.subscribe(callback)

    @property
    def device(self) -> Device:
        """Where its frames are processed; whoever encodes them there uses it."""
        return self._core.device

    def claim(self, place: Place) -> Callable[[], None]:
        """Say that results will be read at ``place``, until the function that is returned is called.

        Results are written where their readers are, as far as the device can choose. Reading elsewhere works, too.
        """
        return self._core.demand.claim(place)

    def count_encoded(self, nbytes: int) -> None:
        """Account for encoded bytes that came from the device in a result's place."""
        self._core.counters.count_encoded(nbytes)

    def statistics(self) -> CameraStatistics:
        """Everything that is counted, at about one moment."""
        core, counters = self._core, self._core.counters
        work = core.work
        newest = counters.newest
        fetched, moved = counters.fetched.counts(), counters.moved_bytes.copy()
        if copied := fetched.get("result"):
            moved["from_device"] = moved.get("from_device", 0) + copied
        return CameraStatistics(
            name=self.name,
            uri=core.uri,
            state=core.state,
            cause=core.cause,
            captured=counters.captured,
            processed=counters.processed,
            reconnects=counters.reconnects,
            dropped=counters.dropped.counts(),
            memory=core.device.memory,
            choice=None if work is None else work.executor.choice,
            linked=core.device.backend == "cuda",
            copied_bytes={"capture": counters.copied_bytes, **moved},
            copied_bytes_per_frame=None if newest is None else newest.copied_bytes,
            link_bytes_in=counters.link_bytes_in,
            link_bytes_out=counters.link_bytes_out + (sum(fetched.values()) if core.device.backend == "cuda" else 0),
            latency=counters.latency(),
            warmup_frames=counters.warmup_frames,
            source=None if work is None else work.source,
            result=None if work is None else work.executor.plan.result,
            chain_version=core.chain.version,
            fps=counters.rate.per_second(),
            capture_fps=counters.capture_rate.per_second(),
            age_ns=core.age_ns(),
            sequence=None if newest is None else newest.sequence,
            ring=None if work is None else work.ring.statistics(),
        )

    def recent_frames(self, count: int) -> list[Frame]:
        """The last ``count`` frames that were processed, in order, as many as are remembered; they do not change."""
        return self._core.counters.recent.newest(count)

    def health(self) -> CameraHealth:
        """Ready if the newest result is fresh, or if none is expected (ended, stopped).

        Fresh: not older than ``stale_after_s``, nor than three periods of a source that is meant to be slower.
        """
        core, work = self._core, self._core.work
        fps = work.source.fps if work is not None else None
        limit_s = max(self.config.stale_after_s, 3 / fps if fps else 0.0)
        state, cause, age_ns = core.state, core.cause, core.age_ns()
        if state is CameraState.ENDED or core.off:
            return CameraHealth(True)
        if state is not CameraState.RUNNING:
            return CameraHealth(False, (f"{state.value}: {cause}" if cause else state.value,))
        if age_ns is None:
            return CameraHealth(False, ("no frame was processed yet",))
        if age_ns > limit_s * 1e9:
            return CameraHealth(False, (f"the newest frame is {age_ns / 1e9:.1f} s old, more than {limit_s:g} s",))
        return CameraHealth(True)
