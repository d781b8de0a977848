"""Pieces of CUDA text that several passes are made of."""

from __future__ import annotations

from collections.abc import Iterator

from kernels.op import SeparableOp, TextOp
from kernels.plan import Pass, PassKind, Plan
from kernels.stages import STATE_AT, TABLE_BYTES, is_wide, params_offset, stages, text_ops, wide_tables

_TYPES = {
    PassKind.INGEST: "IngestPass",
    PassKind.STATISTIC: "StatisticPass",
    PassKind.MARK: "TilePass",
    PassKind.JOIN: "StatisticPass",
    PassKind.TILES: "TilePass",
    PassKind.EGRESS: "EgressPass",
}


def pass_args(plan: Plan, index: int) -> str:
    """What the plan's block holds for a pass."""
    return f"(*reinterpret_cast<const {_TYPES[plan.passes[index].kind]}*>(f.plan + {index} * PASS_BYTES))"


def load_tables(plan: Plan, one: Pass) -> Iterator[str]:
    """Load the tables of a pass into shared memory, as ``table0`` and so on; those of 16 bits stay where they lie."""
    made = [stage.tables for stage in stages(plan, one) if stage.tables]
    loaded = 0
    for number, tables in enumerate(made):
        names = " | ".join(plan.ops[index].name for index in tables)
        if is_wide(plan, tables[0]):
            where = f"f.plan + {wide_tables(plan)[tables[0]]}"
            yield f"const uint16* table{number} = reinterpret_cast<const uint16*>({where});  // {names}"
            continue
        offset = params_offset(plan, tables[0])
        yield f"uint8* table{number} = shared_memory + {TABLE_BYTES * loaded};  // {names}"
        yield f"table{number}[threadIdx.x] = f.plan[{offset} + threadIdx.x];"
        loaded += 1
    if loaded:
        yield "__syncthreads();"


def op_params(plan: Plan, index: int) -> str:
    """The declaration of ``pN``, the parameters of the op at place N of the chain."""
    op = plan.ops[index]
    type_name = "Taps" if isinstance(op, SeparableOp) and not op.cuda_source else f"{op.name}_params"
    return (
        f"const {type_name}& p{index} = *reinterpret_cast<const {type_name}*>(f.plan + {params_offset(plan, index)});"
    )


def state_address(plan: Plan, index: int, type_name: str) -> str:
    """The address of what an op keeps in device memory."""
    types = template_types(plan, index)
    return f"*reinterpret_cast<{type_name}<{types}>* const*>(f.plan + {params_offset(plan, index) + STATE_AT})"


def template_types(plan: Plan, index: int) -> str:
    """What the op at place ``index`` sees: ``3``, or ``3, uint16``."""
    return f"{plan.pictures[index].format.channels}{', uint16' if is_wide(plan, index) else ''}"


def as_values(plan: Plan, index: int, address: str) -> str:
    """The address of bytes as that of values that the op at place ``index`` is given."""
    return f"reinterpret_cast<uint16*>({address})" if is_wide(plan, index) else address


def value_type(plan: Plan, index: int) -> str:
    """The type of the values that the op at place ``index`` is given."""
    return "uint16" if is_wide(plan, index) else "uint8"


def pixel_function(plan: Plan, index: int) -> str:
    """A pixel op with its parameters (and text) bound, as ``make_pixels`` calls it."""
    op, channels = plan.ops[index], plan.pictures[index].format.channels
    text = f" f.texts[{[at for at, _ in text_ops(plan)].index(index)}]," if isinstance(op, TextOp) else ""
    types, value = template_types(plan, index), value_type(plan, index)
    return (
        f"[&](const Picture<{types}>& in, int x, int y, Size size, {value}* out) "
        f"{{ {op.name}<{channels}>(in, x, y, size, p{index},{text} out); }}"
    )
