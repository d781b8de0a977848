"""How a pass lies over its picture: halos, tiles, pieces of work, shared memory.

Pure; the executor and what explains a plan share it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from kernels.image import align_up
from kernels.op import LocalStatisticOp, MorphologyOp, OpKind, OpParams, SeparableOp
from kernels.plan import Pass, PassKind, Plan
from kernels.stages import is_wide, tables_bytes, tile_width_px

# The constants of kernels/cuda/*.cuh that decide a launch.
THREADS = 256
BAND_ROWS = 16
SEGMENT_PX, WIDE_SEGMENT_PX, SEGMENT_ROWS = 512, 256, 2
SLACK_ROWS = 3  # a group of four rows may reach beyond a tile
MARK_HALO = 2
JOIN_PX = 1024  # that a block joins at once
EGRESS_BYTES = 64 * THREADS  # that a block writes at once


@dataclass(frozen=True, slots=True)
class TileGeometry:
    """Halo and margin of a tile in pixels, and the bytes of each of its two buffers (tile.cuh, stencil.cuh)."""

    halo: int
    margin: int
    buffer_bytes: int


def radii(plan: Plan, one: Pass, params: tuple[OpParams, ...]) -> list[int]:
    """How many pixels around a pixel each stencil of a pass reads, in order."""
    ops = plan.ops
    return [ops[i].radius(params[i]) for i in range(one.first, one.last) if ops[i].kind is OpKind.STENCIL]


def segment_px(plan: Plan) -> int:
    """How many pixels of a row an ingest takes at once."""
    return WIDE_SEGMENT_PX if is_wide(plan, 0) else SEGMENT_PX


def tile_geometry(plan: Plan, one: Pass, params: tuple[OpParams, ...]) -> TileGeometry:
    """What a pass over tiles holds in shared memory."""
    around = radii(plan, one, params)
    halo = MARK_HALO if one.kind is PassKind.MARK else sum(around)
    # Stages work on whole quads of bytes, on either side up to six bytes more than their windows read.
    margin = align_up(halo + 6, 16)
    if is_wide(plan, one.first):
        # One value at a time; but a tile is moved in whole words, and so many pixels are whole words.
        margin = align_up(halo, 8 if is_wide(plan, one.last) else 16)
    width = tile_width_px(plan, one)
    channels = 384 // width
    nbytes = (BAND_ROWS + 2 * halo + SLACK_ROWS) * (width + 2 * margin) * channels
    left = halo
    stencils = [i for i in range(one.first, one.last) if plan.ops[i].kind is OpKind.STENCIL]
    for index, radius in zip(stencils, around, strict=True):
        left -= radius
        if isinstance(plan.ops[index], (SeparableOp, MorphologyOp)) and is_wide(plan, index):
            # Sums of 32 bits.
            columns = (width + 2 * (left + radius)) * plan.pictures[index].format.channels
            nbytes = max(nbytes, 4 * (BAND_ROWS + 2 * left) * columns)
        elif isinstance(plan.ops[index], (SeparableOp, MorphologyOp)):
            # Sums of 16 bits; a morphology's values fit there anyway.
            seen = plan.pictures[index].format.channels
            side = align_up(left * seen, 4) + align_up(radius * seen, 4)
            rows = BAND_ROWS + 2 * left + SLACK_ROWS
            nbytes = max(nbytes, 2 * rows * (width * seen + 2 * side))
    return TileGeometry(halo, margin, align_up(nbytes, 16))


def pieces(plan: Plan, one: Pass, params: tuple[OpParams, ...]) -> int:
    """Into how many pieces a pass cuts its picture: one block works on one at a time."""
    picture = plan.pictures[one.last]
    if one.kind is PassKind.INGEST:
        return -(-picture.width // segment_px(plan)) * -(-picture.height // SEGMENT_ROWS)
    if one.kind in (PassKind.TILES, PassKind.MARK):
        return -(-picture.width // tile_width_px(plan, one)) * -(-picture.height // BAND_ROWS)
    if one.kind is PassKind.JOIN:
        return -(-picture.width * picture.height // JOIN_PX)
    if one.kind is PassKind.STATISTIC:
        op = plan.ops[one.first]
        if isinstance(op, LocalStatisticOp):
            return math.prod(op.grid(params[one.first]))
        return -(-picture.height // BAND_ROWS)
    return -(-plan.result.nbytes // EGRESS_BYTES)


def shared_bytes(plan: Plan, one: Pass, params: tuple[OpParams, ...]) -> int:
    """Shared memory that a block of a pass needs; the launch takes the largest of all passes."""
    if one.kind in (PassKind.EGRESS, PassKind.JOIN):
        return 0
    if one.kind is PassKind.MARK:
        measures = 4 * (BAND_ROWS + 2) * (tile_width_px(plan, one) + 2)
        return tile_geometry(plan, one, params).buffer_bytes + measures
    if one.kind is PassKind.STATISTIC:
        return 1024 * plan.pictures[one.first].format.channels
    buffers = (
        # Two pictures, and the words of the largest format's segments.
        2 * SEGMENT_ROWS * SEGMENT_PX * 3 + 2 * (3 * SEGMENT_PX + 16)
        if one.kind is PassKind.INGEST
        else 2 * tile_geometry(plan, one, params).buffer_bytes
    )
    return tables_bytes(plan, one) + buffers
