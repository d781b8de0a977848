"""A plan's block of device memory: what passes and ops read besides pixels, laid out as kernels/cuda/*.cuh have it."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from kernels.errors import InputError
from kernels.formats import yuv_coefficients
from kernels.geometry import pieces, radii, segment_px, shared_bytes, tile_geometry
from kernels.image import Values
from kernels.op import OpParams, TableOp, joined, of_previous
from kernels.plan import PassKind, Plan
from kernels.stages import (
    OP_BYTES,
    PASS_BYTES,
    STATE_AT,
    WIDE_TABLE_BYTES,
    block_bytes,
    params_offset,
    stages,
    tile_width_px,
    wide_tables,
)

# The constants of kernels/cuda/*.cuh that decide a launch, beside those of kernels.geometry.
MAX_STENCILS = 16
BLOCKS_PER_MULTIPROCESSOR = 4  # what the kernel's registers are limited for
# What fills the link, and computes as fast as it brings rows, measured (DESIGN.md); more are only in each other's way.
READ_BLOCKS = 96
WRITE_BLOCKS = 32
COUNTING_BLOCKS = 64
COMPUTING_BLOCKS_PER_MULTIPROCESSOR = 2


class Rows(ctypes.Structure):
    _fields_ = (("finished", ctypes.c_uint64), ("across", ctypes.c_int), ("height", ctypes.c_int))


class IngestPass(ctypes.Structure):
    _fields_ = (
        ("dst", ctypes.c_uint64),
        ("strides", ctypes.c_int * 3),
        ("dst_stride", ctypes.c_int),
        ("width", ctypes.c_int),
        ("height", ctypes.c_int),
        *((name, ctypes.c_int) for name in ("y_offset", "y", "bu", "gu", "gv", "rv")),
        ("made", Rows),
        ("workers", ctypes.c_int),
    )


class TilePass(ctypes.Structure):
    _fields_ = (
        ("src", ctypes.c_uint64),
        ("dst", ctypes.c_uint64),
        ("src_stride", ctypes.c_int),
        ("dst_stride", ctypes.c_int),
        ("src_size", ctypes.c_int * 2),
        ("size", ctypes.c_int * 2),
        ("needed", Rows),
        ("made", Rows),
        ("workers", ctypes.c_int),
        ("halo", ctypes.c_int),
        ("margin", ctypes.c_int),
        ("buffer_bytes", ctypes.c_int),
        ("radius", ctypes.c_int * MAX_STENCILS),
        ("chroma_offset", ctypes.c_int * 2),
        ("chroma_stride", ctypes.c_int * 2),
    )


class StatisticPass(ctypes.Structure):
    _fields_ = (
        ("src", ctypes.c_uint64),
        ("src_stride", ctypes.c_int),
        ("size", ctypes.c_int * 2),
        ("needed", Rows),
        ("made", Rows),
        ("workers", ctypes.c_int),
        ("previous", ctypes.c_int),
    )


class EgressPass(ctypes.Structure):
    _fields_ = (
        ("src", ctypes.c_uint64),
        ("stride", ctypes.c_int),
        ("row_bytes", ctypes.c_int),
        ("bytes", ctypes.c_longlong),
        ("needed", Rows),
        ("workers", ctypes.c_int),
    )


AnyPass = IngestPass | StatisticPass | TilePass | EgressPass


@dataclass(frozen=True, slots=True)
class Layout:
    """What parameter values make of a launch: the plan's block, the grid, and a thread block's shared memory."""

    block: bytes
    grid: int
    shared_bytes: int


class PlanBlock:
    """Lays out a plan's block for an executor's addresses. Pure; not thread-safe.

    ``finished`` are the counters of the pass's rows, ``scratch`` the pictures that passes make, both by the pass;
    ``states`` what temporal and global ops keep, by their place in the chain: all device addresses.
    """

    def __init__(
        self,
        plan: Plan,
        multiprocessors: int,
        shared_per_multiprocessor: int,
        finished: Sequence[int],
        scratch: Mapping[int, int],
        states: Mapping[int, int],
    ) -> None:
        self._plan = plan
        self._multiprocessors = multiprocessors
        self._shared_per_multiprocessor = shared_per_multiprocessor
        self._finished, self._scratch, self._states = finished, scratch, states

    def lay_out(self, params: tuple[OpParams, ...]) -> Layout:
        """The block for these values.

        Raises:
            InputError: the values are not those of the plan's ops, or an op's constants are longer than their place.
        """
        plan = self._plan
        if tuple(type(values) for values in params) != tuple(op.Params for op in plan.ops):
            got = ", ".join(type(values).__name__ for values in params) or "none"
            raise InputError("params", f"got {got}", ", ".join(op.Params.__name__ for op in plan.ops) or "none")
        block, wide = bytearray(block_bytes(plan)), wide_tables(plan)
        shared = max(shared_bytes(plan, one, params) for one in plan.passes)
        workers = self._share_blocks(shared, params)
        for index, one in enumerate(plan.passes):
            made = self._make_pass(index, params, workers[index])
            block[PASS_BYTES * index : PASS_BYTES * index + ctypes.sizeof(made)] = bytes(made)
            for stage in stages(plan, one):
                if stage.op is not None:
                    self._put(block, stage.op, plan.ops[stage.op].constants(params[stage.op]))
                if not stage.tables:
                    continue
                first = stage.tables[0]
                table = self._table(stage.tables, params)
                if first in wide:
                    # Two bytes an entry, also where they lead to 8 bits.
                    block[wide[first] : wide[first] + WIDE_TABLE_BYTES] = table.astype(np.uint16).tobytes()
                else:
                    self._put(block, first, table.tobytes())
        return Layout(bytes(block), sum(workers), shared)

    def _table(self, indices: tuple[int, ...], params: tuple[OpParams, ...]) -> Values:
        """One table of all in a row."""
        ops = [op for index in indices if isinstance(op := self._plan.ops[index], TableOp)]
        return joined(ops, [params[index] for index in indices], self._plan.pictures[indices[0]].format.depth)

    def _put(self, block: bytearray, op: int, constants: bytes) -> None:
        at, most = params_offset(self._plan, op), STATE_AT if op in self._states else OP_BYTES
        if len(constants) > most:
            name = self._plan.ops[op].name
            raise InputError(name, f"its constants are {len(constants)} bytes long", f"at most {most}")
        block[at : at + len(constants)] = constants
        if op in self._states:
            block[at + STATE_AT : at + OP_BYTES] = self._states[op].to_bytes(8, "little")

    def _share_blocks(self, shared: int, params: tuple[OpParams, ...]) -> list[int]:
        """How many thread blocks work for each pass: one or more, none without work, about what fits the device."""
        plan = self._plan
        fit = max(1, min(BLOCKS_PER_MULTIPROCESSOR, self._shared_per_multiprocessor // (shared + 1024)))
        room = self._multiprocessors * fit
        kinds = [one.kind for one in plan.passes]
        readers = min(READ_BLOCKS, room // 4) if PassKind.INGEST in kinds else 0
        writers = min(WRITE_BLOCKS, room // 4) if PassKind.EGRESS in kinds else 0
        others = len(kinds) - kinds.count(PassKind.INGEST) - kinds.count(PassKind.EGRESS)
        computing = (room - readers - writers) // max(others, 1)
        if readers:
            computing = min(computing, self._multiprocessors * COMPUTING_BLOCKS_PER_MULTIPROCESSOR)
        most = {
            PassKind.INGEST: readers,
            PassKind.STATISTIC: min(computing, COUNTING_BLOCKS),
            PassKind.MARK: computing,
            PassKind.JOIN: computing,
            PassKind.TILES: computing,
            PassKind.EGRESS: writers,
        }
        return [max(1, min(most[one.kind], pieces(plan, one, params))) for one in plan.passes]

    def rows(self, number: int) -> Rows:
        """How what pass ``number`` makes is handed over."""
        plan = self._plan
        one = plan.passes[number]
        if one.kind in (PassKind.STATISTIC, PassKind.JOIN):
            return Rows(self._finished[number], 1, 1)
        picture = plan.pictures[one.last]
        width = segment_px(plan) if one.kind is PassKind.INGEST else tile_width_px(plan, one)
        return Rows(self._finished[number], -(-picture.width // width), picture.height)

    def _source(self, number: int) -> tuple[int, int, Rows]:
        """Where the picture lies that pass ``number`` reads, its stride, and how it is handed over; 0 is the slot."""
        plan = self._plan
        maker = number - 1
        while maker >= 0 and not plan.passes[maker].kind.makes_picture:
            maker -= 1
        if maker < 0:
            return 0, plan.source.strides[0], Rows()
        return self._scratch[maker], plan.pictures[plan.passes[maker].last].strides[0], self.rows(maker)

    def _make_pass(self, number: int, params: tuple[OpParams, ...], workers: int) -> AnyPass:
        plan = self._plan
        one = plan.passes[number]
        before, after = plan.pictures[one.first], plan.pictures[one.last]
        made = Rows() if one.to_result else self.rows(number)
        dst = self._scratch.get(number, 0)
        dst_stride = plan.result.strides[0] if one.to_result else after.strides[0]
        if one.kind is PassKind.INGEST:
            source = plan.source
            c = yuv_coefficients(source.matrix, source.range)
            ingest = IngestPass(
                dst=dst, dst_stride=dst_stride, width=source.width, height=source.height, made=made, workers=workers,
                y_offset=c.y_offset, y=c.y, bu=c.bu, gu=c.gu, gv=c.gv, rv=c.rv,
            )  # fmt: skip
            ingest.strides[: len(source.strides)] = source.strides
            return ingest
        src, src_stride, needed = self._source(number)
        if one.kind is PassKind.JOIN:
            needed = self.rows(number - 1)
        if one.kind in (PassKind.STATISTIC, PassKind.JOIN):
            size = before.width, before.height
            return StatisticPass(
                src=src, src_stride=src_stride, size=size, needed=needed, made=made, workers=workers,
                previous=of_previous(params[one.first]),
            )  # fmt: skip
        if one.kind is PassKind.EGRESS:
            row_bytes = plan.result.strides[0]
            return EgressPass(
                src=src, stride=src_stride, row_bytes=row_bytes, bytes=plan.result.nbytes,
                needed=needed, workers=workers,
            )  # fmt: skip
        geometry = tile_geometry(plan, one, params)
        tiles = TilePass(
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
