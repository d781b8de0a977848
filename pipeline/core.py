"""What a camera's two threads and its callers share: state, current work, counters, subscribers."""

from __future__ import annotations

import logging
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import replace

from kernels.chain import Chain
from kernels.device import Device, Executor
from pipeline.config import CameraConfig
from pipeline.counters import Counters
from pipeline.demand import Demand
from pipeline.ring import Keep, Ring
from pipeline.sources import redact, redact_text
from pipeline.sources.base import Source, SourceFormat
from pipeline.state import CameraState, check_move
from pipeline.work import Work, compile_chain

log = logging.getLogger("pinhole.camera")

SourceFactory = Callable[[str], Source]

_LEVELS = {CameraState.RECONNECTING: logging.WARNING, CameraState.FAILED: logging.ERROR}
_OVER = frozenset({CameraState.STOPPED, CameraState.STOPPING, CameraState.FAILED})


class Core:
    """One camera's shared half. Any thread, unless a method says whose it is.

    ``changed`` guards and announces state and work; it is only held for assignments. ``chain_lock`` is held while a
    chain is compiled, so that changes of the chain and of the source's format happen one after the other.
    """

    def __init__(self, config: CameraConfig, device: Device, source_factory: SourceFactory) -> None:
        self.config = config
        self.device = device
        self.counters = Counters()
        self.demand = Demand()
        self.uri = redact(config.uri)
        self.changed = threading.Condition()
        self.chain_lock = threading.Lock()
        self.chain = config.chain
        self.state = CameraState.STOPPED
        self.cause: str | None = None
        self.halted = threading.Event()  # this run is over: everyone ends
        self.halted.set()
        self.work: Work | None = None
        self.last_source: Source | None = None  # of this run, closed: what a fresh one follows
        self.previous: Ring | None = None  # kept for its last picture until the new ring has one
        self._source_factory = source_factory
        self._superseded: list[Executor] = []
        self._open = False  # while there is a stage that will close executors
        self._subscribers: tuple[Callable[[], None], ...] = ()

    # ---- state

    def move(self, new: CameraState, cause: str | None = None) -> None:
        """Change the state; logged, and subscribers are told.

        Raises:
            StateError: it is not a move.
        """
        with self.changed:
            old = self.state
            check_move(self.config.name, old, new)
            self.state, self.cause = new, cause
            self.changed.notify_all()
        self._announce(old, new, cause)

    def try_move(self, new: CameraState, cause: str | None = None) -> bool:
        """Like :meth:`move`, for the camera's own threads: nothing once it failed or is being stopped.

        In the same state only the cause changes, and nothing is logged. True if the state changed.
        """
        with self.changed:
            old = self.state
            if old in _OVER or (old is CameraState.ENDED and new is not CameraState.FAILED):
                return False
            if old is new:
                self.cause = cause
                return False
            check_move(self.config.name, old, new)
            self.state, self.cause = new, cause
            self.changed.notify_all()
        self._announce(old, new, cause)
        return True

    def _announce(self, old: CameraState, new: CameraState, cause: str | None) -> None:
        level = _LEVELS.get(new, logging.INFO)
        reason = f": {cause}" if cause else ""
        log.log(level, "camera %s: %s → %s%s", self.config.name, old.value, new.value, reason)
        self.notify()

    def fail(self, cause: str) -> None:
        """Nothing will come any more: state FAILED, both threads end, the last picture stays."""
        self.try_move(CameraState.FAILED, cause)
        self.halt()

    def fail_unexpectedly(self, thread: str, error: BaseException) -> None:
        """Like :meth:`fail`, for what nobody foresaw: with the traceback in the log, without credentials."""
        text = redact_text("".join(traceback.format_exception(error)), self.config.uri)
        log.error("camera %s: unexpected error in its %s thread\n%s", self.config.name, thread, text)
        self.fail(f"unexpected {self.explain(error)}")

    def halt(self) -> None:
        """End this run: wake both threads. The ring stays readable."""
        self.halted.set()
        with self.changed:
            work = self.work
            self.changed.notify_all()
        if work is not None:
            work.ring.retire()

    def explain(self, error: BaseException) -> str:
        """An error in words, for state and logs, without credentials."""
        text = str(error).strip() or type(error).__name__
        if not str(type(error).__module__).startswith(("pipeline.", "kernels.")):
            text = f"{type(error).__name__}: {text}"
        return redact_text(text, self.config.uri)

    def make_source(self) -> Source:
        """A fresh source. Raises what the factory raises."""
        return self._source_factory(self.config.uri)

    # ---- subscribers

    def subscribe(self, callback: Callable[[], None]) -> Callable[[], None]:
        """See :meth:`Camera.subscribe`."""

        def unsubscribe() -> None:
            with self.changed:
                self._subscribers = tuple(known for known in self._subscribers if known is not entry)

        def entry() -> None:
            try:
                callback()
            except Exception:  # a foreign callback's border: its fault must not end a camera's thread
                unsubscribe()
                log.exception("camera %s: a subscriber raised and is let go", self.config.name)

        with self.changed:
            self._subscribers = (*self._subscribers, entry)
        return unsubscribe

    def notify(self) -> None:
        """Tell every subscriber that there is something new."""
        for callback in self._subscribers:
            callback()

    # ---- work

    def open(self) -> None:
        """A new run begins."""
        with self.changed:
            self._open = True
            self.last_source = None
            self.halted = threading.Event()

    def prepare(self, source: SourceFormat) -> Work:
        """The work for a source's format: what there is if it fits, else a new ring and executor. Capture thread.

        Readers keep their leases of the old ring; its unread frames are processed (files) or dropped as ``format``.

        Raises:
            OutOfMemoryError, CompileError, DeviceFailedError: nothing new is held.
        """
        with self.changed:
            old = self.work
        if old is not None and not old.takes(source):
            old.ring.retire("format" if old.source.live else None)
            while not (self.halted.is_set() or old.ring.drained(0.1)):
                pass
        with self.chain_lock:
            with self.changed:
                if old is not None and old.takes(source):
                    assert self.work is not None
                    self.work = replace(self.work, source=source)
                    return self.work
                chain = self.chain
            leaving = 0 if old is None else old.ring.statistics().nbytes
            executor = compile_chain(self.device, self.config, chain, source, leaving)
            try:
                ring = Ring(
                    self.device,
                    source.image,
                    slots=self.config.slots,
                    keep=Keep.NEWEST if source.live else Keep.ALL,
                    on_done=self.notify,
                    on_fetch=self.counters.count_fetched,
                    tally=self.counters.dropped,
                    plan=executor.plan,
                    layout=source.layout,
                )
            except BaseException:
                executor.close()
                raise
            work = Work(source, ring, executor, Chain(), ()).with_chain(chain, executor)
            self._install(work)
        return work

    def _install(self, work: Work) -> None:
        with self.changed:
            old = self.work
            if self._open and not self.halted.is_set():
                self.work = work
                over = None
                if old is not None:
                    self._superseded.append(old.executor)
                    # The last picture may be one ring further back, where sizes change faster than frames come.
                    over = self.previous if old.ring.shows or self.previous is None else old.ring
                    self.previous = self.previous if over is old.ring else old.ring
                self.changed.notify_all()
                refused = False
            else:
                over, refused = work.ring, True
        if refused:
            work.executor.close()
        if over is not None:
            over.close(0)

    def set_chain(self, make: Callable[[Chain], Chain]) -> Chain:
        """Replace the chain by what ``make`` makes of it. Compiled here, while the old one runs, if its ops differ.

        Raises:
            what ``make`` raises; OutOfMemoryError, CompileError, DeviceFailedError: nothing has changed.
        """
        with self.chain_lock:
            chain = make(self.chain)
            with self.changed:
                work = self.work if self._open else None
            if work is None:
                self.chain = chain
                return chain
            reuse = work.executor.plan.accepts(chain.steps)
            executor = work.executor if reuse else self._compile_for(work, chain)
            with self.changed:
                self.chain = chain
                swapped = self._open and self.work is not None
                if swapped:
                    assert self.work is not None
                    self.work = self.work.with_chain(chain, executor)
                    if not reuse:
                        self._superseded.append(work.executor)
            if not swapped and not reuse:
                executor.close()
        return chain

    def _compile_for(self, work: Work, chain: Chain) -> Executor:
        """An executor for another chain on the same ring, whose slots then have room for its results."""
        held = work.ring.statistics().nbytes
        executor = compile_chain(self.device, self.config, chain, work.source, held)
        try:
            work.ring.reserve(executor.plan)
        except BaseException:
            executor.close()
            raise
        return executor

    def take_superseded(self, using: Executor) -> list[Executor]:
        """Executors that nothing will use again, to be closed by the stage thread."""
        with self.changed:
            over = [executor for executor in self._superseded if executor is not using]
            self._superseded = [executor for executor in self._superseded if executor is using]
        return over

    def take_all_executors(self) -> list[Executor]:
        """Every executor there is; no new one will come in this run. The stage thread's last act."""
        with self.changed:
            self._open = False
            over, self._superseded = self._superseded, []
            if self.work is not None:
                over.append(self.work.executor)
        return over

    def wait_work(self, seen: Work | None, timeout_s: float) -> Work | None:
        """The current work once its ring is not that of ``seen``, else None after the time or at the end."""

        def other() -> bool:
            ring = self.work.ring if self.work is not None else None
            return ring is not (seen.ring if seen is not None else None)

        with self.changed:
            self.changed.wait_for(lambda: other() or self.halted.is_set(), timeout_s)
            return self.work if other() else None

    def wait_change(self, seen: Work | None, timeout_s: float) -> None:
        """Wait until the work is another one than ``seen``, or the camera is being stopped."""
        with self.changed:
            self.changed.wait_for(lambda: self.work is not seen or self.off, timeout_s)

    @property
    def off(self) -> bool:
        """True while it is stopped or being stopped."""
        return self.state in (CameraState.STOPPED, CameraState.STOPPING)

    def drop_previous(self, shown: Ring) -> None:
        """``shown`` has a picture: if it is the current ring, the one kept before it is not needed any more."""
        with self.changed:
            if self.work is None or self.work.ring is not shown:
                return
            previous, self.previous = self.previous, None
        if previous is not None:
            previous.close(0)

    def take_rings(self) -> list[Ring]:
        """Forget all work; the caller closes the rings. For the end of a run, once both threads have ended."""
        with self.changed:
            rings = [ring for ring in (self.previous, self.work.ring if self.work is not None else None) if ring]
            self.work = self.previous = None
        return rings

    def age_ns(self) -> int | None:
        """How long ago the newest result's picture was taken; None before the first."""
        newest = self.counters.newest
        return None if newest is None else max(0, time.monotonic_ns() - newest.captured_ns)
