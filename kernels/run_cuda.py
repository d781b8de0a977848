"""Runs a plan on a CUDA device: ingest → one kernel per op → egress, all on one stream, no copies.

The slot's planes are read and its result written through the mapped pointers; what lies between is device memory.
"""

from __future__ import annotations

import ctypes
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kernels.codegen import EGRESS_NAME, generate, ingest_name, op_kernel_name
from kernels.compiler import compile_cubin
from kernels.device import Completion, WaitMode, cuda_errors
from kernels.errors import DeviceFailedError, InputError
from kernels.formats import yuv_coefficients
from kernels.image import ImageView, align_up
from kernels.memory import DeviceMemory
from kernels.op import OpParams, TableOp
from kernels.plan import Plan
from kernels.registry import AnyOp

if TYPE_CHECKING:
    from kernels.device import CudaDevice

# The constants of kernels/cuda/*.cuh that decide a launch.
_WORD = 16
_INGEST_TILE_PX, _INGEST_TILE_ROWS = 512, 2
_STENCIL_BYTES, _STENCIL_ROWS = 256, 16
_THREADS = 256


class _IngestArgs(ctypes.Structure):
    _fields_ = (
        ("planes", ctypes.c_uint64 * 3),
        ("dst", ctypes.c_uint64),
        ("strides", ctypes.c_int * 3),
        ("dst_stride", ctypes.c_int),
        ("width", ctypes.c_int),
        ("height", ctypes.c_int),
        *((name, ctypes.c_int) for name in ("y_offset", "y", "bu", "gu", "gv", "rv")),
    )


class _EgressArgs(ctypes.Structure):
    _fields_ = (
        ("src", ctypes.c_uint64),
        ("dst", ctypes.c_uint64),
        ("stride", ctypes.c_int),
        ("row_bytes", ctypes.c_int),
        ("bytes", ctypes.c_longlong),
    )


class _TableArgs(ctypes.Structure):
    _fields_ = (
        ("src", ctypes.c_uint64),
        ("dst", ctypes.c_uint64),
        ("words", ctypes.c_int),
        ("constants", ctypes.c_uint8 * 256),
    )


class _StencilArgs(ctypes.Structure):
    _fields_ = (
        ("src", ctypes.c_uint64),
        ("dst", ctypes.c_uint64),
        ("stride", ctypes.c_int),
        ("width", ctypes.c_int),
        ("height", ctypes.c_int),
        ("radius", ctypes.c_int),
        ("constants", ctypes.c_uint8 * 1024),
    )


@dataclass(slots=True)
class _Launch:
    """One pass, ready to go: everything but what changes from frame to frame is in place."""

    name: str
    function: int
    grid: tuple[int, int]
    args: Any
    params: Any  # void*[1], the address of args
    shared_bytes: int = 0


