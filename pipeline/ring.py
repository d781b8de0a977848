"""A fixed set of slots of one camera, allocated once, and the leases that say who may touch each (``lease.py``)."""

from __future__ import annotations

import contextlib
import itertools
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from enum import Enum
from typing import ClassVar

from kernels.chain import Chain
from kernels.device import Completion, Device
from kernels.errors import DeviceFailedError, InputError, OutOfMemoryError, PinholeError
from kernels.image import ImageSpec, ImageView
from kernels.memory import ResultMemory
from kernels.plan import Plan, make_plan, result_nbytes, slot_source_spec
from pipeline.bell import Bell
from pipeline.config import MAX_SLOTS, MIN_SLOTS
from pipeline.frame import Frame
from pipeline.lease import ProcessLease, ReadLease, WriteLease
from pipeline.slot import Slot, SlotState
from pipeline.sources.base import SlotLayout
from pipeline.stats import RingStatistics, Tally
from pipeline.table import SlotTable

log = logging.getLogger("pinhole.ring")

# How often a waiter asks a device that has no way to wake it. Completions are normally done before anyone waits.
POLL_S = 0.0005

WASTE_BYTES = 4 << 20  # beyond twice its need: less is not worth an allocation, which takes milliseconds


class Keep(Enum):
    """What happens to frames that nobody processed in time."""

    NEWEST = "newest"  # live: they are dropped, the newest is processed
    ALL = "all"  # files: the writer waits


class RingClosed(PinholeError):  # noqa: N818 - an end is not an error
    """The ring takes (or gives) no more frames."""


