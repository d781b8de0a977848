"""Chain + source format and size → Plan: which passes run, over what pictures. Pure data, made without a GPU.

The skeleton's planner is the plain one: one ingest pass, one pass per op, one egress pass. Fusion changes this file
and the executors, not their callers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kernels.chain import Chain, Step
from kernels.formats import BGR8, GRAY8
from kernels.image import PLANE_ALIGNMENT, ImageSpec, Shape, align_up
from kernels.op import OpKind, OpParams
from kernels.registry import AnyOp

MAX_BANDS = 4
BAND_BYTES = 6_000_000


@dataclass(frozen=True, slots=True)
class Plan:
    """What a chain becomes for one source: everything but the parameter values.

    ``source`` is the slot's native picture. ``pictures`` are the interleaved 8-bit pictures in scratch (BGR8 or GRAY8,
    rows aligned to ``PLANE_ALIGNMENT``): the first is what the ingest yields, and op i reads picture i and writes
    picture i + 1. ``result`` is the last one, packed: what leaves.
    """

    source: ImageSpec
    pictures: tuple[ImageSpec, ...]
    result: ImageSpec
    ops: tuple[AnyOp, ...]

    @property
    def keeps_rows(self) -> bool:
        """True if each op makes a row from that row and its neighbours only: then bands of rows can overlap."""
        return all(op.kind is not OpKind.GATHER for op in self.ops)

    @property
    def link_bytes_in(self) -> int:
        """Bytes that cross the link towards the device for each frame, by the plan."""
        return self.source.pixel_bytes

    @property
    def link_bytes_out(self) -> int:
        """Bytes that cross the link from the device for each frame, by the plan."""
        return self.result.nbytes

    def accepts(self, steps: tuple[Step, ...]) -> bool:
        """True if these steps run on this plan as it is: the same ops, and values that change no picture's size."""
        return self == make_plan(Chain(steps), self.source)


def make_plan(chain: Chain, source: ImageSpec) -> Plan:
    """The plan of a chain for a source. Never fails for a valid chain and specification."""
    shapes = [Shape(source.width, source.height, source.format.channels)]
    for step in chain.steps:
        shapes.append(step.op.output(shapes[-1], step.params))
    return Plan(
        source=source,
        pictures=tuple(_picture(shape, PLANE_ALIGNMENT) for shape in shapes),
        result=_picture(shapes[-1], 1),
        ops=tuple(step.op for step in chain.steps),
    )


def _picture(shape: Shape, row_alignment: int) -> ImageSpec:
    format = GRAY8 if shape.channels == 1 else BGR8
    return ImageSpec.make(format, shape.width, shape.height, row_alignment=row_alignment)


def default_bands(plan: Plan, integrated: bool) -> int:
    """Into how many row bands a frame is cut so that reading, computing and writing it overlap.

    Where the device shares the host's memory there is no link to keep busy both ways, so one; one too where an op may
    read any row. Under load the link delays the end of every kernel by some 20 µs, so bands pay only where they are
    long (DESIGN.md has the figures).
    """
    if integrated or not plan.keeps_rows:
        return 1
    return max(1, min(MAX_BANDS, plan.result.nbytes // BAND_BYTES))


def band_schedule(height: int, bands: int, radii: Sequence[int]) -> list[list[int]]:
    """How many rows each stage has finished after each band: ``[stage][band]``, stage 0 the ingest, then each op.

    A stage works on from where it stopped, so nothing is computed twice. It stays behind the stage before by what
    its own window still needs and, as two scratch pictures take turns, by what the window before it still reads
    from the picture this stage writes. That holds for pictures whose rows grow shorter on the way (grey from colour)
    as well: a row then never lies behind the row of the same number before.
    """
    ends = [[_even(height * (band + 1) // bands) for band in range(bands - 1)] + [height]]
    before = 0
    for radius in radii:
        lag = max(radius, before)
        ends.append([end if end == height else max(0, end - lag) for end in ends[-1]])
        before = radius
    return ends


def _even(rows: int) -> int:
    return rows - rows % 2


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
    """Bytes of a slot's result buffer, rounded up so that the device may store whole 16-byte words."""
    return align_up(plan.result.nbytes, PLANE_ALIGNMENT)
