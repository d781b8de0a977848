from __future__ import annotations

from functools import lru_cache
from typing import Annotated

import cv2
import numpy as np
import numpy.typing as npt
from pydantic import Field, model_validator

from kernels import wide_cpu
from kernels.formats import LEVEL
from kernels.image import Pixels, Values
from kernels.op import OpParams, Scratch, WindowOp
from kernels.params import FROM_LIST
from kernels.stencil_cpu import bands, padded

MAX_KSIZE = 15
MAX_SHIFT = 14
MAX_MAGNITUDE = 1 << 14

_MOST_TAPS = 129  # from 130 on OpenCV goes over Fourier transforms, which are not exact
_BAND_VALUES = 1 << 17  # times 13 bytes of intermediates: a band stays in the L2 cache

Weight = Annotated[float, Field(ge=-1000.0, le=1000.0)]
Row = Annotated[tuple[Weight, ...], Field(min_length=1, max_length=MAX_KSIZE)]


class Filter2dParams(OpParams):
    weights: Annotated[tuple[Row, ...], Field(min_length=1, max_length=MAX_KSIZE), FROM_LIST] = Field(
        default=((0.0, -1.0, 0.0), (-1.0, 5.0, -1.0), (0.0, -1.0, 0.0)),
        description="Rows of weights, from the top; as many in each, both numbers odd.",
        json_schema_extra={"x-unit": ""},
    )
    normalize: bool = Field(
        default=False, description="Divide the weights by their sum, unless it is 0: flat areas stay as bright.",
        json_schema_extra={"x-unit": ""},
    )  # fmt: skip
    offset: int = Field(
        default=0, ge=-255, le=255,
        description="Added to the result; 128 shows negative sums. Of 16 bits a level is 257.",
        json_schema_extra={"x-unit": "levels", "x-step": 1},
    )  # fmt: skip

    @model_validator(mode="after")
    def _fits(self) -> Filter2dParams:
        widths = {len(row) for row in self.weights}
        if len(widths) > 1:
            raise ValueError("weights must have rows of the same length")
        if len(self.weights) % 2 == 0 or widths.pop() % 2 == 0:
            raise ValueError("weights must have an odd number of rows and of columns")
        above, below = _ratios(self)
        if sum(abs(number) for row in above for number in row) > MAX_MAGNITUDE * below:
            what = "divided by their sum" if self.normalize else "as they are"
            raise ValueError(f"weights are too large: {what}, their magnitudes add up to more than {MAX_MAGNITUDE}")
        return self


class Filter2d(WindowOp[Filter2dParams]):
    """The weighted sum of the values around each pixel, with weights of your own, plus an offset; saturated.

    As cv2.filter2D a correlation: the first weight belongs to the upper left neighbour; border reflect-101. The weights
    are used in 1/2^k, rounded half up, the middle one such that their sum is the real sum's nearest; k is the largest
    up to 14 with 510·(Σ|w| + 2^k) below 2^24, w in these units. (Σ w·v + offset·2^k + 2^(k−1)) >> k: exact, also in
    the 32-bit floats of OpenCV. Whole numbers, and with ``normalize`` flat areas, are exact.
    """

    name = "filter2d"
    Params = Filter2dParams
    takes_16_bit = True
    cuda_source = """
struct filter2d_params {
  int across, down;  // weights
  int shift;         // they are in 1/2^shift
  int bias;          // the offset and a half, in these units
  short weight[15 * 15];
};

template <class At>
__device__ __forceinline__ typename At::Sum filter2d(At at, const filter2d_params& p) {
  typedef typename At::Sum Sum;
  const int half = (1 << p.shift) >> 1;
  Sum sum = (Sum)(p.bias - half) * At::LEVEL + half;
  for (int row = 0; row < p.down; ++row)
    for (int column = 0; column < p.across; ++column)
      sum += (Sum)p.weight[row * p.across + column] * at(column - p.across / 2, row - p.down / 2);
  return sum >> p.shift;
}
"""

    @property
    def max_radius(self) -> int:
        return MAX_KSIZE // 2

    def radius(self, params: Filter2dParams) -> int:
        return max(len(params.weights), len(params.weights[0])) // 2

    def constants(self, params: Filter2dParams) -> bytes:
        weights, shift = whole_weights(params)
        bias = (params.offset << shift) + (1 << shift >> 1)
        head = np.array((weights.shape[1], weights.shape[0], shift, bias), np.int32)
        room = np.zeros(MAX_KSIZE * MAX_KSIZE + 1, np.int16)
        room[: weights.size] = weights.reshape(-1)
        return head.tobytes() + room.tobytes()

    def run_cpu(self, src: Values, dst: Values, params: Filter2dParams, scratch: Scratch) -> None:
        weights, shift = whole_weights(params)
        if src.dtype == np.uint16:
            offset = params.offset * LEVEL[16] + 0.5
            wide_cpu.weighed(src, dst, weights / (1 << shift), offset, scratch, magnitude=False)
            return
        kernel = (weights / (1 << shift)).astype(np.float32)
        # All sums are whole numbers in 1/2^k. Half of that added, none is at a tie, which OpenCV would round to even.
        offset = params.offset + 0.5 / (1 << shift)
        if weights.size <= _MOST_TAPS:
            cv2.filter2D(src, -1, kernel, dst=dst, delta=offset, borderType=cv2.BORDER_REFLECT_101)
        else:
            _filter_in_halves(src, dst, kernel, offset, self.radius(params), scratch)


