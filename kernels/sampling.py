"""The value at a point between pixels: parameters, CUDA constants and CPU form of all ops that read such points.

A point is in 1/32 px, (0, 0) the centre of the first pixel, at most 2^20 px away; an op says how it comes to its
points, in whole numbers or in operations that IEEE 754 rounds alike everywhere. ``nearest`` is the pixel at
⌊point + ½⌋; ``linear`` weighs the four around it with (32 − f)(32 − g), f(32 − g), (32 − f)g and fg, f and g being the
point's fractions, and is (Σ weight·v + 512) >> 10: OpenCV's remap with fixed-point maps. A pixel outside is, by the
border, the fill, the nearest one inside, or the one mirrored at the edge (reflect-101).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal
from weakref import WeakKeyDictionary

import cv2
import numpy as np
import numpy.typing as npt
from pydantic import Field

from kernels import wide_cpu
from kernels.formats import LEVEL
from kernels.image import MAX_SIDE_PX, Values
from kernels.op import Scratch
from kernels.params import Color, bgr, fill_of, grey

POINT_BITS = 5
FARTHEST = 1 << 25  # 2^20 px
_BAND_POINTS = 1 << 14  # times some tens of bytes of intermediates: a band stays in the cache
_MAPS_PER_OP = 2

Points = npt.NDArray[np.int64]
# (rows, width) points, x and y, of the result's rows from first to last.
PointsOf = Callable[[int, int], tuple[Points, Points]]

Interpolation = Annotated[
    Literal["nearest", "linear"],
    Field(description="linear weighs the four pixels around a point, nearest takes one."),
]
Border = Annotated[
    Literal["constant", "replicate", "reflect_101"],
    Field(description="What is outside: the fill, the edge's pixels, or the picture mirrored at its edge."),
]
Fill = Annotated[Color, Field(description="What a constant border shows; a grey picture takes its grey.")]

_PIXELS = {"x-unit": "px", "x-step": 1}
Width = Annotated[
    int,
    Field(
        ge=0, le=MAX_SIDE_PX, description="Width of the result; 0 is that of the picture.", json_schema_extra=_PIXELS
    ),
]
Height = Annotated[
    int,
    Field(
        ge=0, le=MAX_SIDE_PX, description="Height of the result; 0 is that of the picture.", json_schema_extra=_PIXELS
    ),
]

_INTERPOLATIONS = {"nearest": (0, cv2.INTER_NEAREST), "linear": (1, cv2.INTER_LINEAR)}
_BORDERS = {
    "constant": (0, cv2.BORDER_CONSTANT),
    "replicate": (1, cv2.BORDER_REPLICATE),
    "reflect_101": (2, cv2.BORDER_REFLECT_101),
}


@dataclass(frozen=True, slots=True)
class Sampling:
    """How points are read: ``struct Sampling`` of sampling.cuh."""

    interpolation: str
    border: str
    fill: str

    def constants(self) -> bytes:
        """As the CUDA form reads them."""
        codes = np.array((_INTERPOLATIONS[self.interpolation][0], _BORDERS[self.border][0]), np.int32)
        fill = np.array((*bgr(self.fill), grey(self.fill)), np.uint8)
        wide = fill.astype(np.uint16) * LEVEL[16]
        return codes.tobytes() + fill.tobytes() + wide.astype(np.uint16).tobytes()


@dataclass(slots=True)
class _Maps:
    """What the map in each of an op's buffers is for, the least recently used first."""

    keys: dict[str, Hashable] = field(default_factory=dict)


# Beside an executor's scratch, which holds the maps themselves, and gone with it.
_maps_of: WeakKeyDictionary[Scratch, dict[str, _Maps]] = WeakKeyDictionary()


def sample(
    op: str, parameters: Hashable, points: PointsOf, src: Values, dst: Values, sampling: Sampling, scratch: Scratch
) -> None:
    """Fill ``dst`` with what ``src`` holds at the points.

    The points are asked for when an op has other parameters or pictures of other sizes than the last two times, and
    kept as a map (6 bytes a pixel) in ``scratch`` until then. Blocks.
    """
    height, width = dst.shape[:2]
    maps = _maps_of.setdefault(scratch, {}).setdefault(op, _Maps()).keys
    key = (parameters, sampling.interpolation, sampling.border, src.shape[:2], dst.shape[:2])
    name = next((name for name, made_for in maps.items() if made_for == key), None)
    found = name is not None
    if name is None:
        name = f"{op}.map{len(maps)}" if len(maps) < _MAPS_PER_OP else next(iter(maps))
    maps.pop(name, None)
    pixels = scratch.array(f"{name}.pixels", (height, width, 2), np.int16)
    linear = sampling.interpolation == "linear"
    fractions = scratch.array(f"{name}.fractions", (height, width) if linear else (0, 0), np.uint16)
    if not found:
        _fill_map(pixels, fractions, points, src, sampling)
    maps[name] = key
    if src.dtype == np.uint16:
        border, fill = _BORDERS[sampling.border][1], fill_of(sampling.fill, src)
        wide_cpu.remap(src, pixels, fractions, dst, border, fill, scratch)
        return
    cv2.remap(
        src, pixels, fractions, _INTERPOLATIONS[sampling.interpolation][1], dst=dst,
        borderMode=_BORDERS[sampling.border][1], borderValue=fill_of(sampling.fill, src),
    )  # fmt: skip


def _fill_map(pixels: Any, fractions: Any, points: PointsOf, src: Values, sampling: Sampling) -> None:
    """The points as OpenCV's maps have them: whole pixels in 16 bits, which far points are brought into."""
    height, width = pixels.shape[:2]
    rows = max(1, _BAND_POINTS // width)
    for top in range(0, height, rows):
        bottom = min(top + rows, height)
        for axis, place in enumerate(points(top, bottom)):
            if sampling.interpolation == "nearest":
                place = place + (1 << POINT_BITS >> 1)
            whole = place >> POINT_BITS
            side = src.shape[1 - axis]
            if sampling.border == "reflect_101":
                whole %= max(2 * (side - 1), 1)  # the mirrored picture repeats itself
            else:
                # Beyond that both neighbours are outside: one value, whatever the fraction.
                np.clip(whole, -2, side, out=whole)
            pixels[top:bottom, :, axis] = whole
            if len(fractions):
                fraction = (place & (1 << POINT_BITS) - 1).astype(np.uint16)
                if axis == 0:
                    fractions[top:bottom] = fraction
                else:
                    fractions[top:bottom] += fraction << POINT_BITS


def points_of(places: Points, bits: int) -> Points:
    """Points in 1/32 px, rounded half up, of places in 1/2^bits px: ``point_of`` of sampling.cuh."""
    shift = bits - POINT_BITS
    points: Points = np.clip((places + (1 << shift >> 1)) >> shift, -FARTHEST, FARTHEST)
    return points


def points_of_ratio(numerator: Points, denominator: Points) -> Points:
    """Points in 1/32 px, rounded half up, of numerator / denominator px: ``point_of_ratio`` of sampling.cuh."""
    sign = np.sign(denominator)
    numerator, denominator = numerator * sign, np.abs(denominator)
    points: Points = np.clip((64 * numerator + denominator) // np.maximum(2 * denominator, 1), -FARTHEST, FARTHEST)
    points[sign == 0] = -FARTHEST
    return points
