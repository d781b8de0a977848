"""Runs a plan on a CUDA device: ingest → one kernel per op → egress, in row bands, no copies.

The slot's planes are read and its result written through the mapped pointers; what lies between is device memory. The
next band is read while the last one is computed and written, so that the link is busy both ways.
"""

from __future__ import annotations

import ctypes
import threading
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from kernels.codegen import EGRESS_NAME, generate, ingest_name, op_kernel_name
from kernels.compiler import compile_cubin
from kernels.device import Completion, WaitMode, cuda_errors
from kernels.errors import DeviceFailedError, InputError
from kernels.formats import yuv_coefficients
from kernels.image import ImageSpec, ImageView, align_up
from kernels.memory import DeviceMemory
from kernels.op import OpParams, PixelOp, TableOp
from kernels.plan import Plan, band_schedule, default_bands

if TYPE_CHECKING:
    from kernels.device import CudaDevice

# The constants of kernels/cuda/*.cuh that decide a launch.
_WORD = 16
_INGEST_TILE_PX, _INGEST_TILE_ROWS = 512, 2
_STENCIL_BYTES, _STENCIL_ROWS = 240, 16
_PIXEL_TILE_PX, _PIXEL_TILE_ROWS = 128, 8
_THREADS = 256
# What fills the link, measured (DESIGN.md); the rest of the multiprocessors is left to whoever computes meanwhile.
_READ_BLOCKS = 64
_WRITE_BLOCKS = 16
_WRITE_BLOCKS_ODD_ROWS = 128  # rows that are no whole words are gathered byte by byte


class _IngestArgs(ctypes.Structure):
    _fields_ = (
        ("planes", ctypes.c_uint64 * 3),
        ("dst", ctypes.c_uint64),
        ("strides", ctypes.c_int * 3),
        ("dst_stride", ctypes.c_int),
        ("width", ctypes.c_int),
        ("height", ctypes.c_int),
        ("first_row", ctypes.c_int),
        *((name, ctypes.c_int) for name in ("y_offset", "y", "bu", "gu", "gv", "rv")),
    )


class _EgressArgs(ctypes.Structure):
    _fields_ = (
        ("src", ctypes.c_uint64),
        ("dst", ctypes.c_uint64),
        ("stride", ctypes.c_int),
        ("row_bytes", ctypes.c_int),
        ("first", ctypes.c_longlong),
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
        ("first_row", ctypes.c_int),
        ("last_row", ctypes.c_int),
        ("constants", ctypes.c_uint8 * 1024),
    )


class _PixelArgs(ctypes.Structure):
    _fields_ = (
        ("src", ctypes.c_uint64),
        ("dst", ctypes.c_uint64),
        ("src_stride", ctypes.c_int),
        ("dst_stride", ctypes.c_int),
        ("src_size", ctypes.c_int * 2),
        ("dst_size", ctypes.c_int * 2),
        ("first_row", ctypes.c_int),
        ("last_row", ctypes.c_int),
        ("constants", ctypes.c_uint8 * 1024),
    )


# A change of size makes a new executor of the same text, also where there is no cache on disk.
_cubin = lru_cache(maxsize=32)(compile_cubin)


@dataclass(slots=True)
class _Launch:
    """One pass, ready to go: everything but what changes from frame to frame is in place."""

    function: int
    grid: tuple[int, int]
    args: Any
    pointers: Any  # void*[1]: the address of args, as cuLaunchKernel wants it
    address: int  # of pointers
    shared_bytes: int


