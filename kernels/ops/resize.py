from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache
from typing import Literal

import cv2
import numpy as np
import numpy.typing as npt
from pydantic import Field

from kernels import wide_cpu
from kernels.image import MAX_SIDE_PX, Shape, Values
from kernels.op import OpKind, OpParams, PixelOp, Scratch
from kernels.resample_cpu import Taps, pick, weighted_means

Interpolation = Literal["nearest", "linear", "area", "cubic"]
CODES: dict[Interpolation, int] = {"nearest": 0, "linear": 1, "area": 2, "cubic": 3}  # as resample.cuh has them


class ResizeParams(OpParams):
    width: int = Field(
        default=0, ge=0, le=MAX_SIDE_PX, description="Width of the result; 0 follows from height and keeps the aspect.",
        json_schema_extra={"x-unit": "px", "x-step": 1},
    )  # fmt: skip
    height: int = Field(
        default=0, ge=0, le=MAX_SIDE_PX, description="Height of the result; 0 follows from width. Both 0: as it is.",
        json_schema_extra={"x-unit": "px", "x-step": 1},
    )  # fmt: skip
    interpolation: Interpolation = Field(
        default="linear",
        description="linear weighs 4 pixels, cubic 16; area, for making smaller, is the mean of all that is covered.",
    )


class Resize(PixelOp[ResizeParams]):
    """Changes the size; the pictures' edges coincide (half-pixel centres).

    With W source and w result columns, result column x has its centre at (2x + 1)·W / 2w. Rows alike. Exactly:

    nearest is the column ⌊(2x + 1)·W / 2w⌋, the right one of two that are equally near (OpenCV's NEAREST_EXACT means
    the same but differs between its versions where a centre lies near an edge);

    linear weighs the columns i and i + 1, i = ⌊c⌋ of c = ((2x + 1)·W − w) / 2w, with 256 − k and k,
    k = ⌊256·(c − i) + ½⌋, edges replicated, and is (Σ_j Σ_i weights·v + 2^15) >> 16: OpenCV's LINEAR_EXACT but for
    ties in k;

    area weighs each column by how much of it lies in [x·W / w, (x + 1)·W / w], and is the mean, rounded half up;

    cubic weighs the columns i − 1 to i + 2 by Keys' convolution with a = −3/4 (IEEE Trans. ASSP 29, 1981; OpenCV's
    INTER_CUBIC) at t = k / 256: −¾t(1 − t)², the rest, ¾t + 3/2·t² − 5/4·t³ and −¾t²(1 − t), each rounded half up to
    1/2048, edges replicated, and is (Σ_j Σ_i weights·v + 2^21) >> 22, saturated.

    An aspect that is kept is rounded half up to whole pixels, at least 1 and at most 16384.
    """

    name = "resize"
    kind = OpKind.GATHER
    Params = ResizeParams
    takes_16_bit = True
    cuda_source = """
struct resize_params {
  int interpolation;
};

template <int CHANNELS, class Value>
__device__ __forceinline__ void resize(const Picture<CHANNELS, Value>& in, int x, int y, Size size,
                                       const resize_params& p, Value* out) {
  resample(in, x, y, size, p.interpolation, out);
}
"""

    def output(self, source: Shape, params: ResizeParams) -> Shape:
        width, height = params.width, params.height
        if not (width or height):
            return source
        return replace(
            source,
            width=width or in_proportion(source.width, height, source.height),
            height=height or in_proportion(source.height, width, source.width),
        )

    def constants(self, params: ResizeParams) -> bytes:
        return np.array(CODES[params.interpolation], np.int32).tobytes()

    def run_cpu(self, src: Values, dst: Values, params: ResizeParams, scratch: Scratch) -> None:
        resample(src, dst, params.interpolation, scratch)