class Ring:
    """Slots of one size and format. All methods may be called from any thread.

    One lock guards where the slots are; it is never held while a device, a source or the system's allocator works.
    ``on_done`` is called, without the lock, by the thread that made a new result visible; ``on_fetch`` with the bytes
    of a result that a reader had copied from the device.
    """

    _generations: ClassVar = itertools.count(1)

    def __init__(
        self,
        device: Device,
        source: ImageSpec,
        *,
        slots: int = 6,
        keep: Keep = Keep.NEWEST,
        on_done: Callable[[], None] | None = None,
        on_fetch: Callable[[int], None] | None = None,
        tally: Tally | None = None,
        plan: Plan | None = None,
        layout: SlotLayout | None = None,
    ) -> None:
        """Allocate all slots for pictures of ``source`` and the results of ``plan`` (else: of a chain that keeps the
        size). Drops are counted in ``tally``, if given. ``layout``: as a driver needs them, and those that it has at
        once beside ``slots``.

        Raises:
            InputError: the number of slots.
            OutOfMemoryError: nothing stays allocated.
        """
        if not MIN_SLOTS <= slots <= MAX_SLOTS:
            raise InputError("slots", f"{slots} is not a ring size", f"{MIN_SLOTS} to {MAX_SLOTS}")
        self.generation = next(Ring._generations)
        self.source = slot_source_spec(source) if layout is None else layout.spec
        self.keep = keep
        self._on_done = on_done
        self._on_fetch = on_fetch
        self._tally = tally if tally is not None else Tally()
        self._device = device
        nbytes = result_nbytes(make_plan(Chain(), self.source) if plan is None else plan)
        slots += 0 if layout is None else layout.queued
        written_nbytes = None if layout is None else layout.nbytes
        self._table = SlotTable(_allocate(device, self.source, nbytes, slots, written_nbytes), self._tally)
        self._lock = threading.Lock()
        self._published = threading.Condition(self._lock)
        self._done = threading.Condition(self._lock)
        self._freed = threading.Condition(self._lock)
        self._forgotten: deque[tuple[str, Slot]] = deque()
        self._stage_waits = False
        self._bell: Bell | None = None  # made by the first spinning wait

    def acquire_write(self, timeout_s: float = 0.0) -> WriteLease | None:
        """A slot to write, or None.

        A free slot; else the oldest unread frame's, which is dropped as ``overrun``; else None and a ``no_slot`` drop.
        The last unread frame is left to a stage that waits for one: where readers hold all other slots, it would never
        get any. With ``Keep.ALL`` it waits up to ``timeout_s`` for a free slot and drops nothing.

        Raises:
            RingClosed: also while waiting.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            self._poll()
            with self._lock:
                self._recover()
                if self._table.retired:
                    raise RingClosed(f"ring {self.generation} takes no more frames")
                slot = self._table.write()
                if slot is None and self.keep is Keep.NEWEST:
                    slot = self._table.take_back(leave=int(self._stage_waits))
                    self._tally.add("no_slot" if slot is None else "overrun")
                    if slot is None:
                        return None
                if slot is not None:
                    return WriteLease(self, slot)
                if not self._wait(self._freed, deadline):
                    return None

    def publish(self, lease: WriteLease, frame: Frame) -> None:
        """See :meth:`WriteLease.publish`."""
        with self._lock:
            slot = self._table.end(lease)
            slot.frame = frame
            frame.times.published_ns = time.monotonic_ns()
            if self._table.retired:
                self._tally.add("closed")
                self._table.settle(slot)
                self._wake()
            else:
                self._table.publish(slot)
                self._published.notify()
        if self._bell is not None:
            self._bell.hand_over()
        self._release_memory()

    def give_back(self, lease: WriteLease, reason: str | None) -> None:
        """See :meth:`WriteLease.give_back`."""
        with self._lock:
            slot = self._table.end(lease)
            if reason is not None:
                self._tally.add(reason)
            self._table.settle(slot)
            self._freed.notify_all()
        self._release_memory()

    def acquire_ready(self, timeout_s: float, spin: bool = False) -> ProcessLease | None:
        """A published frame to process; None when there is none within ``timeout_s``.

        The newest, and older ones are dropped as ``stale``; with ``Keep.ALL`` the oldest, none dropped. ``spin`` burns
        the core instead of sleeping, without the GIL; somebody must then :meth:`tick` for ``timeout_s`` to be kept.

        Raises:
            RingClosed: closed, or retired and nothing is left; also while waiting.
        """
        deadline = time.monotonic() + timeout_s
        self._stage_waits = True
        if spin:
            bell = self._bell = self._bell or Bell()
            while not (self._table.ready or self._table.retired) and time.monotonic() < deadline:
                bell.wait()
        self._poll()
        with self._lock:
            try:
                self._recover()
                while not self._table.ready:
                    if self._table.retired:
                        raise RingClosed(f"ring {self.generation} gives no more frames")
                    if not self._wait(self._published, deadline):
                        return None
                slot = self._table.process(newest=self.keep is Keep.NEWEST)
                assert slot.frame is not None
                slot.frame.times.picked_ns = time.monotonic_ns()
                lease = ProcessLease(self, slot)
            finally:
                self._stage_waits = False
        self._release_memory()
        return lease

    def tick(self) -> None:
        """Make a spinning :meth:`acquire_ready` look at its time-out. Any thread, never waits."""
        if self._bell is not None:
            self._bell.ring()

    def finish(self, lease: ProcessLease, completion: Completion) -> None:
        """See :meth:`ProcessLease.finish`."""
        with self._lock:
            slot = self._table.end(lease)
            slot.pending.append(completion)
            self._table.finish(slot)
        self._poll()

    def abandon(self, lease: ProcessLease, reason: str, completion: Completion | None) -> None:
        """See :meth:`ProcessLease.abandon`."""
        with self._lock:
            slot = self._table.end(lease)
            self._tally.add(reason)
            if completion is not None:
                slot.pending.append(completion)
            self._table.settle(slot)
            self._wake()
        self._poll()
        self._release_memory()

    def reserve(self, plan: Plan) -> None:
        """Give every slot room for a plan's result before the plan is used, so that a lack of memory shows now.

        Much too large buffers get a smaller one beside them, and go when the slot is used next.

        Raises:
            OutOfMemoryError: nothing has changed.
        """
        nbytes = result_nbytes(plan)
        with self._lock:
            slots = [] if self._table.retired else self._table.slots
            small = [slot for slot in slots if all(m.nbytes < nbytes for m in slot.result_owners())]
            wide = [slot for slot in slots if slot not in small and not _well_sized(slot, nbytes)]
        new: list[ResultMemory] = []
        over: list[ResultMemory] = []
        try:
            for _ in small:
                new.append(self._device.allocate_result(nbytes))
            with contextlib.suppress(OutOfMemoryError):  # then they stay as they are
                for _ in wide:
                    new.append(self._device.allocate_result(nbytes))
            with self._lock:
                if not self._table.retired:
                    for slot in (*small, *wide)[: len(new)]:
                        if slot.spare is not None:
                            over.append(slot.spare)
                        slot.spare = new.pop()
                    for slot in self._table.slots:
                        owners = slot.result_owners()  # fewer than two while its result is being made anew
                        if len(owners) == 2 and nbytes <= owners[0].nbytes <= owners[1].nbytes:
                            over.append(owners[1])
                            slot.spare = None
        finally:
            for memory in (*new, *over):
                memory.close()

    def shape_result(self, slot: Slot, plan: Plan) -> ImageView:
        """See :meth:`ProcessLease.result`."""
        nbytes = result_nbytes(plan)
        spare: ResultMemory | None = None
        with self._lock:
            if slot.spare is not None and slot.spare.nbytes >= nbytes:
                spare, slot.spare = slot.spare, None
        return slot.shape_result(plan.result, nbytes, spare)

    def fetch(self, slot: Slot) -> None:
        """See :meth:`ReadLease.result`."""
        with slot.fetching:
            result, there = slot.result, slot.result_on_device
            if slot.on_host or result is None or there is None:
                return
            self._device.fetch(there, result)
            slot.on_host = True
        if self._on_fetch is not None:
            self._on_fetch(there.spec.nbytes)

    def latest(self) -> ReadLease | None:
        """The newest result; None before the first and once the ring is closed. Never waits."""
        self._poll()
        with self._lock:
            return self._read()

    def wait_newer(self, sequence: int, timeout_s: float) -> ReadLease | None:
        """The newest result once its number is above ``sequence``; None on time-out.

        Raises:
            RingClosed: there will be none in this ring; also while waiting.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            self._poll()
            with self._lock:
                self._recover()
                if self._table.newest_sequence() > sequence:
                    return self._read()
                if self._table.closed or (self._table.retired and not self._table.unfinished()):
                    raise RingClosed(f"ring {self.generation} gives no more results")
                if not self._wait(self._done, deadline):
                    return None

    def release(self, lease: ReadLease, pending: Completion | None) -> None:
        """See :meth:`ReadLease.release`."""
        with self._lock:
            slot = self._table.end(lease)
            if pending is not None:
                slot.pending.append(pending)
            self._table.let_go(slot)
            self._freed.notify_all()
        self._release_memory()

    def retire(self, reason: str | None = None) -> None:
        """Take no more frames; what was published is still processed, the newest result still given, memory freed as
        it falls free. With a ``reason`` the unread frames are dropped and counted under it. Idempotent, never waits.
        """
        with self._lock:
            if reason is not None:
                self._table.drop_ready(reason)
            self._table.retire()
            self._wake()
        self._release_memory()

    def drained(self, timeout_s: float) -> bool:
        """Wait until nothing published is left to process; True if so."""
        deadline = time.monotonic() + timeout_s
        while True:
            self._poll()
            with self._lock:
                self._recover()
                if not self._table.unfinished():
                    return True
                if not self._wait(self._freed, deadline):
                    return False

    def close(self, timeout_s: float) -> bool:
        """Give no more leases, wake everyone who waits, and free each slot once nothing holds it any more.

        Waits up to ``timeout_s`` for leases and device work that hold slots; True if all memory is freed. Otherwise a
        slot is freed when its last lease is given up; call again for those that only device work held. Idempotent.
        """
        deadline = time.monotonic() + timeout_s
        self.retire("closed")
        with self._lock:
            self._table.close()
            self._wake()
        while True:
            self._poll()
            with self._lock:
                self._recover()
            self._release_memory()
            with self._lock:
                if self._table.released():
                    return True
                if not self._wait(self._freed, deadline):
                    return False

    @property
    def retired(self) -> bool:
        """True once it takes no more frames."""
        return self._table.retired

    @property
    def shows(self) -> bool:
        """True once there is a result to read."""
        return self._table.newest is not None

    @property
    def drops(self) -> dict[str, int]:
        """Dropped frames by reason; a copy."""
        return self._tally.counts()

    def statistics(self) -> RingStatistics:
        """Slots by state, at one moment."""
        with self._lock:
            self._recover()
            return self._table.statistics(self.generation)

    def recover(self, kind: str, slot: Slot) -> None:
        """Take back the slot of a forgotten lease. Called by the collector, in any thread, maybe under the lock."""
        self._forgotten.append((kind, slot))
        if self._lock.acquire(blocking=False):
            try:
                self._recover()
            finally:
                self._lock.release()
            self._release_memory()

    def _recover(self) -> None:
        """Under the lock."""
        while self._forgotten:
            self._table.recover(*self._forgotten.popleft())
            self._wake()

    def _read(self) -> ReadLease | None:
        """Under the lock."""
        slot = self._table.read()
        return None if slot is None else ReadLease(self, slot)

    def _wake(self) -> None:
        """Under the lock."""
        for condition in (self._published, self._done, self._freed):
            condition.notify_all()
        self.tick()

    def _wait(self, condition: threading.Condition, deadline: float) -> bool:
        """Under the lock, wait for a change; False once the deadline has passed.

        Short while the device has slots, as it has no way to wake anyone.
        """
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            return False
        condition.wait(min(left_s, POLL_S) if self._table.busy else left_s)
        return True

    def _poll(self) -> None:
        """Ask the device about the slots it has; never blocks. Completions are foreign code: no lock is held."""
        if not self._table.busy:
            return
        with self._lock:
            batch, self._table.busy = self._table.busy, []
        answers = [(slot, *_ask(slot)) for slot in batch]
        shown = False
        with self._lock:
            for slot, over, failed in answers:
                if not over:
                    self._table.busy.append(slot)
                    # Who began to wait meanwhile saw no busy slot, and would sleep its whole time-out.
                    self._done.notify_all()
                    self._freed.notify_all()
                    continue
                slot.pending.clear()
                if slot.state is SlotState.FINISHING and not failed:
                    shown = self._table.show(slot) or shown
                else:
                    if failed and slot.state is SlotState.FINISHING:
                        self._tally.add("device")
                    self._table.settle(slot)
                self._done.notify_all()
                self._freed.notify_all()
        self._release_memory()
        if shown and self._on_done is not None:
            self._on_done()

    def _release_memory(self) -> None:
        """Free the slots whose turn has come; the system may take its time, so the lock is not held."""
        while self._table.to_release:
            with self._lock:
                slot = self._table.to_release.pop() if self._table.to_release else None
            if slot is None:
                return
            try:
                slot.free()
            finally:
                with self._lock:
                    slot.state = SlotState.RELEASED
                    self._freed.notify_all()