class CudaExecutor:
    """One plan, one stream, one stage thread; see :class:`kernels.device.Executor`."""

    def __init__(self, device: CudaDevice, plan: Plan, wait: WaitMode) -> None:
        from cupy.cuda import Stream, function

        self.plan = plan
        self._block = wait == "block"
        cubin = compile_cubin(generate(plan), device.architecture)
        with cuda_errors("cuModuleLoadData"):
            self._module = function.Module()
            self._module.load(cubin)
            self._stream = Stream(non_blocking=True)
        spec = plan.working
        self._scratch: list[DeviceMemory] = []
        try:
            for _ in range(2 if plan.ops else 1):
                self._scratch.append(DeviceMemory(align_up(spec.nbytes, 256), device.ledger))
        except BaseException:
            self.close()
            raise
        self._spare: list[_Events] = []
        self._applied: tuple[OpParams, ...] | None = None
        self._ingest = self._make_ingest()
        self._ops = [self._make_op(op, index) for index, op in enumerate(plan.ops)]
        self._egress = self._make_egress()

    def submit(self, source: ImageView, result: ImageView, params: tuple[OpParams, ...]) -> Completion:
        plan = self.plan
        if source.spec != plan.source or result.spec != plan.result:
            raise InputError(
                "source",
                f"{source.spec.describe()} to {result.spec.describe()} is not what the plan was made for",
                f"{plan.source.describe()} to {plan.result.describe()}, with its strides",
            )
        if source.dev_ptr is None or result.dev_ptr is None:
            raise InputError("source", "the pictures are not in memory that the GPU sees", "memory from allocate_slot")
        if params is not self._applied:
            self._apply(params)
        self._ingest.args.planes[: len(plan.source.offsets)] = [source.dev_ptr + o for o in plan.source.offsets]
        self._egress.args.dst = result.dev_ptr + plan.result.offsets[0]
        events = self._spare.pop() if self._spare else _Events(self._block)
        stream = self._stream.ptr
        with cuda_errors("cuLaunchKernel"):
            events.start.record(self._stream)
            _launch(self._ingest, stream)
            for launch in self._ops:
                _launch(launch, stream)
            _launch(self._egress, stream)
            events.end.record(self._stream)
        return CudaCompletion(events, self._spare)

    def close(self) -> None:
        try:
            with cuda_errors("cudaStreamSynchronize"):
                self._stream.synchronize()
        except DeviceFailedError as error:
            # A lost context has nothing left to wait for; its memory still has to leave the ledger.
            if not error.sticky:
                raise
        finally:
            while self._scratch:
                with cuda_errors("cudaFree"):
                    self._scratch.pop().close()

    def _apply(self, params: tuple[OpParams, ...]) -> None:
        for op, launch, values in zip(self.plan.ops, self._ops, params, strict=True):
            constants = op.constants(values)
            ctypes.memmove(launch.args.constants, constants, len(constants))
            if not isinstance(op, TableOp):
                radius = op.radius(values)
                launch.args.radius = radius
                launch.shared_bytes = _stencil_shared_bytes(radius, self.plan.working.format.channels)
        self._applied = params

    def _launch_of(self, name: str, grid: tuple[int, int], args: Any) -> _Launch:
        pointers = (ctypes.c_void_p * 1)(ctypes.addressof(args))
        return _Launch(name, self._module.get_function(name).ptr, grid, args, pointers)

    def _make_ingest(self) -> _Launch:
        source, working = self.plan.source, self.plan.working
        c = yuv_coefficients(source.matrix, source.range)
        args = _IngestArgs(
            dst=self._scratch[0].ptr,
            dst_stride=working.strides[0],
            width=source.width,
            height=source.height,
            y_offset=c.y_offset, y=c.y, bu=c.bu, gu=c.gu, gv=c.gv, rv=c.rv,
        )  # fmt: skip
        args.strides[: len(source.strides)] = source.strides
        grid = (-(-source.width // _INGEST_TILE_PX), -(-source.height // _INGEST_TILE_ROWS))
        return self._launch_of(ingest_name(self.plan), grid, args)

    def _make_op(self, op: AnyOp, index: int) -> _Launch:
        working = self.plan.working
        src, dst = self._scratch[index % 2].ptr, self._scratch[(index + 1) % 2].ptr
        if isinstance(op, TableOp):
            words = working.nbytes // _WORD
            return self._launch_of(
                op_kernel_name(op), (-(-words // (2 * _THREADS)), 1), _TableArgs(src=src, dst=dst, words=words)
            )
        args = _StencilArgs(src=src, dst=dst, stride=working.strides[0], width=working.width, height=working.height)
        row_bytes = working.width * working.format.channels
        grid = (-(-row_bytes // _STENCIL_BYTES), -(-working.height // _STENCIL_ROWS))
        return self._launch_of(op_kernel_name(op), grid, args)

    def _make_egress(self) -> _Launch:
        working, result = self.plan.working, self.plan.result
        args = _EgressArgs(
            src=self._scratch[len(self.plan.ops) % 2 if self.plan.ops else 0].ptr,
            stride=working.strides[0],
            row_bytes=result.strides[0],
            bytes=result.nbytes,
        )
        return self._launch_of(EGRESS_NAME, (-(-result.nbytes // (_WORD * _THREADS)), 1), args)


class _Events:
    """A pair of timing events, used again once its frame is done."""

    def __init__(self, block: bool) -> None:
        from cupy.cuda import Event

        self.start = Event(block=block)
        self.end = Event(block=block)


class CudaCompletion:
    """Done when the frame's end event is reached. Any thread may ask; the first to see it returns the events."""

    def __init__(self, events: _Events, spare: list[_Events]) -> None:
        self._lock = threading.Lock()
        self._events: _Events | None = events
        self._spare = spare
        self._gpu_ns: int | None = None

    def done(self) -> bool:
        events = self._events
        if events is None:
            return True
        with cuda_errors("cudaEventQuery"):
            if not events.end.done:
                return False
        self._finish(events)
        return True

    def wait(self) -> None:
        events = self._events
        if events is not None:
            with cuda_errors("cudaEventSynchronize"):
                events.end.synchronize()
            self._finish(events)

    def gpu_ns(self) -> int | None:
        return self._gpu_ns

    def _finish(self, events: _Events) -> None:
        from cupy.cuda import get_elapsed_time

        with self._lock:
            if self._events is None:
                return
            with cuda_errors("cudaEventElapsedTime"):
                self._gpu_ns = int(get_elapsed_time(events.start, events.end) * 1e6)
            self._events = None
        self._spare.append(events)


def _launch(launch: _Launch, stream: int) -> None:
    from cupy.cuda import driver

    driver.launchKernel(
        launch.function, *launch.grid, 1, _THREADS, 1, 1, launch.shared_bytes, stream,
        ctypes.addressof(launch.params), 0,
    )  # fmt: skip


def _stencil_shared_bytes(radius: int, channels: int) -> int:
    """The tile with its halo, a spare word, and the column sums of the separable form (stencil.cuh)."""
    halo = align_up(radius * channels, _WORD)
    rows = _STENCIL_ROWS + 2 * radius
    return rows * (_STENCIL_BYTES + 2 * halo) + _WORD + rows * (_STENCIL_BYTES // 4) * 8
