"""What a plan will do, in numbers: its passes, why each of them is one, and the bytes that move. Pure; no GPU.

Everything is by the plan: pixels of the picture and of the halos around its tiles. That the GPU reads whole words and
keeps what it wrote lately in its L2 cache is left out.
"""

from __future__ import annotations

from dataclasses import dataclass

from kernels.geometry import BAND_ROWS, MARK_HALO, pieces, radii, shared_bytes
from kernels.image import ImageSpec
from kernels.op import ComponentsOp, OpKind, OpParams, TemporalOp, of_previous
from kernels.plan import MAX_HALO_PX, WORD, Pass, PassKind, Plan
from kernels.stages import gathers, is_wide, pass_name, stages, state_bytes, tile_width_px


@dataclass(frozen=True, slots=True)
class Traffic:
    """A picture that a pass reads or writes: where it lies, and how many bytes of it move for each frame."""

    place: str  # "slot", "device memory", "labels" (of a mask, in device memory), "result"
    picture: ImageSpec
    nbytes: int


@dataclass(frozen=True, slots=True)
class Sweep:
    """Ops that pass over a tile together: one, and then tables that ride on it, as one table."""

    ops: tuple[str, ...]
    halo_px: int  # of pixels around the tile that it makes as well, for the windows of later sweeps


@dataclass(frozen=True, slots=True)
class ExplainedPass:
    """One pass. Overheads are shares of the picture: 0.25 is a quarter more than without a halo.

    ``writes`` is None for a pass that only counts. ``read_overhead`` is None where an op reads wherever its parameters
    say. ``state_bytes`` are what temporal ops remember, which is read and written once a frame. ``waits_for_rows`` of
    the picture it reads must be made before its first piece: all of them where reading and writing cannot overlap.
    """

    name: str
    kind: PassKind
    because: str
    sweeps: tuple[Sweep, ...]
    reads: Traffic
    writes: Traffic | None
    halo_px: int
    tile_px: tuple[int, int] | None  # None: the pass has no tiles
    pieces: int
    shared_bytes: int
    state_bytes: int
    waits_for_rows: int
    read_overhead: float | None
    compute_overhead: float


@dataclass(frozen=True, slots=True)
class Explanation:
    """A whole plan with one set of parameter values.

    Bytes are for each frame, but ``held_bytes``: device memory that is held as long as the chain runs.
    """

    plan: Plan
    passes: tuple[ExplainedPass, ...]
    link_bytes_in: int
    link_bytes_out: int
    device_bytes: int
    held_bytes: int


def explain(plan: Plan, params: tuple[OpParams, ...], *, fused: bool = True) -> Explanation:
    """What ``plan`` does; ``fused=False`` says that it has a pass for each op (:func:`kernels.plan.unfused`)."""
    passes = tuple(_explain_pass(plan, number, params, fused) for number in range(len(plan.passes)))
    traffic = [one.reads for one in passes] + [one.writes for one in passes if one.writes is not None]
    places = ("slot", "device memory", "labels", "result")
    moved = {place: sum(t.nbytes for t in traffic if t.place == place) for place in places}
    states = sum(one.state_bytes for one in passes)
    between = [plan.pictures[one.last] for one in plan.passes if one.kind.makes_picture and not one.to_result]
    labels = sum(_labels(plan, one).nbytes for one in plan.passes if one.kind is PassKind.MARK)
    return Explanation(
        plan,
        passes,
        link_bytes_in=moved["slot"],
        link_bytes_out=moved["result"],
        device_bytes=moved["device memory"] + moved["labels"] + 2 * states,
        held_bytes=sum(picture.nbytes for picture in between) + states + labels,
    )


def _labels(plan: Plan, one: Pass) -> Traffic:
    """Of all pixels, by 4 bytes each."""
    picture = plan.pictures[one.first]
    return Traffic("labels", picture, 4 * picture.width * picture.height)


def _explain_pass(plan: Plan, number: int, params: tuple[OpParams, ...], fused: bool) -> ExplainedPass:
    one = plan.passes[number]
    source, result = plan.pictures[one.first], plan.pictures[one.last]
    halo = sum(radii(plan, one, params)) if one.kind is PassKind.TILES else 0
    halo = MARK_HALO if one.kind is PassKind.MARK else halo
    elsewhere = gathers(plan, one)
    sweeps = _sweeps(plan, one, params, halo)
    tile = (tile_width_px(plan, one), BAND_ROWS) if one.kind in (PassKind.TILES, PassKind.MARK) else None
    whole = result.width * result.height
    covered = [_covered_px(result, tile, sweep.halo_px) for sweep in sweeps]
    if number == 0:
        in_place = one.kind is PassKind.TILES
        nbytes = plan.source.pixel_bytes
        if in_place and not elsewhere:
            nbytes = _covered_px(source, tile, halo) * source.format.pixel_bytes
        reads = Traffic("slot", plan.source, nbytes)
    else:
        read_px = source.width * source.height if elsewhere else _covered_px(source, tile, halo)
        reads = Traffic("device memory", source, read_px * source.format.pixel_bytes)
    writes: Traffic | None = Traffic("device memory", result, result.pixel_bytes)
    if one.kind is PassKind.JOIN or (elsewhere and isinstance(plan.ops[one.first], ComponentsOp)):
        reads = _labels(plan, one)
    if one.kind is PassKind.STATISTIC:
        writes = None
    elif not one.kind.makes_picture:
        writes = _labels(plan, one)
    elif one.to_result:
        writes = Traffic("result", plan.result, plan.result.nbytes)
    return ExplainedPass(
        name=pass_name(plan, number),
        kind=one.kind,
        because=_because(plan, number, params, fused),
        sweeps=sweeps,
        reads=reads,
        writes=writes,
        halo_px=halo,
        tile_px=tile,
        pieces=pieces(plan, one, params),
        shared_bytes=shared_bytes(plan, one, params),
        state_bytes=sum(
            state_bytes(op, picture.format) * picture.width * picture.height
            for op, picture in list(zip(plan.ops, plan.pictures, strict=False))[one.first : one.last]
            if isinstance(op, TemporalOp)
        ),
        waits_for_rows=_waits_for_rows(plan, number, params, halo),
        read_overhead=None if elsewhere else _covered_px(source, tile, halo) / (source.width * source.height) - 1,
        compute_overhead=sum(covered) / (len(covered) * whole) - 1 if covered else 0.0,
    )