class CudaExecutor:
    """One plan, one stage thread, three streams: one reads bands of the slot, one computes, one writes them.

    See :class:`kernels.device.Executor`; ``bands`` overrides :func:`kernels.plan.default_bands`.
    """

    def __init__(self, device: CudaDevice, plan: Plan, wait: WaitMode, bands: int | None = None) -> None:
        from cupy.cuda import Event, Stream, driver, function

        self.plan = plan
        bands = (bands if plan.keeps_rows else 1) or default_bands(plan, device.integrated)
        self.bands = min(bands, -(-plan.source.height // 2))
        self._block = wait == "block"
        self._launch = driver.launchKernel
        cubin = _cubin(generate(plan), device.architecture)
        with cuda_errors("cuModuleLoadData"):
            self._module = function.Module()
            self._module.load(cubin)
        with cuda_errors("cudaStreamCreate"):
            # Bands that can leave go before bands that still have to come.
            self._writing = Stream(non_blocking=True, priority=-2)
            banded = self.bands > 1
            self._computing = Stream(non_blocking=True, priority=-1) if banded else self._writing
            self._reading = Stream(non_blocking=True) if banded else self._writing
            self._read = [Event(disable_timing=True) for _ in range(self.bands)]
            self._computed = [Event(disable_timing=True) for _ in range(self.bands)]
        self._scratch: list[DeviceMemory] = []
        try:
            # Two buffers take turns, each as large as the largest picture it holds.
            for pictures in (plan.pictures[::2], plan.pictures[1::2]):
                if pictures:
                    nbytes = max(picture.nbytes for picture in pictures)
                    self._scratch.append(DeviceMemory(align_up(nbytes, 256), device.ledger))
        except BaseException:
            self.close()
            raise
        self._spare: list[_Events] = []
        self._last: _Events | None = None
        self._applied: tuple[OpParams, ...] | None = None
        self._accepted = (plan.source, plan.result)
        self._ingest: list[_Launch] = []
        self._ops: list[list[_Launch]] = []
        self._egress: list[_Launch] = []

    def submit(self, source: ImageView, result: ImageView, params: tuple[OpParams, ...]) -> Completion:
        plan = self.plan
        if source.spec is not self._accepted[0] or result.spec is not self._accepted[1]:
            self._accept(source.spec, result.spec)
        if source.dev_ptr is None or result.dev_ptr is None:
            raise InputError("source", "the pictures are not in memory that the GPU sees", "memory from allocate_slot")
        if params is not self._applied:
            self._apply(params)
        planes = [source.dev_ptr + offset for offset in plan.source.offsets]
        for launch in self._ingest:
            launch.args.planes[: len(planes)] = planes
        for launch in self._egress:
            launch.args.dst = result.dev_ptr + plan.result.offsets[0]
        events = self._spare.pop() if self._spare else _Events(self._block)
        with cuda_errors("cuLaunchKernel"):
            self._launch_frame(events)
        self._last = events
        return CudaCompletion(events, self._spare)

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

    def _launch_frame(self, events: _Events) -> None:
        launch = self._launch
        reading, computing, writing = self._reading, self._computing, self._writing
        banded = self.bands > 1
        if banded and self._last is not None:
            # The scratch pictures are shared by all frames of this executor.
            reading.wait_event(self._last.end)
        events.start.record(reading)
        for one, read in zip(self._ingest, self._read, strict=True):
            if one.grid[0]:
                launch(one.function, *one.grid, 1, _THREADS, 1, 1, 0, reading.ptr, one.address, 0)
            if banded:
                read.record(reading)
        for band, last in enumerate(self._egress):
            if banded:
                computing.wait_event(self._read[band])
            for one in self._ops[band]:
                launch(one.function, *one.grid, 1, _THREADS, 1, 1, one.shared_bytes, computing.ptr, one.address, 0)
            if banded:
                self._computed[band].record(computing)
                writing.wait_event(self._computed[band])
            if last.grid[0]:
                launch(last.function, *last.grid, 1, _THREADS, 1, 1, 0, writing.ptr, last.address, 0)
        events.end.record(writing)

    def close(self) -> None:
        try:
            with cuda_errors("cudaStreamSynchronize"):
                for stream in (self._reading, self._computing, self._writing):
                    stream.synchronize()
        except DeviceFailedError as error:
            # A lost context has nothing left to wait for; its memory still has to leave the ledger.
            if not error.sticky:
                raise
        finally:
            while self._scratch:
                with cuda_errors("cudaFree"):
                    self._scratch.pop().close()

    def _apply(self, params: tuple[OpParams, ...]) -> None:
        """Lay out every launch for these parameter values: a window's radius decides where bands may end."""
        plan = self.plan
        radii = [op.radius(values) for op, values in zip(plan.ops, params, strict=True)]
        ends = (
            band_schedule(plan.source.height, self.bands, radii)
            if plan.keeps_rows
            else [[picture.height] for picture in plan.pictures]
        )
        starts = [[0, *stage[:-1]] for stage in ends]
        self._ingest = [self._ingest_launch(*rows) for rows in zip(starts[0], ends[0], strict=True)]
        self._ops = [
            [
                self._op_launch(index, values, starts[index + 1][band], ends[index + 1][band])
                for index, values in enumerate(params)
                if starts[index + 1][band] < ends[index + 1][band]
            ]
            for band in range(self.bands)
        ]
        self._egress = [self._egress_launch(*rows) for rows in zip(starts[-1], ends[-1], strict=True)]
        self._applied = params

    def _launch_of(self, name: str, grid: tuple[int, int], args: Any, shared_bytes: int = 0) -> _Launch:
        pointers = (ctypes.c_void_p * 1)(ctypes.addressof(args))
        function = self._module.get_function(name).ptr
        return _Launch(function, grid, args, pointers, ctypes.addressof(pointers), shared_bytes)

    def _ingest_launch(self, first: int, last: int) -> _Launch:
        source, working = self.plan.source, self.plan.pictures[0]
        c = yuv_coefficients(source.matrix, source.range)
        args = _IngestArgs(
            dst=self._scratch[0].ptr,
            dst_stride=working.strides[0],
            width=source.width,
            height=last,
            first_row=first,
            y_offset=c.y_offset, y=c.y, bu=c.bu, gu=c.gu, gv=c.gv, rv=c.rv,
        )  # fmt: skip
        args.strides[: len(source.strides)] = source.strides
        tiles = -(-source.width // _INGEST_TILE_PX) * -(-(last - first) // _INGEST_TILE_ROWS)
        return self._launch_of(ingest_name(self.plan), (min(tiles, _READ_BLOCKS), 1), args)

    def _op_launch(self, index: int, values: OpParams, first: int, last: int) -> _Launch:
        op, before, after = self.plan.ops[index], self.plan.pictures[index], self.plan.pictures[index + 1]
        src, dst = self._scratch[index % 2].ptr, self._scratch[(index + 1) % 2].ptr
        stride, shared_bytes = before.strides[0], 0
        args: _TableArgs | _StencilArgs | _PixelArgs
        if isinstance(op, TableOp):
            skipped, words = first * stride, (last - first) * stride // _WORD
            args = _TableArgs(src=src + skipped, dst=dst + skipped, words=words)
            grid = (-(-words // (2 * _THREADS)), 1)
        elif isinstance(op, PixelOp):
            args = _PixelArgs(
                src=src, dst=dst, src_stride=stride, dst_stride=after.strides[0],
                src_size=(before.width, before.height), dst_size=(after.width, after.height),
                first_row=first, last_row=last,
            )  # fmt: skip
            grid = (-(-after.width // _PIXEL_TILE_PX), -(-(last - first) // _PIXEL_TILE_ROWS))
        else:
            radius, channels = op.radius(values), before.format.channels
            args = _StencilArgs(
                src=src, dst=dst, stride=stride, width=before.width, height=before.height,
                radius=radius, first_row=first, last_row=last,
            )  # fmt: skip
            grid = (-(-before.width * channels // _STENCIL_BYTES), -(-(last - first) // _STENCIL_ROWS))
            shared_bytes = _stencil_shared_bytes(radius, channels)
        constants = op.constants(values)
        ctypes.memmove(args.constants, constants, len(constants))
        return self._launch_of(op_kernel_name(op, before), grid, args, shared_bytes)

    def _egress_launch(self, first_row: int, last_row: int) -> _Launch:
        working, result = self.plan.pictures[-1], self.plan.result
        row_bytes = result.strides[0]
        # A band ends on a whole word; the rest of its last row leaves with the next one.
        first = first_row * row_bytes // _WORD * _WORD
        end = result.nbytes if last_row == result.height else last_row * row_bytes // _WORD * _WORD
        args = _EgressArgs(
            src=self._scratch[len(self.plan.ops) % 2].ptr,
            stride=working.strides[0], row_bytes=row_bytes, first=first, bytes=end,
        )  # fmt: skip
        blocks = -(-(end - first) // (_WORD * _THREADS))
        most = _WRITE_BLOCKS_ODD_ROWS if row_bytes % _WORD else _WRITE_BLOCKS
        return self._launch_of(EGRESS_NAME, (min(blocks, most), 1), args)


class _Events:
    """A pair of timing events, used again once its frame is done."""

    def __init__(self, block: bool) -> None:
        from cupy.cuda import Event

        self.start = Event(block=block)
        self.end = Event(block=block)


class CudaCompletion:
    """Done when the frame's end event is reached. Any thread may ask."""

    def __init__(self, events: _Events, spare: list[_Events]) -> None:
        self._lock = threading.Lock()
        self._events: _Events | None = events
        self._end = events.end
        self._spare = spare
        self._over = False
        self._gpu_ns: int | None = None

    def done(self) -> bool:
        if not self._over:
            with cuda_errors("cudaEventQuery"):
                self._over = bool(self._end.done)
        return self._over

    def wait(self) -> None:
        if not self._over:
            with cuda_errors("cudaEventSynchronize"):
                self._end.synchronize()
            self._over = True

    def gpu_ns(self) -> int | None:
        """Asked once the frame is done and not while it is waited for; the first answer lets the events go."""
        from cupy.cuda import get_elapsed_time

        if self._over and self._gpu_ns is None:
            with self._lock:
                if self._events is not None:
                    with cuda_errors("cudaEventElapsedTime"):
                        self._gpu_ns = int(get_elapsed_time(self._events.start, self._events.end) * 1e6)
                    self._spare.append(self._events)
                    self._events = None
        return self._gpu_ns


def _stencil_shared_bytes(radius: int, channels: int) -> int:
    """The tile with its halo, and the 16-bit column sums of the separable form (stencil.cuh)."""
    reach = radius * channels
    tile = (_STENCIL_ROWS + 2 * radius) * (_STENCIL_BYTES + 2 * align_up(reach, _WORD))
    return tile + _STENCIL_ROWS * (_STENCIL_BYTES + 2 * align_up(reach, 4)) * 2