def _allocate(device: Device, spec: ImageSpec, nbytes: int, count: int, written_nbytes: int | None) -> list[Slot]:
    """Slots with room for results of ``nbytes``, and for what a driver may write; all or nothing."""
    slots: list[Slot] = []
    try:
        for _ in range(count):
            slots.append(Slot(device, spec, nbytes, written_nbytes))
    except BaseException:
        for slot in slots:
            slot.free()
        raise
    return slots


def _well_sized(slot: Slot, nbytes: int) -> bool:
    """True if one of a slot's buffers is large enough for a result, and not so large that it is a waste."""
    return any(nbytes <= memory.nbytes <= 2 * nbytes + WASTE_BYTES for memory in slot.result_owners())


def _ask(slot: Slot) -> tuple[bool, bool]:
    """Whether the device is over with a slot, and whether its work failed."""
    try:
        if not all(completion.done() for completion in slot.pending):
            return False, False
        frame = slot.frame
        if slot.state is SlotState.FINISHING and frame is not None:
            frame.times.done_ns = frame.times.done_ns or time.monotonic_ns()
            frame.times.gpu_ns = slot.pending[-1].gpu_ns() or 0
    except DeviceFailedError:
        return True, True
    except Exception:  # foreign code's border: whatever a completion raises, the slot must not be lost
        log.exception("a completion raised; its frame counts as failed")
        return True, True
    return True, False
