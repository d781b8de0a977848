from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from typing import Annotated

import numpy as np
from pydantic import Field, ValidationInfo, field_validator

from kernels.image import MAX_SIDE_PX, Shape, Values
from kernels.op import OpKind, OpParams, PixelOp, Scratch
from kernels.params import FROM_LIST
from kernels.sampling import Border, Fill, Height, Interpolation, Points, Sampling, Width, points_of_ratio, sample

_LARGEST = 1 << 55  # of a numerator or denominator
_IDENTITY = (1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0)

Entry = Annotated[float, Field(ge=-1e6, le=1e6)]
Ints = tuple[int, ...]


class WarpPerspectiveParams(OpParams):
    corners: Annotated[tuple[Entry, ...], Field(min_length=0, max_length=8), FROM_LIST] = Field(
        default=(),
        description="x, y of what becomes the top left, top right, bottom right and bottom left corner of the result.",
        examples=[[200, 100, 1080, 100, 1279, 719, 0, 719]],
        json_schema_extra={"x-unit": "px"},
    )
    matrix: Annotated[tuple[Entry, ...], Field(min_length=9, max_length=9), FROM_LIST] = Field(
        default=_IDENTITY,
        description="Instead of corners: three rows that lead from the picture to the result, as OpenCV has them.",
        json_schema_extra={"x-unit": ""},
    )
    width: Width = 0
    height: Height = 0
    interpolation: Interpolation = "linear"
    border: Border = "constant"
    fill: Fill = "#000000"

    @field_validator("corners")
    @classmethod
    def _are_a_quadrilateral(cls, corners: tuple[float, ...]) -> tuple[float, ...]:
        if corners:
            from_corners(corners)
        return corners

    @field_validator("matrix")
    @classmethod
    def _can_be_inverted(cls, matrix: tuple[float, ...], info: ValidationInfo) -> tuple[float, ...]:
        if info.data.get("corners") and matrix != _IDENTITY:
            raise ValueError("corners and a matrix exclude each other: leave one of them out")
        inverse(matrix)
        return matrix


class WarpPerspective(PixelOp[WarpPerspectiveParams]):
    """Straightens a plane seen at an angle: four corners of it, or a 3x3 matrix, to the whole result.

    Pixel (x, y) of the result shows the point (A, B) / C of the picture, rounded half up to 1/32 px, where A, B and C
    are a·x + b·y + c with whole numbers: the adjugate of the matrix, or what leads from the unit square to the corners,
    times the greatest power of two at which (|a| + |b|)·2^14 + |c|, or |a| + |b| + |c|, is at most 2^55 in each row,
    rounded half up. With corners, a and b are then divided by the result's width − 1 and height − 1 (at least 1),
    rounded half up: the corners are centres of pixels. C = 0 is outside. As OpenCV's warpPerspective and
    getPerspectiveTransform.
    """

    name = "warp_perspective"
    kind = OpKind.GATHER
    Params = WarpPerspectiveParams
    takes_16_bit = True
    cuda_source = """
struct warp_perspective_params {
  int64 rows[9];
  int from_corners;
  Sampling sampling;
};

__device__ __forceinline__ int64 divided(int64 value, int by) {
  const int64 twice = 2 * value + by, whole = twice / (2 * by);
  return whole - (whole * 2 * by > twice);
}

template <int CHANNELS, class Value>
__device__ __forceinline__ void warp_perspective(const Picture<CHANNELS, Value>& in, int x, int y, Size size,
                                                 const warp_perspective_params& p, Value* out) {
  int64 sums[3];
#pragma unroll
  for (int r = 0; r < 3; ++r) {
    int64 right = p.rows[3 * r], below = p.rows[3 * r + 1];
    if (p.from_corners) {
      right = divided(right, max(size.width - 1, 1));
      below = divided(below, max(size.height - 1, 1));
    }
    sums[r] = right * x + below * y + p.rows[3 * r + 2];
  }
  sample(in, point_of_ratio(sums[0], sums[2]), point_of_ratio(sums[1], sums[2]), p.sampling, out);
}
"""

    def output(self, source: Shape, params: WarpPerspectiveParams) -> Shape:
        return replace(source, width=params.width or source.width, height=params.height or source.height)

    def constants(self, params: WarpPerspectiveParams) -> bytes:
        rows = np.array(_rows(params), np.int64).tobytes()
        return rows + np.array(len(params.corners) > 0, np.int32).tobytes() + _sampling(params).constants()

    def run_cpu(self, src: Values, dst: Values, params: WarpPerspectiveParams, scratch: Scratch) -> None:
        height, width = dst.shape[:2]
        rows = list(_rows(params))
        if params.corners:
            rows[0::3] = (_divided(value, max(width - 1, 1)) for value in rows[0::3])
            rows[1::3] = (_divided(value, max(height - 1, 1)) for value in rows[1::3])
        x = np.arange(width, dtype=np.int64)

        def points(first: int, last: int) -> tuple[Points, Points]:
            y = np.arange(first, last, dtype=np.int64)[:, None]
            sums = [x * right + (y * below + start) for right, below, start in zip(*[iter(rows)] * 3, strict=True)]
            return points_of_ratio(sums[0], sums[2]), points_of_ratio(sums[1], sums[2])

        sample(self.name, (params.corners, params.matrix), points, src, dst, _sampling(params), scratch)


