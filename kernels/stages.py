"""What a plan's passes do, stage by stage, and where their values lie in the plan's block of device memory. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kernels.formats import PixelFormat
from kernels.op import ComponentsOp, OpKind, StatisticOp, TableOp, TemporalOp, TextOp
from kernels.plan import Pass, PassKind, Plan

# The block (flow.cuh): passes, then ops.
PASS_BYTES = 256
OP_BYTES = 1024
TABLE_BYTES = 256
WIDE_TABLE_BYTES = 2 * 65536  # of values of 16 bits: behind the ops, and read where it lies
STATE_AT = OP_BYTES - 8  # in an op's block: the address of what a temporal op remembers, or a global op has found


@dataclass(frozen=True, slots=True)
class Stage:
    """What one sweep over a tile does: an op that is no table, or none, and then a table of all ``tables`` in a row."""

    op: int | None
    tables: tuple[int, ...]


def stages(plan: Plan, one: Pass) -> list[Stage]:
    """The sweeps of a pass: tables ride on the op before them, as one table however many they are."""
    found: list[Stage] = []
    for index in range(one.first, one.last):
        if not isinstance(plan.ops[index], TableOp):
            found.append(Stage(index, ()))
        elif found:
            found[-1] = Stage(found[-1].op, (*found[-1].tables, index))
        else:
            found.append(Stage(None, (index,)))
    return found


def tables_bytes(plan: Plan, one: Pass) -> int:
    """Shared memory that a pass's tables of bytes take, before its buffers: one for each sweep, and a global op's."""
    count = sum(1 for stage in stages(plan, one) if stage.tables and not is_wide(plan, stage.tables[0]))
    if one.first < one.last and isinstance(plan.ops[one.first], StatisticOp):
        count += plan.pictures[one.first].format.channels
    return TABLE_BYTES * count


def gathers(plan: Plan, one: Pass) -> bool:
    """True for a pass over tiles that does not load them: its first op takes its pixels from elsewhere."""
    if one.kind is not PassKind.TILES or one.first == one.last:
        return False
    return plan.ops[one.first].kind is OpKind.GATHER or isinstance(plan.ops[one.first], ComponentsOp)


def tile_width_px(plan: Plan, one: Pass) -> int:
    """How wide the tiles of a pass are: 384 bytes of its widest pixels, three lines of the link."""
    pictures = plan.pictures[one.first : one.last + 1]
    # A gather's own input is not held in tiles.
    if gathers(plan, one):
        pictures = pictures[1:]
    return 384 // max(picture.format.pixel_bytes for picture in pictures)


def is_wide(plan: Plan, index: int) -> bool:
    """True if the op at that place of the chain is given values of 16 bits; behind the last one, the result."""
    return plan.pictures[index].format.depth == 16


def wide_tables(plan: Plan) -> dict[int, int]:
    """Where tables for values of 16 bits lie in the plan's block, by the place in the chain of the first in a row."""
    firsts = [stage.tables[0] for one in plan.passes for stage in stages(plan, one) if stage.tables]
    start = params_offset(plan, len(plan.ops))
    wide = [first for first in firsts if is_wide(plan, first)]
    return {first: start + WIDE_TABLE_BYTES * number for number, first in enumerate(wide)}


def state_bytes(op: TemporalOp[Any], format: PixelFormat) -> int:
    """Bytes that an op remembers of each pixel of a picture of that format."""
    return op.state_bytes(format.channels) * format.value_bytes


def block_bytes(plan: Plan) -> int:
    """How long the plan's block is."""
    return params_offset(plan, len(plan.ops)) + WIDE_TABLE_BYTES * len(wide_tables(plan))


def params_offset(plan: Plan, index: int) -> int:
    """Where the parameters of an op lie in the plan's block of device memory."""
    return PASS_BYTES * len(plan.passes) + OP_BYTES * index


def text_ops(plan: Plan) -> list[tuple[int, TextOp[Any]]]:
    """The ops that have a text, with their places in the chain: text n of a frame is that of the n-th."""
    return [(index, op) for index, op in enumerate(plan.ops) if isinstance(op, TextOp)]


def pass_name(plan: Plan, index: int) -> str:
    """A name for people and profilers: ``pass1_gaussian_blur_gamma``."""
    one = plan.passes[index]
    head = f"ingest_{plan.source.format.name.lower()}" if one.kind is PassKind.INGEST else f"pass{index}"
    if one.kind is PassKind.EGRESS:
        return "egress"
    if one.kind is PassKind.STATISTIC:
        return f"{head}_statistic_of_{plan.ops[one.first].name}"
    if not one.kind.makes_picture:
        return f"{head}_{one.kind.value}_{plan.ops[one.first].name}"
    return "_".join([head, *(op.name for op in plan.ops[one.first : one.last])])
