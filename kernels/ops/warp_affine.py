from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from typing import Annotated

import numpy as np
from pydantic import Field, field_validator

from kernels.image import Shape, Values
from kernels.op import OpKind, OpParams, PixelOp, Scratch
from kernels.params import FROM_LIST
from kernels.sampling import Border, Fill, Height, Interpolation, Points, Sampling, Width, points_of, sample

_PLACE_BITS = 32  # of the inverse matrix: places are in 1/2^32 px
_MAX_SCALE = 1 << 15
_MAX_OFFSET_PX = 1 << 28

Entry = Annotated[float, Field(ge=-1e6, le=1e6)]


class WarpAffineParams(OpParams):
    matrix: Annotated[tuple[Entry, ...], Field(min_length=6, max_length=6), FROM_LIST] = Field(
        default=(1.0, 0.0, 0.0, 0.0, 1.0, 0.0),
        description="a, b, c, d, e, f: a point (x, y) of the picture goes to (a·x + b·y + c, d·x + e·y + f), in px.",
        json_schema_extra={"x-unit": ""},
    )
    width: Width = 0
    height: Height = 0
    interpolation: Interpolation = "linear"
    border: Border = "constant"
    fill: Fill = "#000000"

    @field_validator("matrix")
    @classmethod
    def _can_be_inverted(cls, matrix: tuple[float, ...]) -> tuple[float, ...]:
        inverse(matrix)
        return matrix


class WarpAffine(PixelOp[WarpAffineParams]):
    """Moves, turns, scales and shears the picture by a 2x3 matrix.

    Pixel p of the result shows the point A⁻¹·(p − b) of the picture: A is the matrix without its last column, b that.
    The matrix leads from the picture to the result, as OpenCV's warpAffine takes it, between centres of pixels. Its
    inverse is computed exactly, rounded to 1/2^32, and leads from each pixel of the result to a point of the picture,
    rounded half up to 1/32 px. A matrix that has no inverse, or shrinks more than 32768 times, is refused.
    """

    name = "warp_affine"
    kind = OpKind.GATHER
    Params = WarpAffineParams
    takes_16_bit = True
    cuda_source = """
struct warp_affine_params {
  int64 to_x[3], to_y[3];  // in 1/2^PLACE_BITS
  Sampling sampling;
};

template <int CHANNELS, class Value>
__device__ __forceinline__ void warp_affine(const Picture<CHANNELS, Value>& in, int x, int y, Size size,
                                            const warp_affine_params& p, Value* out) {
  const int64 from_x = p.to_x[0] * x + p.to_x[1] * y + p.to_x[2];
  const int64 from_y = p.to_y[0] * x + p.to_y[1] * y + p.to_y[2];
  sample(in, point_of(from_x, PLACE_BITS), point_of(from_y, PLACE_BITS), p.sampling, out);
}
"""

    def output(self, source: Shape, params: WarpAffineParams) -> Shape:
        return replace(source, width=params.width or source.width, height=params.height or source.height)

    def constants(self, params: WarpAffineParams) -> bytes:
        return np.array(inverse(params.matrix), np.int64).tobytes() + _sampling(params).constants()

    def run_cpu(self, src: Values, dst: Values, params: WarpAffineParams, scratch: Scratch) -> None:
        matrix = inverse(params.matrix)
        x = np.arange(dst.shape[1], dtype=np.int64)

        def points(first: int, last: int) -> tuple[Points, Points]:
            y = np.arange(first, last, dtype=np.int64)[:, None]
            from_x = x * matrix[0] + (y * matrix[1] + matrix[2])
            from_y = x * matrix[3] + (y * matrix[4] + matrix[5])
            return points_of(from_x, _PLACE_BITS), points_of(from_y, _PLACE_BITS)

        sample(self.name, params.matrix, points, src, dst, _sampling(params), scratch)


def _sampling(params: WarpAffineParams) -> Sampling:
    return Sampling(params.interpolation, params.border, params.fill)


@lru_cache(maxsize=64)
def inverse(matrix: tuple[float, ...]) -> tuple[int, ...]:
    """The inverse of the 2x3 matrix in 1/2^32, rounded from the exact one, row by row.

    Raises:
        ValueError: there is none, or its numbers are out of all proportion to a picture.
    """
    a, b, c, d, e, f = map(Fraction, matrix)
    determinant = a * e - b * d
    if determinant == 0:
        raise ValueError("the matrix is singular: it presses the picture flat, so there is no way back")
    exact = (e, -b, b * f - c * e, -d, a, c * d - a * f)
    entries = [entry / determinant for entry in exact]
    if any(abs(entry) > (_MAX_OFFSET_PX if k % 3 == 2 else _MAX_SCALE) for k, entry in enumerate(entries)):
        raise ValueError(
            "the matrix is nearly singular: it makes the picture more than 32768 times smaller or moves it away"
        )
    return tuple(round(entry * (1 << _PLACE_BITS)) for entry in entries)
