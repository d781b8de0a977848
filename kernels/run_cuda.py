"""Runs a plan on a CUDA device: one launch a frame, whose passes run side by side and hand each other rows; no copies.

The slot's planes are read and its result written through the mapped pointers; what lies between is device memory. While
the first rows are computed and written the next ones are read, so the link is busy both ways (kernels/cuda/flow.cuh).
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING

from kernels.codegen import (
    KERNEL_NAME,
    OP_BYTES,
    PASS_BYTES,
    STATE_AT,
    generate,
    params_offset,
    stages,
    text_ops,
    tile_width_px,
)
from kernels.compiler import compile_cubin
from kernels.device import Completion, WaitMode, cuda_errors
from kernels.dump import dump
from kernels.errors import DeviceFailedError, InputError
from kernels.formats import yuv_coefficients
from kernels.geometry import BAND_ROWS, SEGMENT_PX, THREADS, pieces, radii, shared_bytes, tile_geometry
from kernels.image import NO_STAMP, ImageSpec, ImageView, Stamp, align_up
from kernels.memory import DeviceMemory
from kernels.op import MAX_TEXT_BYTES, MAX_TEXTS, OpParams, StatisticOp, TemporalOp
from kernels.plan import PassKind, Plan, reads_in_place

if TYPE_CHECKING:
    from kernels.device import CudaDevice

_MAX_STENCILS = 16
_BLOCKS_PER_MULTIPROCESSOR = 4  # what the kernel's registers are limited for
# What fills the link, and computes as fast as it brings rows, measured (DESIGN.md); more are only in each other's way.
_READ_BLOCKS = 96
_WRITE_BLOCKS = 32
_COUNTING_BLOCKS = 64
_COMPUTING_BLOCKS_PER_MULTIPROCESSOR = 2


class _Rows(ctypes.Structure):
    _fields_ = (("finished", ctypes.c_uint64), ("across", ctypes.c_int), ("height", ctypes.c_int))


class _IngestPass(ctypes.Structure):
    _fields_ = (
        ("dst", ctypes.c_uint64),
        ("strides", ctypes.c_int * 3),
        ("dst_stride", ctypes.c_int),
        ("width", ctypes.c_int),
        ("height", ctypes.c_int),
        *((name, ctypes.c_int) for name in ("y_offset", "y", "bu", "gu", "gv", "rv")),
        ("made", _Rows),
        ("workers", ctypes.c_int),
    )


class _TilePass(ctypes.Structure):
    _fields_ = (
        ("src", ctypes.c_uint64),
        ("dst", ctypes.c_uint64),
        ("src_stride", ctypes.c_int),
        ("dst_stride", ctypes.c_int),
        ("src_size", ctypes.c_int * 2),
        ("size", ctypes.c_int * 2),
        ("needed", _Rows),
        ("made", _Rows),
        ("workers", ctypes.c_int),
        ("halo", ctypes.c_int),
        ("margin", ctypes.c_int),
        ("buffer_bytes", ctypes.c_int),
        ("radius", ctypes.c_int * _MAX_STENCILS),
        ("chroma_offset", ctypes.c_int * 2),
        ("chroma_stride", ctypes.c_int * 2),
    )


class _StatisticPass(ctypes.Structure):
    _fields_ = (
        ("src", ctypes.c_uint64),
        ("src_stride", ctypes.c_int),
        ("size", ctypes.c_int * 2),
        ("needed", _Rows),
        ("made", _Rows),
        ("workers", ctypes.c_int),
    )


class _EgressPass(ctypes.Structure):
    _fields_ = (
        ("src", ctypes.c_uint64),
        ("stride", ctypes.c_int),
        ("row_bytes", ctypes.c_int),
        ("bytes", ctypes.c_longlong),
        ("needed", _Rows),
        ("workers", ctypes.c_int),
    )


class _Frame(ctypes.Structure):
    _fields_ = (
        ("tickets", ctypes.c_uint64),
        ("plan", ctypes.c_uint64),
        ("planes", ctypes.c_uint64 * 3),
        ("result", ctypes.c_uint64),
        ("first_ticket", ctypes.c_uint32),
        ("number", ctypes.c_uint32),
        ("texts", ctypes.c_char * MAX_TEXT_BYTES * MAX_TEXTS),
    )


_AnyPass = _IngestPass | _StatisticPass | _TilePass | _EgressPass

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
        if change is None and device.integrated:
            # The GPU's own memory is no quicker than the slots: a picture more only costs bandwidth.
            change = reads_in_place
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
        self._frame = _Frame(number=0, first_ticket=0)
        self._arguments = (ctypes.c_void_p * 1)(ctypes.addressof(self._frame))
        self._memory: list[DeviceMemory] = []
        try:
            self._allocate()
        except BaseException:
            self.close()
            raise
        self._clock = _Clock(wait)
        self._applied: tuple[OpParams, ...] | None = None
        self._accepted = (plan.source, plan.result)
        self._texts = text_ops(plan)
        self._launched = 0
        self._grid = 0
        self._shared_bytes = 0
        self._most_shared_bytes = 48 << 10  # what every device gives without being asked

    def _allocate(self) -> None:
        """Memory of the plan's block, the counters (zero), each picture between two passes, and what ops keep."""
        from cupy.cuda import runtime

        plan, ledger = self._plan, self._device.ledger
        self._block_bytes = params_offset(plan, len(plan.ops))
        counters = [
            1 if one.kind is PassKind.STATISTIC else -(-plan.pictures[one.last].height // BAND_ROWS)
            for one in plan.passes
        ]
        counter_bytes = 4 * (1 + sum(counters))
        memory = DeviceMemory(align_up(self._block_bytes, 256) + counter_bytes, ledger)
        self._memory.append(memory)
        self._frame.plan, self._frame.tickets = memory.ptr, memory.ptr + align_up(self._block_bytes, 256)
        with cuda_errors("cudaMemset"):
            runtime.memsetAsync(self._frame.tickets, 0, counter_bytes, self._stream.ptr)
        self._finished = [self._frame.tickets + 4 * (1 + sum(counters[:i])) for i in range(len(counters))]
        self._scratch: dict[int, int] = {}  # the pictures that passes make, by the pass
        for number, one in enumerate(plan.passes):
            if not one.to_result and one.kind is not PassKind.STATISTIC:
                self._memory.append(DeviceMemory(align_up(plan.pictures[one.last].nbytes, 256), ledger))
                self._scratch[number] = self._memory[-1].ptr
        self._states: dict[int, int] = {}  # what temporal and global ops keep, by their place in the chain
        for index, (op, picture) in enumerate(zip(plan.ops, plan.pictures, strict=False)):
            channels = picture.format.channels
            if isinstance(op, TemporalOp):
                nbytes = picture.width * picture.height * op.state_bytes(channels)
            elif isinstance(op, StatisticOp):
                nbytes = 256 * channels * 5 + 4
            else:
                continue
            self._memory.append(DeviceMemory(align_up(nbytes, 256), ledger))
            self._states[index] = self._memory[-1].ptr
            with cuda_errors("cudaMemset"):
                runtime.memsetAsync(self._states[index], 0, nbytes, self._stream.ptr)

    def submit(
        self, source: ImageView, result: ImageView, params: tuple[OpParams, ...], stamp: Stamp = NO_STAMP
    ) -> Completion:
        plan = self.plan
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

        plan = self._plan
        block = bytearray(self._block_bytes)
        passes: list[_AnyPass] = []
        shared = [shared_bytes(plan, one, params) for one in plan.passes]
        workers = self._share_blocks(max(shared))
        for index, one in enumerate(plan.passes):
            made = self._make_pass(index, params, workers[index])
            passes.append(made)
            block[PASS_BYTES * index : PASS_BYTES * index + ctypes.sizeof(made)] = bytes(made)
            for stage in stages(plan, one):
                if stage.op is not None:
                    self._put(block, stage.op, plan.ops[stage.op].constants(params[stage.op]))
                if stage.tables:
                    table = bytes(range(256))
                    for op_index in stage.tables:
                        table = table.translate(plan.ops[op_index].constants(params[op_index]))
                    self._put(block, stage.tables[0], table)
        staged = (ctypes.c_uint8 * len(block)).from_buffer(block)
        with cuda_errors("cudaMemcpyAsync"):
            # From ordinary memory: it is read before the call returns.
            runtime.memcpyAsync(
                self._frame.plan, ctypes.addressof(staged), len(block), runtime.memcpyHostToDevice, self._stream.ptr
            )
        if max(shared) > self._most_shared_bytes:
            with cuda_errors("cuFuncSetAttribute"):
                attribute = driver.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
                driver.funcSetAttribute(self._function, attribute, max(shared))
            self._most_shared_bytes = max(shared)
        self._shared_bytes = max(shared)
        self._grid = sum(workers)
        self._applied = params

    def _put(self, block: bytearray, op: int, constants: bytes) -> None:
        at = params_offset(self._plan, op)
        assert len(constants) <= (STATE_AT if op in self._states else OP_BYTES)
        block[at : at + len(constants)] = constants
        if op in self._states:
            block[at + STATE_AT : at + OP_BYTES] = self._states[op].to_bytes(8, "little")

    def _share_blocks(self, shared_bytes: int) -> list[int]:
        """How many blocks work for each pass: all fit the device at once, and no pass has more than it has work."""
        plan, device = self._plan, self._device
        fit = max(1, min(_BLOCKS_PER_MULTIPROCESSOR, device.shared_bytes // (shared_bytes + 1024)))
        room = device.multiprocessors * fit
        kinds = [one.kind for one in plan.passes]
        readers = min(_READ_BLOCKS, room // 4) if PassKind.INGEST in kinds else 0
        writers = min(_WRITE_BLOCKS, room // 4) if PassKind.EGRESS in kinds else 0
        computing = (room - readers - writers) // max(kinds.count(PassKind.TILES) + kinds.count(PassKind.STATISTIC), 1)
        if readers:
            computing = min(computing, device.multiprocessors * _COMPUTING_BLOCKS_PER_MULTIPROCESSOR)
        most = {
            PassKind.INGEST: readers,
            PassKind.STATISTIC: min(computing, _COUNTING_BLOCKS),
            PassKind.TILES: computing,
            PassKind.EGRESS: writers,
        }
        return [max(1, min(most[one.kind], pieces(plan, one))) for one in plan.passes]

    def _rows(self, number: int) -> _Rows:
        """How what pass ``number`` makes is handed over."""
        plan = self._plan
        one = plan.passes[number]
        if one.kind is PassKind.STATISTIC:
            return _Rows(self._finished[number], 1, 1)
        picture = plan.pictures[one.last]
        width = SEGMENT_PX if one.kind is PassKind.INGEST else tile_width_px(plan, one)
        return _Rows(self._finished[number], -(-picture.width // width), picture.height)

    def _source(self, number: int) -> tuple[int, int, _Rows]:
        """Where the picture lies that pass ``number`` reads, its stride, and how it is handed over; 0 is the slot."""
        plan = self._plan
        maker = number - 1
        while maker >= 0 and plan.passes[maker].kind is PassKind.STATISTIC:
            maker -= 1
        if maker < 0:
            return 0, plan.source.strides[0], _Rows()
        return self._scratch[maker], plan.pictures[plan.passes[maker].last].strides[0], self._rows(maker)

    def _make_pass(self, number: int, params: tuple[OpParams, ...], workers: int) -> _AnyPass:
        plan = self._plan
        one = plan.passes[number]
        before, after = plan.pictures[one.first], plan.pictures[one.last]
        made = _Rows() if one.to_result else self._rows(number)
        dst = self._scratch.get(number, 0)
        dst_stride = plan.result.strides[0] if one.to_result else after.strides[0]
        if one.kind is PassKind.INGEST:
            source = plan.source
            c = yuv_coefficients(source.matrix, source.range)
            ingest = _IngestPass(
                dst=dst, dst_stride=dst_stride, width=source.width, height=source.height, made=made, workers=workers,
                y_offset=c.y_offset, y=c.y, bu=c.bu, gu=c.gu, gv=c.gv, rv=c.rv,
            )  # fmt: skip
            ingest.strides[: len(source.strides)] = source.strides
            return ingest
        src, src_stride, needed = self._source(number)
        if one.kind is PassKind.STATISTIC:
            size = before.width, before.height
            return _StatisticPass(src=src, src_stride=src_stride, size=size, needed=needed, made=made, workers=workers)
        if one.kind is PassKind.EGRESS:
            row_bytes = plan.result.strides[0]
            return _EgressPass(
                src=src, stride=src_stride, row_bytes=row_bytes, bytes=plan.result.nbytes,
                needed=needed, workers=workers,
            )  # fmt: skip
        geometry = tile_geometry(plan, one, params)
        tiles = _TilePass(
            src=src, dst=dst, src_stride=src_stride, dst_stride=dst_stride,
            src_size=(before.width, before.height), size=(after.width, after.height),
            needed=needed, made=made, workers=workers,
            halo=geometry.halo, margin=geometry.margin, buffer_bytes=geometry.buffer_bytes,
        )  # fmt: skip
        around = radii(plan, one, params)
        tiles.radius[: len(around)] = around
        if one.to_result:
            result = plan.result
            tiles.chroma_offset[: len(result.offsets) - 1] = [at - result.offsets[0] for at in result.offsets[1:]]
            tiles.chroma_stride[: len(result.strides) - 1] = result.strides[1:]
        return tiles


# A frame that takes no longer is waited for with a core, by "auto": sleeping and waking up would cost as much again.
SPIN_AT_MOST_NS = 2_000_000


class _Events:
    """A pair of timing events, used again once its frame is done."""

    def __init__(self, block: bool) -> None:
        from cupy.cuda import Event

        self.block = block
        self.start = Event(block=block)
        self.end = Event(block=block)


class _Clock:
    """The events of an executor's frames, and how they are waited for: asleep or with a core."""

    def __init__(self, wait: WaitMode) -> None:
        self._wait = wait
        self._spare: dict[bool, list[_Events]] = {True: [], False: []}
        self._usual_ns = 0

    def take(self) -> _Events:
        block = self._wait == "block" or (self._wait == "auto" and self._usual_ns > SPIN_AT_MOST_NS)
        spare = self._spare[block]
        return spare.pop() if spare else _Events(block)

    def give_back(self, events: _Events, taken_ns: int) -> None:
        self._usual_ns = (7 * self._usual_ns + taken_ns) // 8
        self._spare[events.block].append(events)


class CudaCompletion:
    """Done when the frame's end event is reached. Any thread may ask."""

    def __init__(self, events: _Events, clock: _Clock) -> None:
        self._lock = threading.Lock()
        self._events: _Events | None = events
        self._end = events.end
        self._clock = clock
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
                    self._clock.give_back(self._events, self._gpu_ns)
                    self._events = None
        return self._gpu_ns