def resample(src: Values, dst: Values, interpolation: Interpolation, scratch: Scratch) -> None:
    """Fill ``dst`` with the whole of ``src``, whatever the two sizes: what ``resample`` is in CUDA."""
    across, down = (src.shape[1], dst.shape[1]), (src.shape[0], dst.shape[0])
    halves = all(source == 2 * to for source, to in (across, down))  # (Σ v + 2) >> 2, linear as area
    if interpolation == "linear" and all(source % to == 0 and source // to % 2 for source, to in (across, down)):
        interpolation = "nearest"  # each centre lies on a pixel's: nothing else weighs anything
    if src.shape == dst.shape:
        np.copyto(dst, src)
    elif interpolation == "nearest" and opencv_picks(*across, 0) and opencv_picks(*down, 1):
        cv2.resize(src, (dst.shape[1], dst.shape[0]), dst=dst, interpolation=cv2.INTER_NEAREST_EXACT)
    elif interpolation == "nearest":
        pick(src, dst, nearest(*across), nearest(*down), scratch)
    elif src.dtype == np.uint16:
        taps = {"area": area, "cubic": cubic, "linear": linear}[interpolation]
        wide_cpu.weighted_means(src, dst, taps(*across), taps(*down), scratch)
    elif (interpolation == "area" and opencv_has_means(*across, *down)) or (interpolation == "linear" and halves):
        cv2.resize(src, (dst.shape[1], dst.shape[0]), dst=dst, interpolation=cv2.INTER_AREA)
    elif interpolation == "area":
        weighted_means(src, dst, area(*across), area(*down), scratch)
    elif interpolation == "cubic":
        weighted_means(src, dst, cubic(*across), cubic(*down), scratch)
    elif opencv_agrees(*across) and opencv_agrees(*down):
        cv2.resize(src, (dst.shape[1], dst.shape[0]), dst=dst, interpolation=cv2.INTER_LINEAR_EXACT)
    else:
        weighted_means(src, dst, linear(*across), linear(*down), scratch)


def in_proportion(side: int, to: int, of: int) -> int:
    """``side`` scaled like another side that becomes ``to`` from ``of``."""
    return min(max((2 * side * to + of) // (2 * of), 1), MAX_SIDE_PX)


@lru_cache(maxsize=16)
def nearest(source: int, to: int) -> npt.NDArray[np.intp]:
    """Which place of the source each place of the result takes."""
    return (2 * np.arange(to, dtype=np.intp) + 1) * source // (2 * to)


@lru_cache(maxsize=16)
def linear(source: int, to: int) -> Taps:
    """The two neighbours of each place and their weights in 1/256."""
    centre = (2 * np.arange(to, dtype=np.intp) + 1) * source - to
    first = np.maximum(centre // (2 * to), 0)
    inside = (centre >= 0) & (first < source - 1)
    second = np.where(inside, (256 * (centre - first * 2 * to) + to) // (2 * to), 0)
    index = np.stack([first, np.minimum(first + 1, source - 1)])
    return Taps(index, np.stack([256 - second, second]).astype(np.float32), 256)


@lru_cache(maxsize=16)
def cubic(source: int, to: int) -> Taps:
    """The four neighbours of each place and their weights in 1/2048."""
    centre = (2 * np.arange(to, dtype=np.intp) + 1) * source - to
    second = centre // (2 * to)
    k = (256 * (centre - second * 2 * to) + to) // (2 * to)
    first, third, fourth = (
        (numerator + (1 << 14)) >> 15
        for numerator in (-3 * k * (256 - k) ** 2, ((3 << 16) + (6 << 8) * k - 5 * k * k) * k, -3 * k * k * (256 - k))
    )
    weight = np.stack([first, 2048 - first - third - fourth, third, fourth]).astype(np.float32)
    return Taps(np.clip(second + np.arange(-1, 3)[:, None], 0, source - 1), weight, 2048)


@lru_cache(maxsize=16)
def area(source: int, to: int) -> Taps:
    """The places that each place of the result covers, and how much of each, in 1/to."""
    left = np.arange(to, dtype=np.intp) * source
    index = left // to + np.arange(-(-source // to) + 1)[:, None]
    covered = np.minimum((index + 1) * to, left + source) - np.maximum(index * to, left)
    used = index[(covered > 0).any(axis=1)]
    weight = np.maximum(covered[: len(used)], 0).astype(np.float32)
    return Taps(np.minimum(used, source - 1), weight, source)


@lru_cache(maxsize=64)
def opencv_picks(source: int, to: int, axis: int) -> bool:
    """True if OpenCV's NEAREST_EXACT, which differs between its versions, takes the same places along this axis."""
    places = np.arange(source, dtype=np.uint16)
    line, size = (places[None], (to, 1)) if axis == 0 else (places[:, None], (1, to))
    found = cv2.resize(line, size, interpolation=cv2.INTER_NEAREST_EXACT)
    return bool((found.ravel() == nearest(source, to)).all())


_LARGEST_SHARE = 1 << 10


def opencv_has_means(width: int, to_width: int, height: int, to_height: int) -> bool:
    """True if OpenCV's INTER_AREA rounds each mean as we do.

    It adds up in 32-bit floats, whose error is below 2^-13 level. A mean is a multiple of 1/whole, the product of the
    ratios in lowest terms; if that is odd, none is nearer to a half than 1 / (2 whole), and there are no ties. Halves
    it makes in whole numbers.
    """
    if to_width > width or to_height > height:
        return False  # it takes INTER_LINEAR then
    whole = width // math.gcd(width, to_width) * (height // math.gcd(height, to_height))
    halves = width == 2 * to_width and height == 2 * to_height
    return halves or (whole % 2 == 1 and whole <= _LARGEST_SHARE)


@lru_cache(maxsize=64)
def opencv_agrees(source: int, to: int) -> bool:
    """True if OpenCV, which computes them in 64-bit floats, has the same linear weights along this axis."""
    centre = (1.0 / (to / source)) * (np.arange(to) + 0.5) - 0.5
    first = np.floor(centre)
    inside = (first >= 0) & (first < source - 1)
    second = np.where(inside, np.rint((centre - first) * 256), 0)
    ours = linear(source, to)
    same_place = np.where(second > 0, first == ours.index[0], True)
    return bool((second == ours.weight[1]).all() and same_place.all())
