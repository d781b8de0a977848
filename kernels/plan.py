"""Chain + source format and size → Plan: which passes run, over what pictures. Pure data, made without a GPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum

from kernels.chain import Chain, Step
from kernels.errors import InputError
from kernels.formats import GRAY8, I420, NV12, Matrix, PixelFormat, Range, working_format
from kernels.image import PLANE_ALIGNMENT, ImageSpec, Shape, align_up
from kernels.op import ComponentsOp, OpKind, OpParams
from kernels.registry import AnyOp

MAX_HALO_PX = 16
WORD = 16  # bytes that the GPU reads and writes at once


class PassKind(Enum):
    """How a pass walks over its picture."""

    INGEST = "ingest"  # reads the slot
    STATISTIC = "statistic"  # counts the values of a picture in device memory; makes none
    MARK = "mark"  # labels the pixels of a picture in device memory that may belong to a mask; makes none
    JOIN = "join"  # joins the labels of all that hang together; makes none
    TILES = "tiles"  # reads and writes device memory, or writes the result
    EGRESS = "egress"  # writes a result whose rows are no whole words

    @property
    def makes_picture(self) -> bool:
        """False for what finds out something of a whole picture, for the pass behind it."""
        return self not in (PassKind.STATISTIC, PassKind.MARK, PassKind.JOIN)


@dataclass(frozen=True, slots=True)
class Pass:
    """One walk over a picture: ops ``first`` to ``last`` (not included) of the chain.

    It makes picture ``last`` of the plan from the slot (``INGEST``) or from picture ``first``; ``to_result`` says that
    this is the slot's result. Passes that make no picture make what the op ``first`` needs to know of picture
    ``first``.
    """

    kind: PassKind
    first: int
    last: int
    to_result: bool


@dataclass(frozen=True, slots=True)
class Plan:
    """What a chain becomes for one source: everything but the parameter values.

    ``source`` is the slot's native picture. ``pictures`` are the interleaved pictures before and after each op (BGR8 or
    GRAY8, or BGR16 or GRAY16 until ``levels``; rows aligned to ``PLANE_ALIGNMENT``); only those between two passes
    exist in device memory. ``result`` is what leaves, packed: the last of them, or of 8 bits its luma (GRAY8), or I420
    or NV12 of it.
    """

    source: ImageSpec
    pictures: tuple[ImageSpec, ...]
    result: ImageSpec
    ops: tuple[AnyOp, ...]
    passes: tuple[Pass, ...]
    awaits_source: bool = False  # rows of the source are still arriving: what reads it waits for them
    departs: bool = False  # copies take the last picture away while it is being made

    @property
    def link_bytes_in(self) -> int:
        """Bytes that cross the link towards the device for each frame, by the plan."""
        return self.source.pixel_bytes

    @property
    def link_bytes_out(self) -> int:
        """Bytes that cross the link from the device for each frame, by the plan."""
        return self.result.nbytes

    @property
    def converts(self) -> bool:
        """True if the result is of another format than the last picture."""
        return self.result.format is not self.pictures[-1].format

    def accepts(self, steps: tuple[Step, ...]) -> bool:
        """True if these steps run on this plan as it is: the same ops, and values that change no picture's size."""
        return self.ops == tuple(step.op for step in steps) and self.pictures == _pictures(steps, self.source)


def make_plan(chain: Chain, source: ImageSpec, target: PixelFormat | None = None) -> Plan:
    """The plan of a chain for a source; never fails for a valid chain and a source of 8 bits without a target.

    ``target`` is the result's format: None for what the chain makes of it, or GRAY8, I420 or NV12, which are BT.601
    with full range, as JPEG has it; of 16 bits, v / 257 is taken, rounded.

    Raises:
        InputError: the target is none of these, or an op that takes 8 bits only would be given 16.
    """
    pictures = _pictures(chain.steps, source)
    made = pictures[-1]
    format = target or made.format
    if format not in (made.format, GRAY8, I420, NV12):
        raise InputError("target", f"{format} cannot be made of {made.format}", f"{made.format}, GRAY8, I420, NV12")
    result = ImageSpec.make(format, made.width, made.height, matrix=Matrix.BT601, range=Range.FULL)
    if not format.is_yuv:
        result = _picture(Shape(made.width, made.height, format.channels, format.depth), 1)
    plan = Plan(source, pictures, result, tuple(step.op for step in chain.steps), ())
    return replace(plan, passes=_passes(plan, True))


def unfused(plan: Plan) -> Plan:
    """The same with a pass for each op: the same result, more slowly; what fusion is compared with."""
    return replace(plan, passes=_passes(plan, False))


