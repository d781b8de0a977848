"""Plan → CUDA text: the shared headers by name, a function for each pass, one kernel that runs them side by side."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from kernels.formats import GRAY8, I420, NV12
from kernels.op import MorphologyOp, OpKind, PixelOp, SeparableOp, StatisticOp, TableOp, TemporalOp, TextOp, WindowOp
from kernels.plan import Pass, PassKind, Plan
from kernels.source_lines import cuda_text, marked

KERNEL_NAME = "frame"
# Where things lie in the plan's block of device memory (flow.cuh): passes, then ops.
PASS_BYTES = 256
OP_BYTES = 1024
TABLE_BYTES = 256
STATE_AT = OP_BYTES - 8  # in an op's block: the address of what a temporal op remembers, or a global op has found


@cache
def headers() -> dict[str, str]:
    """The shared device code by the name it is included under (``pinhole/common.cuh``)."""
    folder = resources.files("kernels").joinpath("cuda")
    return {
        f"pinhole/{entry.name}": entry.read_text(encoding="utf-8")
        for entry in sorted(folder.iterdir(), key=lambda e: e.name)
        if entry.name.endswith(".cuh")
    }


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
    """Shared memory that a pass's tables take, before its buffers: one for each sweep, and a global op's."""
    count = sum(1 for stage in stages(plan, one) if stage.tables)
    if one.first < one.last and isinstance(plan.ops[one.first], StatisticOp):
        count += plan.pictures[one.first].format.channels
    return TABLE_BYTES * count


def tile_width_px(plan: Plan, one: Pass) -> int:
    """How wide the tiles of a pass are: 384 bytes of its widest pixels, three lines of the link."""
    pictures = plan.pictures[one.first : one.last + 1]
    # A gather's own input is not held in tiles.
    if plan.ops[one.first : one.last] and plan.ops[one.first].kind is OpKind.GATHER:
        pictures = pictures[1:]
    return 384 // max(picture.format.channels for picture in pictures)


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
    return "_".join([head, *(op.name for op in plan.ops[one.first : one.last])])


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
        workers = f"{_pass_args(plan, index)}.workers"
        yield f"  if (worker < {workers}) return {pass_name(plan, index)}(f, worker);"
        yield f"  worker -= {workers};"
    yield "}"


_TYPES = {
    PassKind.INGEST: "IngestPass",
    PassKind.STATISTIC: "StatisticPass",
    PassKind.TILES: "TilePass",
    PassKind.EGRESS: "EgressPass",
}


def _pass_args(plan: Plan, index: int) -> str:
    return f"(*reinterpret_cast<const {_TYPES[plan.passes[index].kind]}*>(f.plan + {index} * PASS_BYTES))"


def _tables(plan: Plan, one: Pass) -> Iterator[str]:
    """Load the tables of a pass into shared memory, where ``table(n)`` finds them."""
    made = [stage.tables for stage in stages(plan, one) if stage.tables]
    for number, tables in enumerate(made):
        names = " | ".join(plan.ops[index].name for index in tables)
        offset = params_offset(plan, tables[0])
        yield f"uint8* table{number} = shared_memory + {TABLE_BYTES * number};  // {names}"
        yield f"table{number}[threadIdx.x] = f.plan[{offset} + threadIdx.x];"
    if made:
        yield "__syncthreads();"


def _op_params(plan: Plan, index: int) -> str:
    op = plan.ops[index]
    type_name = "Taps" if isinstance(op, SeparableOp) and not op.cuda_source else f"{op.name}_params"
    return (
        f"const {type_name}& p{index} = *reinterpret_cast<const {type_name}*>(f.plan + {params_offset(plan, index)});"
    )


def _state(plan: Plan, index: int, type_name: str) -> str:
    """The address of what an op keeps in device memory."""
    channels = plan.pictures[index].format.channels
    return f"*reinterpret_cast<{type_name}<{channels}>* const*>(f.plan + {params_offset(plan, index) + STATE_AT})"


def _pixel_function(plan: Plan, index: int) -> str:
    op, channels = plan.ops[index], plan.pictures[index].format.channels
    text = f" f.texts[{[at for at, _ in text_ops(plan)].index(index)}]," if isinstance(op, TextOp) else ""
    return (
        f"[&](const Picture<{channels}>& in, int x, int y, Size size, uint8* out) "
        f"{{ {op.name}<{channels}>(in, x, y, size, p{index},{text} out); }}"
    )


def _ingest(plan: Plan, number: int) -> Iterator[str]:
    one = plan.passes[number]
    out = plan.pictures[one.last].format.channels
    yield f"const IngestPass pass = {_pass_args(plan, number)};"
    yield from _tables(plan, one)
    for index in range(one.first, one.last):
        if isinstance(plan.ops[index], PixelOp):
            yield _op_params(plan, index)
    memory = f"shared_memory + {tables_bytes(plan, one)}"
    head = f"ingest<{plan.source.format.name.capitalize()}, {out}>(f, pass, worker, {memory}, "
    yield head + "[&](uint8* picture, uint8* spare, int x0, int y0) -> const uint8* {"
    yield "  const Size size{pass.width, pass.height};"
    here, there, table = "picture", "spare", 0
    for stage in stages(plan, one):
        if stage.op is not None:
            before, after = (plan.pictures[stage.op + k].format.channels for k in (0, 1))
            to = here if before == after else there
            yield f"  // {plan.ops[stage.op].name}"
            yield f"  make_pixels<{before}, {after}>("
            yield f"      Picture<{before}>{{{here} - (long long)y0 * SEGMENT_PX * {before} - x0 * {before},"
            yield f"                SEGMENT_PX * {before}, size}},"
            yield f"      {to}, SEGMENT_PX * {after}, x0, y0, 0, SEGMENT_PX, 0, SEGMENT_ROWS, size,"
            yield f"      {_pixel_function(plan, stage.op)});"
            yield "  __syncthreads();"
            if before != after:
                here, there = there, here
        if stage.tables:
            channels = plan.pictures[stage.tables[-1] + 1].format.channels
            yield f"  look_up_rows<{channels}>({here}, table{table});"
            table += 1
    yield f"  return {here};"
    yield "});"


def _tiles(plan: Plan, number: int) -> Iterator[str]:
    one = plan.passes[number]
    width = tile_width_px(plan, one)
    ops = plan.ops[one.first : one.last]
    gathers = bool(ops) and ops[0].kind is OpKind.GATHER
    yield f"const TilePass pass = {_pass_args(plan, number)};"
    yield from _tables(plan, one)
    for index in range(one.first, one.last):
        if not isinstance(plan.ops[index], (TableOp, MorphologyOp, StatisticOp)):
            yield _op_params(plan, index)
    if ops and isinstance(ops[0], StatisticOp):
        seen = plan.pictures[one.first].format.channels
        yield f"uint8* found = shared_memory + {tables_bytes(plan, one) - TABLE_BYTES * seen};"
        yield f"take_tables<{seen}>(f, {_pass_args(plan, number - 1)}.made,"
        yield f"    {_state(plan, one.first, 'Statistic')}, found);"
    yield f"uint8* memory[2] = {{shared_memory + {tables_bytes(plan, one)},"
    yield f"                    shared_memory + {tables_bytes(plan, one)} + pass.buffer_bytes}};"
    yield f"const int across = (pass.size.width + {width - 1}) / {width};"
    yield "const int tiles = across * ((pass.size.height + TILE_ROWS - 1) / TILE_ROWS);"
    source = "pass.src" if number else "f.planes[0]"  # the first pass reads the slot
    if gathers and number:
        yield "wait_for_rows(f, pass.needed, 0, pass.src_size.height);"
    yield "for (int index = worker; index < tiles; index += pass.workers) {"
    yield f"  const Tile tile{{index % across * {width}, index / across * TILE_ROWS, pass.size}};"
    yield "  int halo = pass.halo;"
    channels, current = plan.pictures[one.first].format.channels, 0
    if gathers or not number:
        # What the tile before left is read until here.
        yield "  __syncthreads();"
    else:
        yield "  wait_for_rows(f, pass.needed, tile.y0 - halo, tile.y0 + TILE_ROWS + halo);"
    if not gathers:
        yield f"  Buffer<{channels}, {width}> b0(pass, memory[0]);"
        yield f"  load_tile<{channels}, {width}>(pass, tile, {source}, b0);"
    buffer, table, stencil = 0, 0, 0
    for stage in stages(plan, one):
        post = "AsTheyAre{}"
        if stage.tables:
            post = f"Through{{table{table}}}"
            table += 1
        names = [plan.ops[i].name for i in ((stage.op,) if stage.op is not None else ()) + stage.tables]
        yield f"  // {' | '.join(names)}"
        if stage.op is None:
            yield f"  look_up<{channels}, {width}>(b{buffer}, halo, {post}.table);"
            continue
        op = plan.ops[stage.op]
        if isinstance(op, StatisticOp):
            yield f"  look_up_each<{channels}, {width}>(b{buffer}, halo, found);"
            if stage.tables:
                yield f"  look_up<{channels}, {width}>(b{buffer}, halo, {post}.table);"
            continue
        if isinstance(op, TemporalOp):
            after = plan.pictures[stage.op + 1].format.channels
            old = f"b{buffer}"
            if after != channels:
                buffer, current = buffer + 1, 1 - current
                yield f"  Buffer<{after}, {width}> b{buffer}(pass, memory[{current}]);"
            state = f"{op.name}_state"
            yield f"  update_pixels<{channels}, {after}>({old}.picture(tile), b{buffer}.data, b{buffer}.pitch,"
            yield f"      tile.x0, tile.y0, {width}, TILE_ROWS, {_state(plan, stage.op, state)},"
            yield f"      [&](const uint8* in, {state}<{channels}>& state, int x, int y, Size size, uint8* out) {{"
            yield f"        {op.name}<{channels}>(in, state, f.number == 1, x, y, size, p{stage.op}, out);"
            yield "      });"
            yield "  __syncthreads();"
            channels = after
            if stage.tables:
                yield f"  look_up<{channels}, {width}>(b{buffer}, halo, {post}.table);"
            continue
        radius = f"pass.radius[{stencil}]"
        if op.kind is OpKind.STENCIL:
            stencil += 1
        shape = f"<{channels}, {width}>"
        if isinstance(op, PixelOp):
            after = plan.pictures[stage.op + 1].format.channels
            old = f"b{buffer}"
            if op.kind is OpKind.STENCIL:
                yield f"  halo -= {radius};"
            if op.kind is OpKind.GATHER:
                picture = f"Picture<{channels}>{{{source}, pass.src_stride, pass.src_size}}"
                yield f"  Buffer<{after}, {width}> b0(pass, memory[0]);"
            else:
                picture = f"{old}.picture(tile)"
                if op.kind is not OpKind.POINT or after != channels:
                    buffer, current = buffer + 1, 1 - current
                    yield f"  Buffer<{after}, {width}> b{buffer}(pass, memory[{current}]);"
            yield f"  make_pixels<{channels}, {after}>({picture}, b{buffer}.data, b{buffer}.pitch, tile.x0, tile.y0,"
            yield f"      -up4(halo), {width} + up4(halo), -halo, TILE_ROWS + halo, tile.size,"
            yield f"      {_pixel_function(plan, stage.op)});"
            yield "  __syncthreads();"
            channels, shape = after, f"<{after}, {width}>"
            yield f"  mend_border{shape}(tile, b{buffer}, halo);"
            if stage.tables:
                yield f"  look_up{shape}(b{buffer}, halo, {post}.table);"
            continue
        if isinstance(op, MorphologyOp):
            for number, step in enumerate(op.steps):
                extremum = "Least{}" if step == "min" else "Greatest{}"
                out = post if number == len(op.steps) - 1 else "AsTheyAre{}"
                yield f"  halo -= {radius} / {len(op.steps)};"
                yield f"  morphology{shape}(b{buffer}, memory[{1 - current}], {radius} / {len(op.steps)}, halo,"
                yield f"      {extremum}, {out});"
                yield f"  mend_border{shape}(tile, b{buffer}, halo);"
            continue
        yield f"  halo -= {radius};"
        if isinstance(op, WindowOp):
            yield f"  Buffer{shape} b{buffer + 1}(pass, memory[{1 - current}]);"
            yield f"  window<{channels}, {width}, {op.fixed_radius}>(b{buffer}, b{buffer + 1}, halo, p{stage.op},"
            yield f"      [](auto at, const {op.name}_params& p) {{ return {op.name}(at, p); }}, {post});"
            buffer, current = buffer + 1, 1 - current
        elif isinstance(op, SeparableOp):
            yield f"  separable{shape}(b{buffer}, memory[{1 - current}], {radius}, halo,"
            if op.cuda_source:
                yield f"      p{stage.op}.taps, finish_with(p{stage.op},"
                yield f"      [](uint32 sum, int centre, const {op.name}_params& p)"
                yield f"      {{ return {op.name}(sum, centre, p); }}), {post});"
            else:
                yield f"      p{stage.op}, Mean{{}}, {post});"
        yield f"  mend_border{shape}(tile, b{buffer}, halo);"
    if one.to_result and plan.converts:
        chroma = {GRAY8: "NONE", I420: "PLANES", NV12: "PAIRS"}[plan.result.format]
        yield f"  store_planes<{channels}, {width}, Chroma::{chroma}>(f, pass, tile, b{buffer});"
    else:
        yield f"  store_tile<{channels}, {width}>(f, pass, tile, b{buffer});"
    if not one.to_result:
        yield "  finish_rows(pass.made, tile.y0, min(TILE_ROWS, tile.size.height - tile.y0));"
    yield "}"


def _egress(plan: Plan, number: int) -> Iterator[str]:
    yield f"egress(f, {_pass_args(plan, number)}, worker);"


def _statistic(plan: Plan, number: int) -> Iterator[str]:
    index = plan.passes[number].first
    op, channels = plan.ops[index], plan.pictures[index].format.channels
    yield _op_params(plan, index)
    yield f"count_values<{channels}>(f, {_pass_args(plan, number)}, worker, {_state(plan, index, 'Statistic')},"
    yield "    [&](const uint32* histogram, uint32 pixels, int channel, int value) {"
    yield f"      return {op.name}<{channels}>(histogram, pixels, channel, value, p{index});"
    yield "    });"


_MAKERS = {
    PassKind.INGEST: _ingest,
    PassKind.STATISTIC: _statistic,
    PassKind.TILES: _tiles,
    PassKind.EGRESS: _egress,
}
