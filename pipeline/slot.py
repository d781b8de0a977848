"""One slot's memory, where it is in its life, and what still holds it. Owned by its ring, touched under its lock."""

from __future__ import annotations

import threading
from enum import Enum

from kernels.device import Completion, Device
from kernels.image import DeviceView, ImageSpec, ImageView
from kernels.memory import HostMemory, ResultMemory
from pipeline.frame import Frame


class SlotState(Enum):
    """Where a slot is. The comment says who may touch its pixels."""

    FREE = "free"  # nobody
    WRITING = "writing"  # the holder of the write lease
    READY = "ready"  # nobody: waits for the stage
    PROCESSING = "processing"  # the holder of the process lease, and the device
    FINISHING = "finishing"  # the device
    DONE = "done"  # readers, read-only
    PENDING = "pending"  # the device
    RELEASED = "released"  # nobody: the memory is gone


class Slot:
    """Source planes in whole-line rows, and a packed result, in two buffers that the device sees in place.

    Where the device holds results there is a third, of its own. ``on_device`` says that the frame's result was written
    there, ``on_host`` that it is in host memory; whoever brings it there holds ``fetching``.
    """

    def __init__(self, device: Device, spec: ImageSpec, result_nbytes: int, written_nbytes: int | None = None) -> None:
        """Allocate both buffers, the source's for a driver to write ``written_nbytes`` itself if those are given.

        Raises OutOfMemoryError and then holds nothing.
        """
        self._device = device
        self.state = SlotState.FREE
        self.holds = 0  # read leases, the ring's own included
        self.pending: list[Completion] = []
        self.frame: Frame | None = None
        self.spare: ResultMemory | None = None  # for the next result that does not fit, allocated ahead
        self._memory: HostMemory = (
            device.allocate_slot(spec.nbytes)
            if written_nbytes is None
            else device.allocate_pages(max(spec.nbytes, written_nbytes))
        )
        try:
            self._result_memory: ResultMemory | None = device.allocate_result(result_nbytes)
        except BaseException:
            self._memory.close()
            raise
        self.source = ImageView(spec, self._memory.array, self._memory.dev_ptr)
        self.source_read_only = _read_only(self.source)
        self.result: ImageView | None = None
        self.result_read_only: ImageView | None = None
        self.result_on_device: DeviceView | None = None
        self.on_host, self.on_device = True, False
        self.fetching = threading.Lock()

    @property
    def sequence(self) -> int:
        """The number of the frame in the slot; -1 without one."""
        return -1 if self.frame is None else self.frame.sequence

    @property
    def nbytes(self) -> int:
        """Bytes of host memory held now."""
        if self.state is SlotState.RELEASED:
            return 0
        owners = (self._memory, self._result_memory, self.spare)
        return sum(memory.nbytes for memory in owners if memory is not None)

    def result_owners(self) -> list[ResultMemory]:
        """What results may lie in: the buffer of now, and the spare one."""
        return [memory for memory in (self._result_memory, self.spare) if memory is not None]

    def fits(self, spec: ImageSpec) -> ImageView | None:
        """The result view, if it is of that specification."""
        result = self.result
        # Mostly the very same specification: comparing all its fields would cost each frame some microseconds.
        return result if result is not None and (result.spec is spec or result.spec == spec) else None

    def shape_result(self, spec: ImageSpec, nbytes: int, spare: ResultMemory | None) -> ImageView:
        """A result view of that specification, in ``spare`` if given, what the slot has, or newly allocated memory.

        Raises:
            OutOfMemoryError: the slot is then without a result buffer.
        """
        old, memory = self._result_memory, spare
        if memory is None and old is not None and old.nbytes >= nbytes:
            memory = old
        self.result = self.result_read_only = self.result_on_device = self._result_memory = None
        if old is not None and old is not memory:
            old.close()
        memory = self._result_memory = self._device.allocate_result(nbytes) if memory is None else memory
        self.result = ImageView(spec, memory.host.array, memory.host.dev_ptr)
        self.result_read_only = _read_only(self.result)
        self.result_on_device = None if memory.device is None else DeviceView(spec, memory.device.ptr)
        return self.result

    def free(self) -> None:
        """Give the memory back; blocks as long as the driver does. The views must not keep it mapped."""
        del self.source, self.source_read_only
        self.result = self.result_read_only = self.result_on_device = None
        for memory in (self._memory, self._result_memory, self.spare):
            if memory is not None:
                memory.close()


def _read_only(view: ImageView) -> ImageView:
    buffer = view.buffer.view()
    buffer.flags.writeable = False
    return ImageView(view.spec, buffer, view.dev_ptr)
