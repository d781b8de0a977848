"""The CUDA text of a pass over tiles: what it holds, then a stage for each op, in the chain's order."""

from __future__ import annotations

from typing import Any

from kernels.cuda_parts import (
    load_tables,
    op_params,
    pass_args,
    pixel_function,
    state_address,
    template_types,
    value_type,
)
from kernels.formats import GRAY8, I420, NV12
from kernels.op import (
    ComponentsOp,
    LocalStatisticOp,
    MorphologyOp,
    OpKind,
    PixelOp,
    SeparableOp,
    StatisticOp,
    TableOp,
    TemporalOp,
    WindowOp,
)
from kernels.plan import Plan
from kernels.stages import TABLE_BYTES, Stage, gathers, is_wide, stages, tables_bytes, tile_width_px

_CHROMA = {GRAY8: "NONE", I420: "PLANES", NV12: "PAIRS"}


class TileText:
    """``lines`` of the body of a pass's function.

    Two buffers in shared memory take turns: ``bN`` is the tile after the N-th change of buffer, and lies in
    ``memory[0]`` or ``memory[1]``. ``halo`` in the text is how many pixels around the tile the buffer holds. A tile of
    16 bits is one of twice as many channels of bytes; what works on its values is in wide.cuh.
    """

    def __init__(self, plan: Plan, number: int) -> None:
        self.lines: list[str] = []
        self._plan, self._number = plan, number
        self._pass = plan.passes[number]
        self._ops = plan.ops[self._pass.first : self._pass.last]
        self._width = tile_width_px(plan, self._pass)
        self._channels = plan.pictures[self._pass.first].format.channels
        self._wide = is_wide(plan, self._pass.first)
        self._buffer, self._memory = 0, 0
        self._tables, self._stencils = 0, 0
        # The first pass of a plan without an ingest reads the slot.
        self._source = "pass.src" if number else "f.planes[0]"
        self._head()
        for stage in stages(plan, self._pass):
            self._stage(stage)
        self._tail()

    def _say(self, *lines: str) -> None:
        self.lines.extend(lines)

    @property
    def _shape(self) -> str:
        """Of the tile by its bytes."""
        return f"<{self._channels * (2 if self._wide else 1)}, {self._width}>"

    @property
    def _values(self) -> str:
        """Of the tile by its values."""
        return f"<{self._channels}, {self._width}>"

    def _data(self, buffer: str) -> str:
        """What has the ``data`` and ``pitch`` of a tile's values, and the tile as a ``picture``."""
        return f"Values{self._values}({buffer})" if self._wide else buffer

    @property
    def _here(self) -> str:
        return f"b{self._buffer}"

    @property
    def _other_memory(self) -> str:
        return f"memory[{1 - self._memory}]"

    def _turn(self, channels: int, *, wide: bool = False) -> None:
        """The next buffer, of pictures with so many channels, of 16 bits if ``wide``."""
        self._buffer, self._memory = self._buffer + 1, 1 - self._memory
        shape = f"<{channels * (2 if wide else 1)}, {self._width}>"
        self._say(f"  Buffer{shape} {self._here}(pass, memory[{self._memory}]);")

    def _head(self) -> None:
        plan, one, number, width = self._plan, self._pass, self._number, self._width
        elsewhere = gathers(plan, one)
        shared = tables_bytes(plan, one)
        self._say(f"const TilePass pass = {pass_args(plan, number)};", *load_tables(plan, one))
        for index in range(one.first, one.last):
            if not isinstance(plan.ops[index], (TableOp, MorphologyOp, StatisticOp, ComponentsOp)):
                self._say(op_params(plan, index))
        if self._ops and isinstance(self._ops[0], StatisticOp):
            self._say(
                f"uint8* found = shared_memory + {shared - TABLE_BYTES * self._channels};",
                f"take_tables<{self._channels}>(f, {pass_args(plan, number - 1)}.made,",
                f"    {state_address(plan, one.first, 'Statistic')}, found);",
            )
        if self._ops and isinstance(self._ops[0], LocalStatisticOp):
            self._say(
                f"wait_for_rows(f, {pass_args(plan, number - 1)}.made, 0, 1);",
                f"const uint8* found = ({state_address(plan, one.first, 'LocalStatistic')})->tables;",
            )
        self._say(
            f"uint8* memory[2] = {{shared_memory + {shared}, shared_memory + {shared} + pass.buffer_bytes}};",
            f"const int across = (pass.size.width + {width - 1}) / {width};",
            "const int tiles = across * ((pass.size.height + TILE_ROWS - 1) / TILE_ROWS);",
        )
        awaits = plan.awaits_source and not number
        if self._ops and isinstance(self._ops[0], ComponentsOp):
            self._say(
                f"wait_for_rows(f, {pass_args(plan, number - 1)}.made, 0, 1);",
                f"const uint32* labels = ({state_address(plan, one.first, 'Components')})->labels;",
            )
        elif elsewhere and awaits:
            self._say("wait_for_source(f, 0, pass.src_size.height, pass.src_size.height);")
        elif elsewhere and number:
            self._say("wait_for_rows(f, pass.needed, 0, pass.src_size.height);")
        self._say(
            "for (int index = worker; index < tiles; index += pass.workers) {",
            f"  const Tile tile{{index % across * {width}, index / across * TILE_ROWS, pass.size}};",
            "  int halo = pass.halo;",
        )
        # What the tile before left in shared memory is read until here.
        rows = "tile.y0 - halo, tile.y0 + TILE_ROWS + halo"
        if elsewhere or not (number or awaits):
            self._say("  __syncthreads();")
        elif awaits:
            self._say(f"  wait_for_source(f, {rows}, pass.src_size.height);")
        else:
            self._say(f"  wait_for_rows(f, pass.needed, {rows});")
        if not elsewhere:
            self._say(
                f"  Buffer{self._shape} b0(pass, memory[0]);",
                f"  load_tile{self._shape}(pass, tile, {self._source}, b0);",
            )

    def _tail(self) -> None:
        plan = self._plan
        if self._pass.to_result and plan.converts and self._wide:
            wide = self._here
            self._turn(self._channels)
            self._say(f"  narrow{self._values}({wide}, {self._here});")
            self._wide = False
        if self._pass.to_result and plan.converts:
            chroma = f"Chroma::{_CHROMA[plan.result.format]}"
            self._say(f"  store_planes<{self._channels}, {self._width}, {chroma}>(f, pass, tile, {self._here});")
        else:
            self._say(f"  store_tile{self._shape}(f, pass, tile, {self._here});")
        if not self._pass.to_result:
            departs = ", f.departing_rows" if plan.departs and self._number == len(plan.passes) - 1 else ""
            self._say(f"  finish_rows(pass.made, tile.y0, min(TILE_ROWS, tile.size.height - tile.y0){departs});")
        self._say("}")

    def _stage(self, stage: Stage) -> None:
        names = [self._plan.ops[i].name for i in ((stage.op,) if stage.op is not None else ()) + stage.tables]
        self._say(f"  // {' | '.join(names)}")
        table = f"table{self._tables}" if stage.tables else ""
        self._tables += bool(stage.tables)
        op = self._plan.ops[stage.op] if stage.op is not None else None
        if isinstance(op, (SeparableOp, MorphologyOp, WindowOp)) and stage.op is not None:
            if not self._wide:
                self._stencil(stage.op, op, f"Through{{{table}}}" if table else "AsTheyAre{}")
                return
            self._wide_stencil(stage.op, op)
        if isinstance(op, StatisticOp):
            self._say(f"  look_up_each{self._shape}({self._here}, halo, found);")
        elif isinstance(op, ComponentsOp):
            self._channels = 1
            self._say(
                f"  Buffer{self._shape} b0(pass, memory[0]);",
                f"  make_mask<{self._width}>(labels, tile, halo, b0);",
            )
            self._mend()
        elif isinstance(op, LocalStatisticOp) and stage.op is not None:
            self._say(
                f"  look_up_between_regions{self._shape}({self._here}, tile, halo, p{stage.op}.grid, found);",
            )
            self._mend()
        elif isinstance(op, TemporalOp) and stage.op is not None:
            self._temporal(stage.op, op)
        elif isinstance(op, PixelOp) and stage.op is not None:
            self._pixels(stage.op, op)
        if table and self._wide:
            self._wide_table(table, is_wide(self._plan, stage.tables[-1] + 1))
        elif table:
            self._say(f"  look_up{self._shape}({self._here}, halo, {table});")

    def _wide_table(self, table: str, stays_wide: bool) -> None:
        old = self._here
        if not stays_wide:
            self._turn(self._channels)
        to = self._data(self._here) if stays_wide else self._here
        self._say(f"  look_up_wide{self._values}({old}, {to}.data, {to}.pitch, halo, {table});")
        self._wide = stays_wide

    def _radius(self) -> str:
        """The next stencil's radius, as the pass's arguments have it."""
        self._stencils += 1
        return f"pass.radius[{self._stencils - 1}]"

    def _temporal(self, index: int, op: TemporalOp[Any]) -> None:
        before, after = self._channels, self._plan.pictures[index + 1].format.channels
        old = self._data(self._here)
        if after != before:
            self._turn(after, wide=self._wide)
        self._channels = after
        new, state = self._data(self._here), f"{op.name}_state"
        value, types = value_type(self._plan, index), template_types(self._plan, index)
        self._say(
            f"  update_pixels<{before}, {after}>({old}.picture(tile), {new}.data, {new}.pitch,",
            f"      tile.x0, tile.y0, {self._width}, TILE_ROWS, {state_address(self._plan, index, state)},",
            f"      [&](const {value}* in, {state}<{types}>& state, int x, int y, Size size, {value}* out) {{",
            f"        {op.name}<{before}>(in, state, f.number == 1, x, y, size, p{index}, out);",
            "      });",
            "  __syncthreads();",
        )

    def _pixels(self, index: int, op: PixelOp[Any]) -> None:
        before, after = self._channels, self._plan.pictures[index + 1].format.channels
        picture = f"{self._data(self._here)}.picture(tile)"
        if op.kind is OpKind.STENCIL:
            self._say(f"  halo -= {self._radius()};")
        if op.kind is OpKind.GATHER:
            picture = f"Picture<{before}>{{{self._source}, pass.src_stride, pass.src_size}}"
            if self._wide:
                picture = f"wide_picture<{before}>({self._source}, pass.src_stride, pass.src_size)"
            self._channels = after
            self._say(f"  Buffer{self._shape} b0(pass, memory[0]);")
        elif op.kind is not OpKind.POINT or after != before:
            self._turn(after, wide=self._wide)
        self._channels = after
        new = self._data(self._here)
        self._say(
            f"  make_pixels<{before}, {after}>({picture}, {new}.data, {new}.pitch, tile.x0, tile.y0,",
            f"      -up4(halo), {self._width} + up4(halo), -halo, TILE_ROWS + halo, tile.size,",
            f"      {pixel_function(self._plan, index)});",
            "  __syncthreads();",
        )
        self._mend()

    def _stencil(self, index: int, op: SeparableOp[Any] | MorphologyOp[Any] | WindowOp[Any], post: str) -> None:
        radius = self._radius()
        if isinstance(op, MorphologyOp):
            step_radius = f"{radius} / {len(op.steps)}"
            for at, step in enumerate(op.steps):
                extremum = "Least{}" if step == "min" else "Greatest{}"
                out = post if at == len(op.steps) - 1 else "AsTheyAre{}"
                self._say(
                    f"  halo -= {step_radius};",
                    f"  morphology{self._shape}({self._here}, {self._other_memory}, {step_radius}, halo,",
                    f"      {extremum}, {out});",
                )
                self._mend()
            return
        self._say(f"  halo -= {radius};")
        if isinstance(op, WindowOp):
            old = self._here
            self._turn(self._channels)
            self._say(
                f"  window<{self._channels}, {self._width}, {op.fixed_radius}>({old}, {self._here}, halo, p{index},",
                f"      [](auto at, const {op.name}_params& p) {{ return {op.name}(at, p); }}, {post});",
            )
        else:
            self._say(f"  separable{self._shape}({self._here}, {self._other_memory}, {radius}, halo,")
            if op.cuda_source:
                self._say(
                    f"      p{index}.taps, finish_with(p{index},",
                    f"      [](uint32 sum, int centre, const {op.name}_params& p)",
                    f"      {{ return {op.name}(sum, centre, p); }}),",
                    f"      {post});",
                )
            else:
                self._say(f"      p{index}, Mean{{}}, {post});")
        self._mend()

    def _wide_stencil(self, index: int, op: SeparableOp[Any] | MorphologyOp[Any] | WindowOp[Any]) -> None:
        radius = self._radius()
        if isinstance(op, MorphologyOp):
            step_radius = f"{radius} / {len(op.steps)}"
            for step in op.steps:
                extremum = "WideLeast{}" if step == "min" else "WideGreatest{}"
                self._say(
                    f"  halo -= {step_radius};",
                    f"  morphology_wide{self._values}({self._here}, {self._other_memory}, {step_radius}, halo,",
                    f"      {extremum});",
                )
                self._mend()
            return
        self._say(f"  halo -= {radius};")
        if isinstance(op, WindowOp):
            old = self._here
            self._turn(self._channels, wide=True)
            self._say(
                f"  window_wide{self._values}({old}, {self._here}, halo, p{index},",
                f"      [](auto at, const {op.name}_params& p) {{ return {op.name}(at, p); }});",
            )
        else:
            taps, finish = f"p{index}", "WideMean{}"
            if op.cuda_source:
                taps = f"p{index}.taps"
                finish = f"[&](uint32 sum, int centre) {{ return {op.name}<uint16>(sum, centre, p{index}); }}"
            self._say(
                f"  separable_wide{self._values}({self._here}, {self._other_memory}, {radius}, halo, {taps},",
                f"      {finish});",
            )
        self._mend()

    def _mend(self) -> None:
        self._say(f"  mend_border{self._shape}(tile, {self._here}, halo);")