def _waits_for_rows(plan: Plan, number: int, params: tuple[OpParams, ...], halo: int) -> int:
    one = plan.passes[number]
    if number == 0:
        return 0
    if one.kind is PassKind.JOIN:
        return plan.pictures[one.first].height
    if one.kind is PassKind.TILES and one.first < one.last:
        kind, values = plan.ops[one.first].kind, params[one.first]
        if kind is OpKind.GATHER or (kind is OpKind.GLOBAL and not of_previous(values)):
            return plan.pictures[one.first].height
    return min(BAND_ROWS + halo, plan.pictures[one.first].height)


def _covered_px(picture: ImageSpec, tile: tuple[int, int] | None, halo: int) -> int:
    """Pixels of all tiles of a picture with ``halo`` pixels around each, overlaps counted as often as they come."""
    if tile is None:
        return picture.width * picture.height
    across, down = -(-picture.width // tile[0]), -(-picture.height // tile[1])
    return (picture.width + 2 * halo * across) * (picture.height + 2 * halo * down)


def _sweeps(plan: Plan, one: Pass, params: tuple[OpParams, ...], halo: int) -> tuple[Sweep, ...]:
    found = []
    for stage in stages(plan, one):
        members = (*(() if stage.op is None else (stage.op,)), *stage.tables)
        if stage.op is not None and plan.ops[stage.op].kind is OpKind.STENCIL:
            halo -= plan.ops[stage.op].radius(params[stage.op])
        found.append(Sweep(tuple(plan.ops[index].name for index in members), halo))
    return tuple(found)


def _because(plan: Plan, number: int, params: tuple[OpParams, ...], fused: bool) -> str:
    """Why a pass begins where it does, in the words of :mod:`kernels.plan`."""
    one = plan.passes[number]
    before = plan.passes[number - 1] if number else None
    if one.kind is PassKind.INGEST:
        points = ", through the point operations at the chain's head" if one.last else ""
        return f"the slot is read over the link, each byte once{points}"
    if one.kind is PassKind.EGRESS:
        return f"a row of the result is {plan.result.strides[0]} bytes, no whole number of {WORD}-byte words"
    if one.first == len(plan.ops):
        return f"the result is {plan.result.format}, made from {plan.pictures[-1].format} tile by tile"
    op = plan.ops[one.first]
    if one.kind is PassKind.STATISTIC:
        return f"{op.name} needs to know the values of the whole picture"
    if one.kind is PassKind.MARK:
        return f"{op.name} marks what may belong to its mask"
    if one.kind is PassKind.JOIN:
        return f"{op.name} joins what hangs together anywhere in the picture"
    if isinstance(op, ComponentsOp):
        return f"{op.name} needs to know what all the marks hang together with"
    if op.kind is OpKind.GLOBAL:
        whose = ", of the frame before" if of_previous(params[one.first]) else ""
        return f"{op.name} needs the statistic of the pass before{whose}"
    if op.kind is OpKind.GATHER:
        return f"{op.name} gathers: it may read any row of its picture"
    if before is None:
        return "the slot lies in the GPU's own memory and is read where it lies"
    if not fused:
        return "a pass for each operation"
    if before.kind is PassKind.INGEST:
        what = "remembers each pixel" if op.kind is OpKind.TEMPORAL else "reads around a pixel"
        return f"{op.name} {what}: it works on tiles"
    earlier = plan.ops[before.first : before.last]
    remembering = [other.name for other in earlier if other.kind is OpKind.TEMPORAL]
    if remembering and op.kind is OpKind.STENCIL:
        return f"{op.name} reads around a pixel, and {remembering[-1]} must see each pixel once"
    if op.kind is OpKind.STENCIL and is_wide(plan, before.first) and not is_wide(plan, one.first):
        return f"{op.name} reads around a pixel of 8 bits, and the tiles before are of 16"
    stencils = [other for other in (*earlier, op) if other.kind is OpKind.STENCIL]
    names = ", ".join(f"{other.name} {other.max_radius}" for other in stencils)
    reach = sum(other.max_radius for other in stencils)
    return f"the largest windows reach {reach} px together ({names}), and {MAX_HALO_PX} is the most"
