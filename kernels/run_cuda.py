"""Runs a plan on a CUDA device: one launch a frame, whose passes run side by side and hand each other rows.

The slot's planes are read and its result written in place, through the pointers that the GPU has of them, or by copies
in bands (:class:`kernels.crossing.Crossing`); what lies between is device memory. While the first rows are computed and
written the next ones are read, so the link is busy both ways (kernels/cuda/flow.cuh).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from kernels import cuda_events, driver_calls
from kernels.codegen import KERNEL_NAME, generate
from kernels.compiler import compile_cubin
from kernels.crossing import IN_PLACE, Crossing
from kernels.cuda_block import PlanBlock
from kernels.cuda_copies import Arrivals, Departures
from kernels.cuda_wait import CudaCompletion, FrameClock
from kernels.device import Completion, WaitMode, cuda_errors
from kernels.driver_calls import ATTACH_HOST, ATTACH_SINGLE, attach
from kernels.dump import dump
from kernels.errors import DeviceFailedError, InputError, MemoryClosedError
from kernels.geometry import BAND_ROWS, THREADS
from kernels.image import NO_STAMP, AnyView, ImageSpec, ImageView, Stamp, align_up
from kernels.local_tables import MAX_GRID
from kernels.memory import DeviceMemory, HostMemory
from kernels.op import MAX_TEXT_BYTES, MAX_TEXTS, ComponentsOp, LocalStatisticOp, OpParams, StatisticOp, TemporalOp
from kernels.plan import PassKind, Plan, by_copies
from kernels.stages import block_bytes, state_bytes, text_ops

if TYPE_CHECKING:
    from cupy.cuda import Stream

    from kernels.device import CudaDevice


class Frame(ctypes.Structure):
    _fields_ = (
        ("tickets", ctypes.c_uint64),
        ("plan", ctypes.c_uint64),
        ("planes", ctypes.c_uint64 * 3),
        ("result", ctypes.c_uint64),
        ("arrived", ctypes.c_uint64),
        ("arrival", ctypes.c_uint32),
        ("arrived_rows", ctypes.c_int),
        ("departing_rows", ctypes.c_int),
        ("first_ticket", ctypes.c_uint32),
        ("number", ctypes.c_uint32),
        ("texts", ctypes.c_char * MAX_TEXT_BYTES * MAX_TEXTS),
    )


# What only a working context could release: to let it go would print errors that say nothing new.
_LOST: list[object] = []

# A change of size makes a new executor of the same text, also where there is no cache on disk.
_cubin = lru_cache(maxsize=32)(compile_cubin)


class CudaExecutor:
    """One plan on a stream of its own. See :class:`kernels.device.Executor`.

    ``change`` puts another way to the same result in the plan's place; ``crossing`` says how frames come and go. In
    place, slots must be in memory that the GPU sees; copies take any, and take long where it is not pinned.
    """

    def __init__(
        self,
        device: CudaDevice,
        plan: Plan,
        wait: WaitMode,
        change: Callable[[Plan], Plan] | None = None,
        crossing: Crossing = IN_PLACE,
    ) -> None:
        from cupy.cuda import Stream, function

        self.plan = plan
        self.crossing = crossing
        self.choice: Mapping[str, Any] | None = None
        self.copies: Mapping[str, int] = {}
        changed = change(plan) if change else plan
        into, awaited, out = crossing.into > 0, crossing.into > 1, crossing.out > 0
        self._plan = by_copies(changed, into=into, awaited=awaited, out=out) if into or out else changed
        self._device = device
        source = generate(self._plan)
        if device.dump_folder is not None:
            dump(device.dump_folder, self._plan, source)
        cubin = _cubin(source, device.architecture)
        with cuda_errors("cuModuleLoadData"):
            self._module = function.Module()
            self._module.load(cubin)
            self._function: int = self._module.get_function(KERNEL_NAME).ptr
        with cuda_errors("cudaStreamCreate"):
            self._stream = Stream(non_blocking=True)
        self._frame = Frame(number=0, first_ticket=0)
        self._launch = driver_calls.KernelLaunch(self._function, THREADS, self._frame, self._stream.ptr)
        self._memory: list[DeviceMemory | HostMemory] = []
        self._arrivals: Arrivals | None = None
        self._departures: Departures | None = None
        try:
            self._allocate()
        except BaseException:
            self.close()
            raise
        self._clock = FrameClock(wait)
        self._applied: tuple[OpParams, ...] | None = None
        self._accepted = (plan.source, plan.result)
        self._texts = text_ops(plan)
        # Where the CPU may not use managed memory beside a working GPU, a frame's is the GPU's while that works on it.
        self._attaches = device.memory == "unified" and not device.traits.concurrent_managed
        self._launched = 0
        self._grid = 0
        self._shared_bytes = 0
        # What every device gives without being asked, less a little that the kernel has beside it.
        self._most_shared_bytes = 47 << 10

    def _allocate(self) -> None:
        """Memory of the plan's block, the counters (zero), each picture between two passes, and what ops keep."""
        from cupy.cuda import runtime

        plan = self._plan
        nbytes_of_block = block_bytes(plan)
        counters = [
            1 if one.kind in (PassKind.STATISTIC, PassKind.JOIN) else -(-plan.pictures[one.last].height // BAND_ROWS)
            for one in plan.passes
        ]
        counter_bytes = 4 * (1 + sum(counters))
        self._frame.plan = self._device_memory(align_up(nbytes_of_block, 256) + counter_bytes)
        self._frame.tickets = self._frame.plan + align_up(nbytes_of_block, 256)
        with cuda_errors("cudaMemset"):
            runtime.memsetAsync(self._frame.tickets, 0, counter_bytes, self._stream.ptr)
        self._staged = self._device.allocate_pinned(nbytes_of_block)
        self._memory.append(self._staged)
        finished = [self._frame.tickets + 4 * (1 + sum(counters[:i])) for i in range(len(counters))]
        scratch: dict[int, int] = {}
        for number, one in enumerate(plan.passes):
            if not one.to_result and one.kind.makes_picture:
                scratch[number] = self._device_memory(align_up(plan.pictures[one.last].nbytes, 256))
        states: dict[int, int] = {}
        for index, (op, picture) in enumerate(zip(plan.ops, plan.pictures, strict=False)):
            channels = picture.format.channels
            if isinstance(op, TemporalOp):
                nbytes = picture.width * picture.height * state_bytes(op, picture.format)
            elif isinstance(op, StatisticOp):
                nbytes = 256 * channels * 9 + 4  # statistic.cuh
            elif isinstance(op, ComponentsOp):
                nbytes = 16 + 4 * picture.width * picture.height  # components.cuh
            elif isinstance(op, LocalStatisticOp):
                nbytes = 256 * MAX_GRID**2 * 5 + 16  # local.cuh
            else:
                continue
            states[index] = self._device_memory(align_up(nbytes, 256))
            with cuda_errors("cudaMemset"):
                runtime.memsetAsync(states[index], 0, nbytes, self._stream.ptr)
        device = self._device
        self._block = PlanBlock(plan, device.multiprocessors, device.shared_bytes, finished, scratch, states)
        self._allocate_copies(scratch)

    def _allocate_copies(self, scratch: dict[int, int]) -> None:
        from cupy.cuda import Event

        plan, crossing, frame = self._plan, self.crossing, self._frame
        with cuda_errors("cudaStreamCreate"):
            if crossing.into:
                arrivals = self._arrivals = Arrivals(plan, crossing.into, self._device_memory)
                for plane, offset in enumerate(plan.source.offsets):
                    frame.planes[plane] = arrivals.address + offset
                frame.arrived, frame.arrived_rows = arrivals.flags, arrivals.rows
                self._read = Event(disable_timing=True)  # the source of the frame before
                cuda_events.record(self._read, self._stream)
            if crossing.out:
                last = len(plan.passes) - 1
                picture = (scratch[last], self._block.rows(last)) if last in scratch else None
                departures = self._departures = Departures(plan, crossing.out, picture, self._device_memory)
                cuda_events.record(departures.end, departures.stream)
                frame.result, frame.departing_rows = departures.result, departures.rows
        both = (("to_device", self._arrivals), ("from_device", self._departures))
        self.copies = {path: copies.nbytes for path, copies in both if copies is not None}

    def _device_memory(self, nbytes: int) -> int:
        memory = DeviceMemory(nbytes, self._device.ledger)
        self._memory.append(memory)
        return memory.ptr

    def submit(
        self, source: AnyView, result: AnyView, params: tuple[OpParams, ...], stamp: Stamp = NO_STAMP
    ) -> Completion:
        plan = self.plan
        if not self._memory:
            raise MemoryClosedError(f"the executor for {plan.source.describe()} was used after close()")
        if source.spec is not self._accepted[0] or result.spec is not self._accepted[1]:
            self._accept(source.spec, result.spec)
        frame, arrivals, departures = self._frame, self._arrivals, self._departures
        if arrivals is None:
            address = _seen(source)
            frame.planes[: len(plan.source.offsets)] = [address + offset for offset in plan.source.offsets]
        if departures is None:
            frame.result = _seen(result) + plan.result.offsets[0]
        if params is not self._applied:
            self._apply(params)
        frame.number = (self._launched + 1) % 2**32
        for place, (index, op) in enumerate(self._texts):
            text = op.text(params[index], stamp)
            frame.texts[place].raw = text[:MAX_TEXT_BYTES].ljust(MAX_TEXT_BYTES, b"\0")
        events = self._clock.take()
        with cuda_errors("cuLaunchKernel"):
            stream = self._stream
            if arrivals is None:
                cuda_events.record(events.start, stream)
            else:
                arrivals.stream.wait_event(self._read)
                cuda_events.record(events.start, arrivals.stream)
                # Not the frame's number: copies may have come of a frame whose launch failed.
                frame.arrival = (frame.arrival + 1) % 2**32
                arrivals.bring(_on_host(source), frame.arrival, stream)
            if departures is not None:
                stream.wait_event(departures.end)
            if self._attaches:
                self._attach(ATTACH_SINGLE, source, result)
            self._launch(self._grid, self._shared_bytes)
            # Only a frame that runs moves the counters on the device.
            self._launched += 1
            frame.first_ticket = (frame.first_ticket + self._grid) % 2**32
            if arrivals is not None:
                cuda_events.record(self._read, stream)
            if self._attaches:
                self._attach(ATTACH_HOST, source, result)
            if departures is None:
                cuda_events.record(events.end, stream)
            else:
                departures.take(_on_host(result), frame.number, stream)
                cuda_events.record(events.end, departures.stream)
        return CudaCompletion(events, self._clock)

    def _attach(self, to: int, *views: AnyView) -> None:
        for view in views:
            if isinstance(view, ImageView):
                attach(self._stream.ptr, _seen(view), to)

    def _accept(self, source: ImageSpec, result: ImageSpec) -> None:
        """Compared by value once; the slots of a ring share their specifications, and frames are many."""
        plan = self.plan
        if source != plan.source or result != plan.result:
            raise InputError(
                "source",
                f"{source.describe()} to {result.describe()} is not what the plan was made for",
                f"{plan.source.describe()} to {plan.result.describe()}, with its strides",
            )
        self._accepted = (source, result)

    @property
    def stream(self) -> Stream:
        """Where its work is submitted: what is put on it next sees the result of the frame before."""
        return self._stream

    def close(self) -> None:
        try:
            with cuda_errors("cudaStreamSynchronize"):
                copying = [copies.stream for copies in (self._arrivals, self._departures) if copies is not None]
                for stream in (*copying, self._stream):
                    stream.synchronize()
        except DeviceFailedError as error:
            # A lost context has nothing left to wait for; its memory still has to leave the ledger.
            if not error.sticky:
                raise
            _LOST.append((self._module, self._stream, self._arrivals, self._departures))
        finally:
            while self._memory:
                with cuda_errors("cudaFree"):
                    self._memory.pop().close()

    def _apply(self, params: tuple[OpParams, ...]) -> None:
        """Put these parameter values, and what follows from them, behind the frames that are under way."""
        from cupy.cuda import driver, runtime

        layout = self._block.lay_out(params)
        self._applied = None
        if layout.shared_bytes > self._most_shared_bytes:
            with cuda_errors("cuFuncSetAttribute"):
                attribute = driver.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
                driver.funcSetAttribute(self._function, attribute, layout.shared_bytes)
            self._most_shared_bytes = layout.shared_bytes
        with cuda_errors("cudaMemcpyAsync"):
            # What was put here before must have arrived.
            self._stream.synchronize()
            self._staged.array[:] = np.frombuffer(layout.block, np.uint8)
            address = self._staged.array.ctypes.data
            nbytes = len(layout.block)
            runtime.memcpyAsync(self._frame.plan, address, nbytes, runtime.memcpyHostToDevice, self._stream.ptr)
        self._shared_bytes, self._grid = layout.shared_bytes, layout.grid
        self._applied = params


def _on_host(view: AnyView) -> ImageView:
    if not isinstance(view, ImageView):
        raise InputError("source", "copies between host and device take pictures in host memory", "a slot's picture")
    return view


def _seen(view: AnyView) -> int:
    if view.dev_ptr is None:
        raise InputError("source", "the pictures are not in memory that the GPU sees", "memory from allocate_slot")
    return view.dev_ptr