def _sampling(params: WarpPerspectiveParams) -> Sampling:
    return Sampling(params.interpolation, params.border, params.fill)


def _rows(params: WarpPerspectiveParams) -> Ints:
    return from_corners(params.corners) if params.corners else inverse(params.matrix)


def _divided(value: int, by: int) -> int:
    return (2 * value + by) // (2 * by)


@lru_cache(maxsize=64)
def inverse(matrix: tuple[float, ...]) -> Ints:
    """From pixels of the result to the picture, in whole numbers.

    Raises:
        ValueError: the matrix has no inverse.
    """
    a, b, c, d, e, f, g, h, i = map(Fraction, matrix)
    adjugate = (
        e * i - f * h, c * h - b * i, b * f - c * e,
        f * g - d * i, a * i - c * g, c * d - a * f,
        d * h - e * g, b * g - a * h, a * e - b * d,
    )  # fmt: skip
    if a * adjugate[0] + b * adjugate[3] + c * adjugate[6] == 0:
        raise ValueError("the matrix is singular: it presses the picture flat, so there is no way back")
    return _in_whole_numbers(adjugate, MAX_SIDE_PX)


@lru_cache(maxsize=64)
def from_corners(corners: tuple[float, ...]) -> Ints:
    """From the unit square to the picture, in whole numbers (Heckbert, Fundamentals of Texture Mapping, 1989, 2.2.3).

    Raises:
        ValueError: they are no corners of a convex quadrilateral, in order.
    """
    if len(corners) != 8:
        raise ValueError(f"four corners are eight numbers, not {len(corners)}")
    x, y = [Fraction(value) for value in corners[0::2]], [Fraction(value) for value in corners[1::2]]
    turns = [
        (x[k] - x[k - 1]) * (y[(k + 1) % 4] - y[k]) - (y[k] - y[k - 1]) * (x[(k + 1) % 4] - x[k]) for k in range(4)
    ]
    if not (all(turn > 0 for turn in turns) or all(turn < 0 for turn in turns)):
        raise ValueError("the corners must be those of a convex quadrilateral, one after the other")
    x1, x2, xs = x[1] - x[2], x[3] - x[2], x[0] - x[1] + x[2] - x[3]
    y1, y2, ys = y[1] - y[2], y[3] - y[2], y[0] - y[1] + y[2] - y[3]
    determinant = x1 * y2 - x2 * y1
    g, h = (xs * y2 - x2 * ys) / determinant, (x1 * ys - xs * y1) / determinant
    rows = (
        x[1] - x[0] + g * x[1], x[3] - x[0] + h * x[3], x[0],
        y[1] - y[0] + g * y[1], y[3] - y[0] + h * y[3], y[0],
        g, h, Fraction(1),
    )  # fmt: skip
    return _in_whole_numbers(rows, 1)


def _in_whole_numbers(rows: tuple[Fraction, ...], reach: int) -> Ints:
    """The rows a, b, c times the greatest power of two at which (|a| + |b|)·reach + |c| is at most 2^55."""
    largest = max((abs(a) + abs(b)) * reach + abs(c) for a, b, c in zip(*[iter(rows)] * 3, strict=True))
    exponent = 54 - (largest.numerator.bit_length() - largest.denominator.bit_length())  # that, or one more
    scale = Fraction(2) ** exponent
    if largest * scale * 2 <= _LARGEST:
        scale *= 2
    return tuple((2 * entry * scale + 1) // 2 for entry in rows)