def _filter_in_halves(
    src: Pixels, dst: Pixels, kernel: npt.NDArray[np.float32], offset: float, radius: int, scratch: Scratch
) -> None:
    """The upper rows of the weights and the lower ones, added up in floats; over bands."""
    height, width = src.shape[:2]
    upper, lower = np.array_split(kernel, 2)
    middle_row, middle = len(kernel) // 2, kernel.shape[1] // 2
    lower_middle = len(lower) // 2
    rows = max(1, _BAND_VALUES // src[0].size)
    for band, _, _ in bands(height, 0, rows):
        part = padded(src, band, slice(0, width), radius, scratch)
        floats = scratch.array("floats", part.shape, np.float32)
        np.copyto(floats, part)
        sums = scratch.array("sums", (2, *part.shape), np.float32)
        cv2.filter2D(floats, -1, upper, dst=sums[0], anchor=(middle, middle_row), delta=offset)
        cv2.filter2D(floats, -1, lower, dst=sums[1], anchor=(middle, lower_middle))
        # Where the middle of the lower weights lies when that of all of them lies on the band.
        down = radius + len(upper) + lower_middle - middle_row
        inner, count = slice(radius, radius + width), band.stop - band.start
        parts = sums[0, radius : radius + count, inner], sums[1, down : down + count, inner]
        cv2.add(*parts, dst=dst[band], dtype=cv2.CV_8U)


def _ratios(params: Filter2dParams) -> tuple[list[list[int]], int]:
    """The weights, normalised if asked for, as numerators and one positive denominator; exact."""
    pairs = [[weight.as_integer_ratio() for weight in row] for row in params.weights]
    common = max(below for row in pairs for _, below in row)  # powers of two
    above = [[number * (common // below) for number, below in row] for row in pairs]
    whole = sum(map(sum, above)) if params.normalize else 0
    if whole < 0:
        return [[-number for number in row] for row in above], -whole
    return above, whole or common


@lru_cache(maxsize=64)
def whole_weights(params: Filter2dParams) -> tuple[npt.NDArray[np.int16], int]:
    """The weights in 1/2^k, (rows, columns) int16, and k."""
    above, below = _ratios(params)
    for shift in range(MAX_SHIFT, -1, -1):
        units = np.array([[_nearest(number << shift, below) for number in row] for row in above])
        middle = units.shape[0] // 2, units.shape[1] // 2
        units[middle] += _nearest(sum(map(sum, above)) << shift, below) - int(units.sum())
        if 510 * (int(np.abs(units).sum()) + (1 << shift)) < 1 << 24:
            break
    return units.astype(np.int16), shift


def _nearest(above: int, below: int) -> int:
    """The fraction, rounded half up."""
    return (2 * above + below) // (2 * below)
