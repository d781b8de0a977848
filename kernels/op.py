"""What an operation is: parameters, a CUDA form and a CPU form, all in one file of :mod:`kernels.ops`.

An op object is stateless; one instance serves every camera. Its result is defined exactly (see DESIGN.md): round half
up, saturate, border reflect-101, and as many bits out as in, 8 or, where the op says so, 16. How its CUDA form looks
depends on the base class it takes:

* :class:`TableOp` — point op on single values: a 256-entry table, the same bytes on CPU and GPU.
* :class:`SeparableOp` — symmetric stencil with integer taps, the same along both axes.
* :class:`MorphologyOp` — least and greatest values of a square window.
* :class:`WindowOp` — any other stencil: a CUDA function of the values around a pixel.
* :class:`TemporalOp` — a point op that remembers earlier frames.
* :class:`StatisticOp` — tables that follow from the picture's histogram.
* :class:`LocalStatisticOp` — the same for each region of the picture.
* :class:`ComponentsOp` — a mask of what hangs together.
* :class:`PixelOp` — whole pixels of a result that may have another size or other channels.
* :class:`TextOp` — one that writes what is known of the frame.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from enum import Enum
from functools import lru_cache, partial
from typing import Annotated, Any, ClassVar, Generic, Literal, TypeVar

import cv2
import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue

from kernels.image import NO_STAMP, Pixels, Shape, Stamp, Values
from kernels.local_tables import Regions, histogram, look_up_between
from kernels.params import step_for

MAX_RADIUS_PX = 15
MAX_TEXT_BYTES = 96
MAX_TEXTS = 8  # ops with a text in one chain: texts travel with each frame's launch


class OpKind(Enum):
    """How an op reads its input; decides what it can be fused with."""

    POINT = "point"
    STENCIL = "stencil"
    GATHER = "gather"
    TEMPORAL = "temporal"
    GLOBAL = "global"


class OpParams(BaseModel):
    """Base of every op's parameters: unknown keys, wrong types, NaN and infinities are refused.

    In the JSON Schema every number says by which ``x-step`` a control moves it: where a parameter gives none, 1 for
    whole numbers, and what suits the range (:func:`kernels.params.step_for`) for others.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    @classmethod
    def __get_pydantic_json_schema__(cls, core: Any, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        schema = handler(core)
        whole = handler.resolve_ref_schema(schema)
        if cls is OpParams:  # of an op without parameters: what is said above is not about them
            whole.pop("description", None)
        for value in whole.get("properties", {}).values():
            if value.get("type") == "integer":
                value.setdefault("x-step", 1)
            elif value.get("type") == "number" and {"minimum", "maximum"} <= value.keys():
                value.setdefault("x-step", step_for(value["minimum"], value["maximum"]))
        return schema


P = TypeVar("P", bound=OpParams)


class Scratch:
    """CPU buffers that ops keep between frames, by name. Not thread-safe.

    One for an executor, and one for each op that remembers: a ``TemporalOp``, or one with a statistic.
    """

    def __init__(self) -> None:
        self.stamp = NO_STAMP  # of the frame that is being processed
        self.frames = 0  # how many an op that remembers has seen: at 0 its arrays hold nothing yet
        self._buffers: dict[str, Pixels] = {}
        self._arrays: dict[str, npt.NDArray[Any]] = {}

    def array(self, name: str, shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """An array over the buffer of that name, which only ever grows; contents stale."""
        array = self._arrays.get(name)
        if array is not None and array.shape == shape and array.dtype == dtype:
            return array
        nbytes = math.prod(shape) * np.dtype(dtype).itemsize
        buffer = self._buffers.get(name)
        if buffer is None or buffer.nbytes < nbytes:
            buffer = self._buffers[name] = np.empty(nbytes, np.uint8)
        array = self._arrays[name] = buffer[:nbytes].view(dtype).reshape(shape)
        return array


class Op(ABC, Generic[P]):
    """One image operation. ``name`` is also its file's name; ``Params`` its parameter model with units and help."""

    name: ClassVar[str]
    kind: ClassVar[OpKind]
    Params: type[P]
    # True: pictures of 16 bits too. Values are then uint16 (``Value`` in CUDA), and what parameters give in levels of
    # 8 bits counts 257 each. Other ops need ``levels`` before them in the chain.
    takes_16_bit: ClassVar[bool] = False

    @property
    def summary(self) -> str:
        """The first line of the class's docstring."""
        return (type(self).__doc__ or "").strip().split("\n")[0]

    def output(self, source: Shape, params: P) -> Shape:
        """What the op makes of a picture: the same size, channels and depth, unless it says otherwise.

        Never fails; sides are 1 to ``MAX_SIDE_PX``. Only a ``GATHER`` may change the size, only a ``TableOp`` the
        depth, and only the source's channels and depth decide on the result's: the CUDA text is the same for all sizes
        and parameters.
        """
        return source

    @property
    def max_radius(self) -> int:
        """The largest ``radius`` that any parameters ask for: what decides which ops share a pass."""
        return MAX_RADIUS_PX if self.kind is OpKind.STENCIL else 0

    @abstractmethod
    def radius(self, params: P) -> int:
        """How many pixels around a pixel a ``STENCIL`` reads, at most ``MAX_RADIUS_PX``; 0 for other kinds."""

    @abstractmethod
    def constants(self, params: P) -> bytes:
        """The parameters as the CUDA form reads them, at most 1024 bytes; a frame sees one whole set."""

    @abstractmethod
    def run_cpu(self, src: Values, dst: Values, params: P, scratch: Scratch) -> None:
        """The op on the CPU: (H, W) or (H, W, 3) uint8 in and, as ``output`` says, out; distinct buffers, from 1x1.

        uint16 in pictures of 16 bits, for an op that takes them. Blocks; must not allocate anything of a frame's size
        (take row bands from ``scratch``).
        """


class TableOp(Op[P]):
    """A point op on single values: the table *is* the op, so CPU and GPU agree exactly."""

    kind = OpKind.POINT

    @abstractmethod
    def table(self, params: P) -> Pixels:
        """(256,) uint8: the result for each input value."""

    def table_16(self, params: P) -> Values:
        """(65536,) uint16, or uint8 if the op makes 8 bits of 16: the result for each value of 16 bits."""
        raise NotImplementedError(f"{self.name} takes 8 bits")

    def line(self, params: P) -> tuple[float, float] | None:
        """Factor and offset, if the table of 8 bits is about a straight line: a hint that is checked before use."""
        return None

    def radius(self, params: P) -> int:
        return 0

    def constants(self, params: P) -> bytes:
        return self.table(params).tobytes()

    def run_cpu(self, src: Values, dst: Values, params: P, scratch: Scratch) -> None:
        look_up(src, table_of(self, params, 8 * src.itemsize), dst, self.line(params))


def table_of(op: TableOp[Any], params: OpParams, depth: int) -> Values:
    """The op's table for values of that depth."""
    return op.table(params) if depth == 8 else _table_16(op, params)


# Kept, as each takes up to a millisecond to make.
@lru_cache(maxsize=32)
def _table_16(op: TableOp[Any], params: OpParams) -> Values:
    return op.table_16(params)


def joined(ops: Sequence[TableOp[Any]], params: Sequence[OpParams], depth: int) -> Values:
    """One table for all of some in a row, the first of which is given values of that depth."""
    table = table_of(ops[0], params[0], depth)
    for op, values in zip(ops[1:], params[1:], strict=True):
        table = table_of(op, values, 8 * table.itemsize)[table]
    return table


_BAND_VALUES = 1 << 15  # times 8 bytes of indices: a band stays in the L2 cache


def look_up(src: Values, table: Values, dst: Values, line: tuple[float, float] | None = None) -> None:
    """Fill ``dst`` with the table's entry for each value; (256,) for uint8, (65536,) for uint16.

    ``line``: factor and offset of a straight line that a table of 8 bits may follow.
    """
    if src.dtype == np.uint8:
        _shortcut(table.tobytes(), line)(src, dst)
        return
    rows = max(1, _BAND_VALUES // src[0].size)
    for top in range(0, len(src), rows):
        np.take(table, src[top : top + rows], out=dst[top : top + rows], mode="clip")


@lru_cache(maxsize=64)
def _shortcut(entries: bytes, line: tuple[float, float] | None) -> Callable[[Pixels, Pixels], object]:
    """What makes the same as looking up these 256 entries, in a third of the time where there is such a call."""
    table = np.frombuffer(entries, np.uint8)
    values = np.arange(256)
    if (table == 255 - values).all():
        return lambda src, dst: cv2.bitwise_not(src, dst=dst)
    if (table == values).all():
        return lambda src, dst: np.copyto(dst, src)
    (steps,) = np.nonzero(table[1:] != table[:-1])
    if len(steps) == 1 and 0 in (table[0], table[255]):
        kind = cv2.THRESH_BINARY if table[0] == 0 else cv2.THRESH_BINARY_INV
        last, most = float(steps[0]), float(table.max())
        return lambda src, dst: cv2.threshold(src, last, most, kind, dst=dst)
    # OpenCV rounds halves to even: a little more takes them up.
    for factor, offset in () if line is None else (line, (line[0], line[1] + 1 / 4096)):
        if _follows(table, factor, offset):
            return partial(_scaled, factor, offset)
    return lambda src, dst: cv2.LUT(src, table, dst=dst)


def _scaled(factor: float, offset: float, src: Pixels, dst: Pixels) -> None:
    cv2.convertScaleAbs(src, dst=dst, alpha=factor, beta=offset)


def _follows(table: Pixels, factor: float, offset: float) -> bool:
    """True if ``cv2.convertScaleAbs`` makes this table, both in whole vectors and in what is left of a row."""
    values = np.arange(256, dtype=np.uint8)
    vectors, single = values.reshape(1, 256), np.stack((values, values), axis=1)[:, :1]  # rows of one value each
    made = (cv2.convertScaleAbs(part, alpha=factor, beta=offset) for part in (vectors, single))
    return all(np.array_equal(part.ravel(), table) for part in made)


class TemporalOp(Op[P]):
    """A point op that remembers something of each pixel: what it has seen there before.

    ``cuda_source`` defines ``struct NAME_params`` (at most 1016 bytes), ``template <int CHANNELS> struct NAME_state``
    of ``state_bytes`` bytes, and ``template <int CHANNELS> __device__ void NAME(const uint8* in,
    NAME_state<CHANNELS>& state, bool first, int x, int y, Size size, const NAME_params& p, uint8* out)``: ``in`` are
    the channels of pixel (x, y); at the ``first`` frame the state holds nothing. What is remembered outlives changes
    of parameters; with another size, format or chain it starts anew. ``run_cpu`` keeps it in arrays of ``scratch``,
    which is the op's own. An op that takes 16 bits is ``template <int CHANNELS, class Value>``, its state too (with
    uint8 for ``Value`` by default), with ``const Value* in`` and ``Value* out``.
    """

    kind = OpKind.TEMPORAL
    cuda_source: ClassVar[str]

    @abstractmethod
    def state_bytes(self, channels: int) -> int:
        """Bytes that are remembered of each pixel of so many channels, on the device; twice as many of 16 bits."""

    def radius(self, params: P) -> int:
        return 0


# A parameter of ops that need to know something of the whole picture.
StatisticOf = Annotated[
    Literal["frame", "previous"],
    Field(
        description="What is counted: this frame, of which nothing can be made before all of it is there; or the frame "
        "before, so that reading and writing overlap, and light that changes is answered a frame later."
    ),
]


class StatisticOp(Op[P]):
    """A table for each channel that follows from how often each value comes in the whole picture.

    Parameters may have ``statistic: StatisticOf``. With ``previous`` the values counted are those that the op was given
    in the frame before, whatever its parameters were then; the first frame of a size, format or chain is its own.

    ``cuda_source`` defines ``struct NAME_params`` (at most 1016 bytes) and ``template <int CHANNELS> __device__ int
    NAME(const uint32* histogram, uint32 pixels, int channel, int value, const NAME_params& p)``: what becomes of
    ``value`` in that channel (saturated to 0–255), where value v came ``histogram[256 * c + v]`` times in channel c of
    a picture of ``pixels`` pixels.
    """

    kind = OpKind.GLOBAL
    cuda_source: ClassVar[str]

    @abstractmethod
    def tables(self, histogram: npt.NDArray[np.int64], params: P) -> Pixels:
        """(C, 256) uint8 from (C, 256) counts: the same whole numbers as the CUDA form."""

    def radius(self, params: P) -> int:
        return 0

    def run_cpu(self, src: Pixels, dst: Pixels, params: P, scratch: Scratch) -> None:
        counts = histogram(src)
        before = scratch.array("histogram", counts.shape, np.int64)
        tables = self.tables(before if of_previous(params) and scratch.frames else counts, params)
        before[...] = counts
        if (tables == tables[0]).all():
            look_up(src, np.ascontiguousarray(tables[0]), dst)  # one for all channels takes half the time
        else:
            cv2.LUT(src, np.ascontiguousarray(tables.T)[None], dst=dst)


class LocalStatisticOp(Op[P]):
    """A table of brightnesses for each region of the picture; a pixel lies between those of the nearest four.

    ``grid`` lays regions over the picture (:mod:`kernels.local_tables`). A region's histogram counts what ``grayscale``
    would make of its pixels; by as much as their tables move that brightness, all channels of a pixel are moved.
    ``cuda_source`` defines ``struct NAME_params`` (at most 1016 bytes), which starts with ``Grid grid`` and goes on
    with ``table_constants()``, and ``__device__ int NAME(const uint32* histogram, uint32 pixels, int value, const
    NAME_params& p)``: what becomes of a brightness (saturated to 0–255) that comes ``histogram[value]`` times in a
    region of ``pixels`` pixels. ``statistic`` among the parameters is as with a ``StatisticOp``; where the grid is
    another than in the frame before, a frame's is its own.
    """

    kind = OpKind.GLOBAL
    cuda_source: ClassVar[str]

    @abstractmethod
    def grid(self, params: P) -> tuple[int, int]:
        """Regions across and down, 1 to ``MAX_GRID`` each."""

    @abstractmethod
    def tables(self, histograms: npt.NDArray[np.int64], params: P) -> Pixels:
        """(R, 256) uint8 from (R, 256) counts: the same whole numbers as the CUDA form."""

    def table_constants(self, params: P) -> bytes:
        """What ``struct NAME_params`` holds behind the grid."""
        return b""

    def radius(self, params: P) -> int:
        return 0

    def constants(self, params: P) -> bytes:
        return np.array(self.grid(params), np.int32).tobytes() + self.table_constants(params)

    def run_cpu(self, src: Pixels, dst: Pixels, params: P, scratch: Scratch) -> None:
        grid = self.grid(params)
        regions = Regions(src.shape[1], src.shape[0], *grid)
        brightness = src
        if src.ndim == 3:
            brightness = scratch.array("brightness", src.shape[:2], np.uint8)
            cv2.cvtColor(src, cv2.COLOR_BGR2GRAY, dst=brightness)
        counts = regions.histograms(brightness)
        before = scratch.array("histograms", counts.shape, np.int64)
        seen = scratch.array("grid", (2,), np.int64)
        previous = of_previous(params) and scratch.frames > 0 and tuple(seen) == grid
        tables = self.tables(before if previous else counts, params)
        before[...], seen[...] = counts, grid
        look_up_between(regions, src, brightness, tables, dst, scratch.array)


class ComponentsOp(Op[P]):
    """A GRAY8 mask of all that hangs together, over eight neighbours, with a pixel that is certain.

    ``cuda_source`` defines ``struct NAME_params`` (at most 1016 bytes), with the layout of ``constants()``;
    ``template <int CHANNELS, class At> __device__ int NAME_measure(At at, const NAME_params& p)``: 32 bits about a
    pixel, from the values ``at(dx, dy, channel)`` up to one pixel around it, which beyond the picture's sides are
    those of its edge; and ``template <class At> __device__ int NAME_class(At at, const NAME_params& p)``: 0 for
    nothing, 1 for what may belong to the mask, 2 for what is certain, from the measures ``at(dx, dy)`` up to one pixel
    around, which beyond the sides are 0.
    """

    kind = OpKind.GLOBAL
    cuda_source: ClassVar[str]

    def radius(self, params: P) -> int:
        return 0


def of_previous(params: OpParams) -> bool:
    """True if an op with these parameters uses what was counted in the frame before."""
    return getattr(params, "statistic", "frame") == "previous"


class SeparableOp(Op[P]):
    """A stencil whose taps are the same integers along both axes, symmetric.

    The result is ``(Σ_j Σ_i taps[j]·taps[i]·v + 2^15) >> 16`` for taps of sum 256: exact in 32 bits, constant pictures
    unchanged. An op that makes something else of that sum has a ``cuda_source``: it defines ``struct NAME_params``,
    which starts with ``Taps taps`` and goes on with the layout of ``finish_constants()``, and
    ``__device__ int NAME(uint32 sum, int centre, const NAME_params& p)``, where ``centre`` is the value (0–255) in the
    window's middle; the return value is saturated to 0–255. The sum of the taps is then at most 256. An op that takes
    16 bits is ``template <class Value = uint8>``; sums are then below 2^32.
    """

    kind = OpKind.STENCIL
    cuda_source: ClassVar[str] = ""

    @abstractmethod
    def taps(self, params: P) -> npt.NDArray[np.uint16]:
        """(2r + 1,) uint16, symmetric, sum 256 or, with a ``cuda_source``, less."""

    def finish_constants(self, params: P) -> bytes:
        """What ``struct NAME_params`` holds behind the taps."""
        return b""

    def radius(self, params: P) -> int:
        return (len(self.taps(params)) - 1) // 2

    def constants(self, params: P) -> bytes:
        taps = self.taps(params)
        padded = np.zeros(2 * MAX_RADIUS_PX + 2, np.uint16)
        padded[: len(taps)] = taps
        return padded.tobytes() + self.finish_constants(params)


class MorphologyOp(Op[P]):
    """Least or greatest values of a square window, in steps: erode is ``("min",)``, open ``("min", "max")``.

    Each step reads the whole result of the one before, border reflect-101.
    """

    kind = OpKind.STENCIL
    steps: ClassVar[tuple[Literal["min", "max"], ...]]

    @abstractmethod
    def step_radius(self, params: P) -> int:
        """The window's radius in pixels, the same for each step; over all steps at most ``MAX_RADIUS_PX``."""

    def radius(self, params: P) -> int:
        return self.step_radius(params) * len(self.steps)

    def constants(self, params: P) -> bytes:
        return b""


class WindowOp(Op[P]):
    """A stencil given as a CUDA function of the values around a pixel.

    ``cuda_source`` defines ``struct NAME_params``, with the layout of ``constants()``, and
    ``template <class At> __device__ int NAME(At at, const NAME_params& p)``, where
    ``at(dx, dy)`` is the value (0–255) of the same channel at that offset in pixels, border reflect-101, |dx| and
    |dy| at most the radius; the return value is saturated to 0–255. ``fixed_radius`` is the window's radius where it
    does not depend on parameters (the window then stays in registers: keep dx and dy constant), else 0. Of 16 bits
    ``At::Sum`` holds sums of more than 2^15 values, and ``At::LEVEL`` is 257, else 1.
    """

    kind = OpKind.STENCIL
    cuda_source: ClassVar[str]
    fixed_radius: ClassVar[int] = 0

    @property
    def max_radius(self) -> int:
        return self.fixed_radius or MAX_RADIUS_PX

    def radius(self, params: P) -> int:
        return self.fixed_radius


class PixelOp(Op[P]):
    """An op that makes whole pixels, from anywhere in the source: other channels, another size, another place.

    ``cuda_source`` defines ``struct NAME_params``, with the layout of ``constants()``, and
    ``template <int CHANNELS> __device__ void NAME(const Picture<CHANNELS>& in, int x, int y, Size size,
    const NAME_params& p, uint8* out)``, which writes the channels of pixel (x, y) of the result, ``size`` pixels large,
    to ``out``; ``in.at(x, y)`` is where the channels of a pixel of the source lie. A ``POINT`` reads pixel (x, y) only,
    a ``STENCIL`` up to its radius around it, outside the picture the reflection, a ``GATHER`` any inside ``in.size``.
    An op that takes 16 bits is ``template <int CHANNELS, class Value>`` on ``const Picture<CHANNELS, Value>& in`` and
    ``Value* out``; ``Depth<Value>`` says what it may need (pixel.cuh).
    """

    cuda_source: ClassVar[str]

    def radius(self, params: P) -> int:
        return 0


class TextOp(PixelOp[P]):
    """A point op that writes what is known of a frame into it.

    The CUDA function takes ``const uint8* text`` between ``p`` and ``out``: what ``text`` made for this frame, and
    zeros up to ``MAX_TEXT_BYTES``. ``run_cpu`` makes it of ``scratch.stamp``.
    """

    kind = OpKind.POINT

    @abstractmethod
    def text(self, params: P, stamp: Stamp) -> bytes:
        """The frame's text, at most ``MAX_TEXT_BYTES`` of it; quick, as it is made for each frame."""
