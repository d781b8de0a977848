"""Frames from a device whose format is settled: which slots or buffers the driver has, and where each frame goes.

Every slot that is held is with the driver, or on its way for the length of one call; it is given back only once the
driver writes it no more.
"""

from __future__ import annotations

import errno
import select
import time
from collections.abc import Callable

from kernels.errors import PinholeError
from kernels.image import Pixels
from pipeline.sources.base import FrameCorrupt, SlotProvider, SourceError, WriteSlot
from pipeline.v4l2 import abi
from pipeline.v4l2.device import CameraDevice, RequestError
from pipeline.v4l2.mjpeg import decode_into
from pipeline.v4l2.pixels import Layout, Negotiated
from pipeline.v4l2.queue import BufferQueue, Dequeued
from pipeline.v4l2.stamps import Stamps
from pipeline.v4l2.unpack import Unpacker

# What a driver answers to memory that it cannot write to.
_REFUSES_MEMORY = frozenset({errno.EINVAL, errno.EFAULT, errno.ENOMEM, errno.EOPNOTSUPP})


class MemoryRefused(PinholeError):  # noqa: N818
    """The driver does not take the slots' memory; the text says how it said so. Nothing is queued."""


class Stream:
    """One thread's. ``in_slots``: the driver writes slots (USERPTR), else its own buffers: copied, or decoded."""

    def __init__(
        self, device: CameraDevice, buf_type: int, agreed: Negotiated, layout: Layout | None, queue: int, in_slots: bool
    ) -> None:
        """Make the buffers; ``queue`` of them are with the driver at once. ``layout`` None: JPEG.

        Raises:
            MemoryRefused, RequestError
        """
        self.in_slots = in_slots
        self.stamps = Stamps()
        self._device = device
        self._wanted = queue
        self._needed = () if layout is None else layout.needed_bytes  # bytes of each memory that a whole picture has
        self._provider: SlotProvider | None = None
        self._held: dict[int, WriteSlot] = {}  # by identity
        self._unpack: Unpacker | None = None
        offsets = (0,) if layout is None else layout.offsets
        memory, count = (abi.USERPTR, abi.MAX_BUFFERS) if in_slots else (abi.MMAP, queue + 1)
        try:
            self._queue = BufferQueue(device, buf_type, memory, agreed.sizes, offsets, count)
        except RequestError as error:
            if in_slots and error.number in _REFUSES_MEMORY:
                raise MemoryRefused(f"the driver takes no memory but its own ({error})") from None
            raise
        if layout is not None and not in_slots:
            self._unpack = Unpacker(layout, self._queue.arrays)

    @property
    def held(self) -> list[WriteSlot]:
        """The slots that it has now."""
        return list(self._held.values())

    def begin(self, slots: SlotProvider) -> bool:
        """Start, if that is still to be done; False if there is no slot to start with.

        Raises:
            MemoryRefused, RequestError
        """
        queue, self._provider = self._queue, slots
        if queue.streaming:
            return True
        if not self.in_slots:
            for number in range(queue.count):
                queue.queue_number(number)
            queue.start()
            return True
        while queue.queued < self._wanted and (slot := self._acquire(slots)) is not None:
            try:
                queue.queue_slot(slot.view.address, slot)
            except RequestError as error:
                if error.number not in _REFUSES_MEMORY or queue.queued:
                    raise
                raise MemoryRefused(f"the driver does not take the slots' memory ({error})") from None
        if not queue.queued:
            return False
        queue.start()
        return True

    def wait(self, limit_s: float, interrupted: Callable[[], bool]) -> Dequeued | None:
        """The next buffer; None: what the camera sees has another format now.

        Raises:
            SourceError: none came, or it was interrupted.
            RequestError
        """
        device = self._device
        deadline = time.monotonic() + limit_s
        while True:
            events = device.wait(deadline - time.monotonic())
            if interrupted():
                raise SourceError("interrupted")
            if events & select.POLLPRI and abi.EVENT_SOURCE_CHANGE in device.take_events():
                return None
            if events:
                try:
                    taken = self._queue.take()
                except RequestError as error:
                    if error.number == errno.EPIPE:  # the last of a format
                        return None
                    raise
                if taken is not None:
                    return taken
            if events & (select.POLLERR | select.POLLHUP | select.POLLNVAL):
                raise SourceError(f"{device.path} has gone, or its driver gave up")
            if time.monotonic() >= deadline:
                raise SourceError(f"{device.path} delivered no frame for {limit_s:g} s")

    def hand_on(self, slots: SlotProvider, taken: Dequeued) -> None:
        """Publish a frame, and give the driver a slot or its buffer again. With no slot free the frame is dropped.

        Raises:
            FrameCorrupt: the frame is not whole; the driver has its buffer again.
            RequestError
        """
        if self.in_slots:
            self._pass_on(slots, taken)
        else:
            self._copy_out(slots, taken)

    def _pass_on(self, slots: SlotProvider, taken: Dequeued) -> None:
        queue, slot = self._queue, taken.owner
        if (fault := self._fault(slots, taken)) is not None:
            queue.queue_slot(slot.view.address, slot)
            raise fault
        other = self._acquire(slots)
        if other is None:
            queue.queue_slot(slot.view.address, slot)
            return
        del self._held[id(slot)]
        slots.publish(slot, self.stamps.capture(taken, 0))
        queue.queue_slot(other.view.address, other)
        if queue.queued < self._wanted and (more := self._acquire(slots)) is not None:  # it began with fewer
            queue.queue_slot(more.view.address, more)

    def _copy_out(self, slots: SlotProvider, taken: Dequeued) -> None:
        slot: WriteSlot | None = None
        try:
            if (fault := self._fault(slots, taken)) is not None:
                raise fault
            capture = self.stamps.capture(taken, 0)
            slot = self._acquire(slots)
            if slot is None:
                return
            if self._unpack is not None:
                copied = self._unpack.into(slot.view, taken.index)
            else:
                data: Pixels = self._queue.arrays[taken.index][0]
                decode_into(data[: taken.used[0]], slot.view)
                copied = slot.view.spec.pixel_bytes
            del self._held[id(slot)]
            slots.publish(slot, self.stamps.with_copy(capture, copied))
        except FrameCorrupt as error:
            if slot is not None:
                del self._held[id(slot)]
                slots.give_back(slot, error.reason)
            raise
        finally:
            self._queue.queue_number(taken.index)

    def _fault(self, slots: SlotProvider, taken: Dequeued) -> FrameCorrupt | None:
        """What is wrong with a frame; counts those that the driver lost before it."""
        if gap := self.stamps.gap(taken.sequence):
            slots.lost("driver", gap)
        if taken.damaged:
            return FrameCorrupt("corrupt", "the driver marks the frame as damaged")
        for used, needed in zip(taken.used, self._needed, strict=False):
            if used < needed:
                return FrameCorrupt("short", f"a frame of {used} bytes where {needed} belong to the picture")
        return None

    def _acquire(self, slots: SlotProvider) -> WriteSlot | None:
        slot = slots.acquire()
        if slot is not None:
            self._held[id(slot)] = slot
        return slot

    def close(self) -> None:
        """Stop the driver, then give back the slots that it had; idempotent. Closes a device that does not answer."""
        self._unpack = None
        self._queue.close()
        held, self._held = self._held, {}
        for slot in held.values():
            assert self._provider is not None
            self._provider.give_back(slot)
