"""Runs a plan on a CUDA device: one launch a frame, whose passes run side by side and hand each other rows; no copies.

The slot's planes are read and its result written through the mapped pointers; what lies between is device memory. While
the first rows are computed and written the next ones are read, so the link is busy both ways (kernels/cuda/flow.cuh).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from kernels.codegen import KERNEL_NAME, generate
from kernels.compiler import compile_cubin
from kernels.cuda_block import PlanBlock
from kernels.cuda_wait import CudaCompletion, FrameClock
from kernels.device import Completion, WaitMode, cuda_errors
from kernels.dump import dump
from kernels.errors import DeviceFailedError, InputError, MemoryClosedError
from kernels.geometry import BAND_ROWS, THREADS
from kernels.image import NO_STAMP, ImageSpec, ImageView, Stamp, align_up
from kernels.memory import DeviceMemory, HostMemory
from kernels.op import MAX_TEXT_BYTES, MAX_TEXTS, OpParams, StatisticOp, TemporalOp
from kernels.plan import PassKind, Plan
from kernels.stages import params_offset, text_ops

if TYPE_CHECKING:
    from kernels.device import CudaDevice


class Frame(ctypes.Structure):
    _fields_ = (
        ("tickets", ctypes.c_uint64),
        ("plan", ctypes.c_uint64),
        ("planes", ctypes.c_uint64 * 3),
        ("result", ctypes.c_uint64),
        ("first_ticket", ctypes.c_uint32),
        ("number", ctypes.c_uint32),
        ("texts", ctypes.c_char * MAX_TEXT_BYTES * MAX_TEXTS),
    )


# A change of size makes a new executor of the same text, also where there is no cache on disk.
_cubin = lru_cache(maxsize=32)(compile_cubin)


class CudaExecutor:
    """One plan on a stream of its own. See :class:`kernels.device.Executor`.

    ``change`` puts another way to the same result in the plan's place.
    """

    def __init__(
        self, device: CudaDevice, plan: Plan, wait: WaitMode, change: Callable[[Plan], Plan] | None = None
    ) -> None:
        from cupy.cuda import Stream, driver, function

        self.plan = plan
        self._plan = change(plan) if change else plan
        self._device = device
        self._launch = driver.launchKernel
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
        self._arguments = (ctypes.c_void_p * 1)(ctypes.addressof(self._frame))
        self._memory: list[DeviceMemory | HostMemory] = []
        try:
            self._allocate()
        except BaseException:
            self.close()
            raise
        self._clock = FrameClock(wait)
        self._applied: tuple[OpParams, ...] | None = None
        self._accepted = (plan.source, plan.result)
        self._texts = text_ops(plan)
        self._launched = 0
        self._grid = 0
        self._shared_bytes = 0
        # What every device gives without being asked, less a little that the kernel has beside it.
        self._most_shared_bytes = 47 << 10

    def _allocate(self) -> None:
        """Memory of the plan's block, the counters (zero), each picture between two passes, and what ops keep."""
        from cupy.cuda import runtime

        plan = self._plan
        block_bytes = params_offset(plan, len(plan.ops))
        counters = [
            1 if one.kind is PassKind.STATISTIC else -(-plan.pictures[one.last].height // BAND_ROWS)
            for one in plan.passes
        ]
        counter_bytes = 4 * (1 + sum(counters))
        self._frame.plan = self._device_memory(align_up(block_bytes, 256) + counter_bytes)
        self._frame.tickets = self._frame.plan + align_up(block_bytes, 256)
        with cuda_errors("cudaMemset"):
            runtime.memsetAsync(self._frame.tickets, 0, counter_bytes, self._stream.ptr)
        self._staged = self._device.allocate_slot(block_bytes)
        self._memory.append(self._staged)
        finished = [self._frame.tickets + 4 * (1 + sum(counters[:i])) for i in range(len(counters))]
        scratch: dict[int, int] = {}
        for number, one in enumerate(plan.passes):
            if not one.to_result and one.kind is not PassKind.STATISTIC:
                scratch[number] = self._device_memory(align_up(plan.pictures[one.last].nbytes, 256))
        states: dict[int, int] = {}
        for index, (op, picture) in enumerate(zip(plan.ops, plan.pictures, strict=False)):
            channels = picture.format.channels
            if isinstance(op, TemporalOp):
                nbytes = picture.width * picture.height * op.state_bytes(channels)
            elif isinstance(op, StatisticOp):
                nbytes = 256 * channels * 9 + 4  # statistic.cuh
            else:
                continue
            states[index] = self._device_memory(align_up(nbytes, 256))
            with cuda_errors("cudaMemset"):
                runtime.memsetAsync(states[index], 0, nbytes, self._stream.ptr)
        device = self._device
        self._block = PlanBlock(plan, device.multiprocessors, device.shared_bytes, finished, scratch, states)

    def _device_memory(self, nbytes: int) -> int:
        memory = DeviceMemory(nbytes, self._device.ledger)
        self._memory.append(memory)
        return memory.ptr

    def submit(
        self, source: ImageView, result: ImageView, params: tuple[OpParams, ...], stamp: Stamp = NO_STAMP
    ) -> Completion:
        plan = self.plan
        if not self._memory:
            raise MemoryClosedError(f"the executor for {plan.source.describe()} was used after close()")
        if source.spec is not self._accepted[0] or result.spec is not self._accepted[1]:
            self._accept(source.spec, result.spec)
        if source.dev_ptr is None or result.dev_ptr is None:
            raise InputError("source", "the pictures are not in memory that the GPU sees", "memory from allocate_slot")
        if params is not self._applied:
            self._apply(params)
        frame = self._frame
        frame.planes[: len(plan.source.offsets)] = [source.dev_ptr + offset for offset in plan.source.offsets]
        frame.result = result.dev_ptr + plan.result.offsets[0]
        frame.number = (self._launched + 1) % 2**32
        for place, (index, op) in enumerate(self._texts):
            text = op.text(params[index], stamp)
            frame.texts[place].raw = text[:MAX_TEXT_BYTES].ljust(MAX_TEXT_BYTES, b"\0")
        events = self._clock.take()
        with cuda_errors("cuLaunchKernel"):
            stream = self._stream
            events.start.record(stream)
            arguments = ctypes.addressof(self._arguments)
            self._launch(self._function, self._grid, 1, 1, THREADS, 1, 1, self._shared_bytes, stream.ptr, arguments, 0)
            # Only a frame that runs moves the counters on the device.
            self._launched += 1
            frame.first_ticket = (frame.first_ticket + self._grid) % 2**32
            events.end.record(stream)
        return CudaCompletion(events, self._clock)

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

    def close(self) -> None:
        try:
            with cuda_errors("cudaStreamSynchronize"):
                self._stream.synchronize()
        except DeviceFailedError as error:
            # A lost context has nothing left to wait for; its memory still has to leave the ledger.
            if not error.sticky:
                raise
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
