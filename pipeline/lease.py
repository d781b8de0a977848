"""Leases: the right to write, process or read one slot. Each is consumed exactly once.

A lease belongs to one thread at a time. Views taken from it are valid until it is consumed. One that is forgotten gives
its slot back when it is collected, with a ResourceWarning.
"""

from __future__ import annotations

import warnings
from types import TracebackType
from typing import TYPE_CHECKING, ClassVar

from kernels.device import Completion
from kernels.errors import PinholeError
from kernels.image import DeviceView, ImageView
from kernels.plan import Plan
from pipeline.frame import Frame
from pipeline.slot import Slot

if TYPE_CHECKING:
    from pipeline.ring import Ring


class LeaseConsumedError(PinholeError):
    """A lease was used after it was given up: ``lease`` names its kind, ``generation`` its ring."""

    def __init__(self, lease: str, generation: int) -> None:
        self.lease = lease
        self.generation = generation
        super().__init__(f"a {lease} lease of ring {generation} was used after it was given up; take a new one")


class Lease:
    """What the three kinds share: a slot, until it is consumed."""

    kind: ClassVar[str]

    def __init__(self, ring: Ring, slot: Slot) -> None:
        self._ring = ring
        self._slot: Slot | None = slot

    @property
    def generation(self) -> int:
        """The ring it was taken from; every ring has its own number."""
        return self._ring.generation

    @property
    def consumed(self) -> bool:
        """True once it was given up."""
        return self._slot is None

    def _held(self) -> Slot:
        if (slot := self._slot) is None:
            raise LeaseConsumedError(self.kind, self.generation)
        return slot

    def consume(self) -> Slot:
        """The slot, for the last time; the ring calls this under its lock."""
        slot = self._held()
        self._slot = None
        return slot

    def __del__(self) -> None:
        slot = getattr(self, "_slot", None)
        if slot is not None:
            self._slot = None
            self._ring.recover(self.kind, slot)
            warnings.warn(f"a {self.kind} lease of ring {self.generation} was forgotten", ResourceWarning, stacklevel=2)


class WriteLease(Lease):
    """A slot to fill with one frame. Several may be out at once, as in a driver's queue."""

    kind = "write"

    @property
    def view(self) -> ImageView:
        """The source planes, to write; contents stale. The slot's strides are not the packed ones."""
        return self._held().source

    def publish(self, frame: Frame) -> None:
        """Hand the filled slot to the stage. In a retired or closed ring it is a counted drop instead."""
        self._ring.publish(self, frame)

    def give_back(self, reason: str | None = None) -> None:
        """Return the slot unused; ``reason`` counts a dropped frame."""
        self._ring.give_back(self, reason)


class ProcessLease(Lease):
    """A published frame, to process. Its holder alone touches the slot."""

    kind = "process"

    @property
    def frame(self) -> Frame:
        frame = self._held().frame
        assert frame is not None
        return frame

    @property
    def source(self) -> ImageView:
        """The source planes, as the camera wrote them: to read."""
        return self._held().source

    def result(self, plan: Plan) -> ImageView:
        """The result picture to write, as the plan has it; allocates only where it outgrows what the slot has.

        Raises:
            OutOfMemoryError: abandon the lease then.
        """
        slot = self._held()
        view = slot.fits(plan.result)
        if view is None:
            view = self._ring.shape_result(slot, plan)
        slot.on_host, slot.on_device = True, False
        return view

    def device_result(self, plan: Plan) -> DeviceView | None:
        """The picture to write in its place, in device memory; None where the ring's device does not hold results.

        Raises:
            OutOfMemoryError: abandon the lease then.
        """
        self.result(plan)
        slot = self._held()
        if slot.result_on_device is not None:
            slot.on_host, slot.on_device = False, True
        return slot.result_on_device

    def finish(self, completion: Completion) -> None:
        """Hand the result to the readers, as the newest; never waits.

        Where the completion is not done yet, readers do not see the frame until it is.
        """
        self._ring.finish(self, completion)

    def abandon(self, reason: str, completion: Completion | None = None) -> None:
        """Drop the frame, counted under ``reason``; the slot is reused once ``completion`` is done."""
        self._ring.abandon(self, reason, completion)


class ReadLease(Lease):
    """One finished frame, shared with other readers; its pixels do not change until it is released."""

    kind = "read"

    @property
    def frame(self) -> Frame:
        frame = self._held().frame
        assert frame is not None
        return frame

    @property
    def source(self) -> ImageView:
        """The source planes, read-only."""
        return self._held().source_read_only

    @property
    def result(self) -> ImageView:
        """The result, read-only. Where it is only on the device, the first who asks has it copied, and waits for that.

        Raises:
            DeviceFailedError: of that copy.
        """
        slot = self._held()
        if not slot.on_host:
            self._ring.fetch(slot)
        view = slot.result_read_only
        assert view is not None
        return view

    @property
    def device_result(self) -> DeviceView | None:
        """The result in device memory, or, where it was written to host memory, as the device sees that.

        None where no device sees it. Valid until the lease is consumed: whoever lets a device read it waits for that,
        or gives :meth:`release` its completion.
        """
        slot = self._held()
        if slot.on_device:
            return slot.result_on_device
        view = slot.result_read_only
        return None if view is None or view.dev_ptr is None else DeviceView(view.spec, view.dev_ptr)

    def release(self, pending: Completion | None = None) -> None:
        """Give up the frame. Where a device still reads it, ``pending`` holds the slot until that is done."""
        self._ring.release(self, pending)

    def __enter__(self) -> ReadLease:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if not self.consumed:
            self.release()