def reads_in_place(plan: Plan) -> Plan:
    """The same without an ingest where passes can read the slot themselves: halos twice, but one picture less.

    For sources in device memory, or in host memory that the GPU caches; mapped memory never is. BGR8 and GRAY8 whose
    rows are whole words.
    """
    source = plan.source
    whole = source.format.is_working and source.strides[0] % WORD == 0 and source.offsets[0] % WORD == 0
    if not (whole and plan.ops) or plan.ops[0].kind is OpKind.GLOBAL:
        return plan
    return replace(plan, passes=_passes(plan, True, ingest=False))


def by_copies(plan: Plan, *, into: bool, awaited: bool, out: bool) -> Plan:
    """The same for a frame that copies bring (``into``; ``awaited`` while passes read it) or take away (``out``).

    Passes then read the source where it lies in device memory, and leave the last picture there, its rows aligned;
    results with planes are written as they are.
    """
    made = replace(reads_in_place(plan) if into else plan, awaits_source=into and awaited)
    if not out or plan.converts:
        return made
    passes = [one for one in made.passes if one.kind is not PassKind.EGRESS]
    passes[-1] = replace(passes[-1], to_result=False)
    return replace(made, passes=tuple(passes), departs=True)


def _passes(plan: Plan, fuse: bool, ingest: bool = True) -> tuple[Pass, ...]:
    """The first point ops go with the ingest; a pass over tiles takes ops while their windows stay small together.

    What counts is the largest window that an op's parameters may ask for: a slider never changes the passes. A gather
    may read any row, so it starts a pass; what follows is computed from its pixels around the tile as well. So does a
    global op, behind the passes that find out what it needs, and behind a temporal op a stencil. Stencils of 8 and of
    16 bits share no pass: their tiles lie differently.
    """
    ops = plan.ops
    passes: list[Pass] = []
    halo, room = 0, -1
    if ingest:
        points = 0
        while fuse and points < len(ops) and ops[points].kind is OpKind.POINT:
            points += 1
        passes.append(Pass(PassKind.INGEST, 0, points, False))
    for index in range(passes[0].last if passes else 0, len(ops)):
        op = ops[index]
        radius = op.max_radius if op.kind is OpKind.STENCIL else 0
        if radius and passes and plan.pictures[index].format.depth != plan.pictures[passes[-1].first].format.depth:
            room = -1
        if fuse and op.kind not in (OpKind.GATHER, OpKind.GLOBAL) and halo + radius <= room:
            passes[-1] = replace(passes[-1], last=index + 1)
            halo += radius
        else:
            if isinstance(op, ComponentsOp):
                passes += [Pass(kind, index, index, False) for kind in (PassKind.MARK, PassKind.JOIN)]
            elif op.kind is OpKind.GLOBAL:
                passes.append(Pass(PassKind.STATISTIC, index, index, False))
            passes.append(Pass(PassKind.TILES, index, index + 1, False))
            halo, room = radius, MAX_HALO_PX
        if op.kind is OpKind.TEMPORAL:
            # It must see each pixel once, so nothing behind it may have pixels around the tile made as well.
            room = halo
    if plan.converts and passes[-1].kind is PassKind.INGEST:
        passes.append(Pass(PassKind.TILES, len(ops), len(ops), False))
    if plan.converts or plan.result.strides[0] % WORD == 0:
        passes[-1] = replace(passes[-1], to_result=True)
    else:
        passes.append(Pass(PassKind.EGRESS, len(ops), len(ops), True))
    return tuple(passes)


def _pictures(steps: Sequence[Step], source: ImageSpec) -> tuple[ImageSpec, ...]:
    shapes = [Shape(source.width, source.height, source.format.channels, source.format.depth)]
    for place, step in enumerate(steps):
        if shapes[-1].depth == 16 and not step.op.takes_16_bit:
            which = f"{step.op.name}, operation {place + 1} of {len(steps)}, takes pictures of 8 bits"
            raise InputError(f"ops[{place}]", f"{which} and is given one of 16: put levels before it")
        shapes.append(step.op.output(shapes[-1], step.params))
    return tuple(_picture(shape, PLANE_ALIGNMENT) for shape in shapes)


def _picture(shape: Shape, row_alignment: int) -> ImageSpec:
    format = working_format(shape.channels, shape.depth)
    return ImageSpec.make(format, shape.width, shape.height, row_alignment=row_alignment)


def slot_source_spec(packed: ImageSpec) -> ImageSpec:
    """How a slot lays out a source picture: rows and planes start on whole lines of the link."""
    return ImageSpec.make(
        packed.format, packed.width, packed.height,
        row_alignment=PLANE_ALIGNMENT, plane_alignment=PLANE_ALIGNMENT, matrix=packed.matrix, range=packed.range,
    )  # fmt: skip


def chain_params(chain: Chain) -> tuple[OpParams, ...]:
    """The parameter values of a chain, in order, as executors take them."""
    return tuple(step.params for step in chain.steps)


def result_nbytes(plan: Plan) -> int:
    """Bytes of a slot's result buffer: whole lines of the link."""
    return align_up(plan.result.nbytes, PLANE_ALIGNMENT)
