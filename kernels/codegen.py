"""Plan → CUDA text: the shared headers by name, a function for each pass, one kernel that runs them side by side."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from importlib import resources

from kernels.cuda_parts import (
    as_values,
    load_tables,
    op_params,
    pass_args,
    pixel_function,
    state_address,
    template_types,
)
from kernels.cuda_tiles import TileText
from kernels.op import LocalStatisticOp, PixelOp
from kernels.plan import PassKind, Plan
from kernels.source_lines import cuda_text, marked
from kernels.stages import is_wide, pass_name, stages, tables_bytes, tile_width_px

KERNEL_NAME = "frame"


@cache
def headers() -> dict[str, str]:
    """The shared device code by the name it is included under (``pinhole/common.cuh``)."""
    folder = resources.files("kernels").joinpath("cuda")
    return {
        f"pinhole/{entry.name}": entry.read_text(encoding="utf-8")
        for entry in sorted(folder.iterdir(), key=lambda e: e.name)
        if entry.name.endswith(".cuh")
    }


def generate(plan: Plan) -> str:
    """The CUDA C++ text of a plan; the same for all sizes (whole words or not) and parameter values."""
    parts = [f'#include "{name}"' for name in headers()]
    # #line makes the compiler name the op's own file and line in its messages.
    parts.extend({op.name: marked(op) for op in plan.ops if cuda_text(op)}.values())
    parts.append('#line 1 "generated"')
    for index, one in enumerate(plan.passes):
        maker = _MAKERS[one.kind]
        head = f"__device__ __forceinline__ void {pass_name(plan, index)}(const Frame& f, int worker) {{"
        parts.append("\n".join([head, *("  " + line for line in maker(plan, index)), "}"]))
    parts.append("\n".join(_kernel(plan)))
    return "\n\n".join(parts) + "\n"


def _kernel(plan: Plan) -> Iterator[str]:
    # Four blocks a multiprocessor: left to itself, the compiler takes registers until two are left.
    yield f'extern "C" __global__ void __launch_bounds__(THREADS, 4) {KERNEL_NAME}(const __grid_constant__ Frame f) {{'
    yield "  int worker = take_ticket(f);"
    for index in range(len(plan.passes)):
        workers = f"{pass_args(plan, index)}.workers"
        yield f"  if (worker < {workers}) return {pass_name(plan, index)}(f, worker);"
        yield f"  worker -= {workers};"
    yield "}"


def _ingest(plan: Plan, number: int) -> Iterator[str]:
    one = plan.passes[number]
    out = plan.pictures[one.last].format.pixel_bytes
    wide = is_wide(plan, 0)
    px = "WIDE_SEGMENT_PX" if wide else "SEGMENT_PX"
    yield f"const IngestPass pass = {pass_args(plan, number)};"
    yield from load_tables(plan, one)
    for index in range(one.first, one.last):
        if isinstance(plan.ops[index], PixelOp):
            yield op_params(plan, index)
    memory = f"shared_memory + {tables_bytes(plan, one)}"
    departs = plan.departs and number == len(plan.passes) - 1
    crosses = f", {plan.awaits_source:d}, {departs:d}" if plan.awaits_source or departs else ""
    head = f"ingest<{plan.source.format.name.capitalize()}, {out}{crosses}>(f, pass, worker, {memory}, "
    yield head + "[&](uint8* picture, uint8* spare, int x0, int y0) -> const uint8* {"
    yield "  const Size size{pass.width, pass.height};"
    here, there, table = "picture", "spare", 0
    for stage in stages(plan, one):
        if stage.op is not None:
            before, after = (plan.pictures[stage.op + k].format.channels for k in (0, 1))
            to = here if before == after else there
            of, made = (as_values(plan, stage.op, name) for name in (here, to))
            yield f"  // {plan.ops[stage.op].name}"
            yield f"  make_pixels<{before}, {after}>("
            seen = f"Picture<{template_types(plan, stage.op)}>"
            yield f"      {seen}{{{of} - (long long)y0 * {px} * {before} - x0 * {before},"
            yield f"                {px} * {before}, size}},"
            yield f"      {made}, {px} * {after}, x0, y0, 0, {px}, 0, SEGMENT_ROWS, size,"
            yield f"      {pixel_function(plan, stage.op)});"
            yield "  __syncthreads();"
            if before != after:
                here, there = there, here
        if stage.tables:
            first, end = stage.tables[0], stage.tables[-1] + 1
            channels = plan.pictures[end].format.channels
            if is_wide(plan, first):
                of, made = as_values(plan, first, here), as_values(plan, end, there)
                yield f"  look_up_rows_wide<{channels}>({of}, {made}, table{table});"
                here, there = there, here
            else:
                yield f"  look_up_rows<{channels}{f', {px}' if wide else ''}>({here}, table{table});"
            table += 1
    yield f"  return {here};"
    yield "});"


def _tiles(plan: Plan, number: int) -> Iterator[str]:
    return iter(TileText(plan, number).lines)


def _egress(plan: Plan, number: int) -> Iterator[str]:
    yield f"const EgressPass pass = {pass_args(plan, number)};"
    yield "egress(f, pass, worker);"


def _statistic(plan: Plan, number: int) -> Iterator[str]:
    index = plan.passes[number].first
    op, channels = plan.ops[index], plan.pictures[index].format.channels
    yield op_params(plan, index)
    yield f"const StatisticPass pass = {pass_args(plan, number)};"
    if isinstance(op, LocalStatisticOp):
        found = state_address(plan, index, "LocalStatistic")
        yield f"count_regions<{channels}>(f, pass, worker, p{index}.grid, {found},"
        yield "    [&](const uint32* histogram, uint32 pixels, int value) {"
        yield f"      return {op.name}(histogram, pixels, value, p{index});"
        yield "    });"
        return
    yield f"count_values<{channels}>(f, pass, worker, {state_address(plan, index, 'Statistic')},"
    yield "    [&](const uint32* histogram, uint32 pixels, int channel, int value) {"
    yield f"      return {op.name}<{channels}>(histogram, pixels, channel, value, p{index});"
    yield "    });"


def _mark(plan: Plan, number: int) -> Iterator[str]:
    one = plan.passes[number]
    index, channels = one.first, plan.pictures[one.first].format.channels
    name = plan.ops[index].name
    yield op_params(plan, index)
    yield f"const TilePass pass = {pass_args(plan, number)};"
    yield f"Components<{channels}>* components = {state_address(plan, index, 'Components')};"
    yield f"mark_components<{channels}, {tile_width_px(plan, one)}>(f, pass, worker, components->labels,"
    yield f"    [&](auto at) {{ return {name}_measure<{channels}>(at, p{index}); }},"
    yield f"    [&](auto at) {{ return {name}_class(at, p{index}); }});"


def _join(plan: Plan, number: int) -> Iterator[str]:
    index = plan.passes[number].first
    channels = plan.pictures[index].format.channels
    yield f"const StatisticPass pass = {pass_args(plan, number)};"
    yield f"join_components<{channels}>(f, pass, worker, {state_address(plan, index, 'Components')});"


_MAKERS = {
    PassKind.INGEST: _ingest,
    PassKind.STATISTIC: _statistic,
    PassKind.MARK: _mark,
    PassKind.JOIN: _join,
    PassKind.TILES: _tiles,
    PassKind.EGRESS: _egress,
}
