from __future__ import annotations

from functools import lru_cache
from typing import Annotated, Literal

import cv2
import numpy as np
import numpy.typing as npt
from pydantic import Field, ValidationInfo, field_validator

from kernels import regions
from kernels.image import MAX_SIDE_PX, Values
from kernels.op import OpKind, OpParams, PixelOp, Scratch
from kernels.params import FROM_LIST, Color, bgr, fill_of, grey
from kernels.regions import Box, Polygon, Rectangle
from kernels.resample_cpu import pick

Place = Annotated[float, Field(ge=0.0, le=MAX_SIDE_PX)]


class PrivacyMaskParams(OpParams):
    unit: Literal["fraction", "px"] = Field(
        default="fraction", description="What places are in: fractions of the picture's width and height, or pixels."
    )
    rectangles: Annotated[
        tuple[Annotated[tuple[Place, ...], Field(min_length=4, max_length=4)], ...],
        Field(max_length=regions.MAX_RECTANGLES),
        FROM_LIST,
    ] = Field(
        default=((0.25, 0.25, 0.5, 0.5),),
        description="Each [left, top, width, height]; up to 8.",
        json_schema_extra={"x-unit": ""},
    )
    polygons: Annotated[
        tuple[
            Annotated[
                tuple[Annotated[tuple[Place, ...], Field(min_length=2, max_length=2)], ...],
                Field(min_length=3, max_length=regions.MAX_POINTS),
            ],
            ...,
        ],
        Field(max_length=regions.MAX_POLYGONS),
        FROM_LIST,
    ] = Field(
        default=(),
        description="Each a list of 3 to 16 points [x, y]; up to 6. Where one overlaps itself it hides nothing.",
        examples=[[[[0.1, 0.9], [0.5, 0.2], [0.9, 0.9]]]],
        json_schema_extra={"x-unit": ""},
    )
    mode: Literal["fill", "pixelate"] = Field(
        default="fill", description="fill leaves nothing; pixelate large blocks, each of one colour."
    )
    color: Color = Field(default="#000000", description="What fill fills with; grey pictures show its luma.")
    block: int = Field(
        default=16, ge=4, le=512, description="Width and height of the blocks of pixelate.",
        json_schema_extra={"x-unit": "px", "x-step": 1},
    )  # fmt: skip

    @field_validator("rectangles", "polygons")
    @classmethod
    def _in_the_unit(
        cls, value: tuple[Rectangle, ...] | tuple[Polygon, ...], info: ValidationInfo
    ) -> tuple[Rectangle, ...] | tuple[Polygon, ...]:
        # Places beyond the picture would mask nothing, silently.
        if info.data.get("unit") == "fraction" and (largest := _largest(value)) > 1:
            raise ValueError(f'{largest:g} is more than the whole picture, 1; pixels need unit="px"')
        return value


class PrivacyMask(PixelOp[PrivacyMaskParams]):
    """Hides rectangles and polygons: filled with a colour, or in blocks of one colour each.

    A pixel is hidden if its centre is inside (places in 1/65536 of the sides or of a pixel; polygons by the even-odd
    rule). Blocks start at the picture's top left corner; the last ones end with it. A block w pixels wide has the mean,
    (Σ + 8) >> 4, of the 16 pixels at ⌊(2i + 1)·w / 8⌋, i = 0…3, across and likewise down. Exact. Results alone are
    masked: who may see the service may also ask for the camera's own picture (``view=source``, the page's "Source").
    Source of the even-odd rule: W3C, "Scalable Vector Graphics (SVG) 2" (2018), fill-rule.
    """

    name = "privacy_mask"
    # Blocks are made of pixels farther away than a stencil may look.
    kind = OpKind.GATHER
    Params = PrivacyMaskParams
    takes_16_bit = True
    cuda_source = (
        regions.CUDA.replace("NAME", "privacy_mask")
        + """
struct privacy_mask_params {
  privacy_mask_regions regions;
  int block;  // 0: filled
  int fill[4];  // blue, green, red and grey
};

template <int CHANNELS, class Value>
__device__ __forceinline__ void privacy_mask(const Picture<CHANNELS, Value>& in, int x, int y, Size size,
                                             const privacy_mask_params& p, Value* out) {
  const Value* from = in.at(x, y);
#pragma unroll
  for (int c = 0; c < CHANNELS; ++c) out[c] = from[c];
  if (!privacy_mask_covers(p.regions, x, y, size.width, size.height)) return;
  if (p.block == 0) {
#pragma unroll
    for (int c = 0; c < CHANNELS; ++c) out[c] = p.fill[CHANNELS == 1 ? 3 : c] * Depth<Value>::LEVEL;
    return;
  }
  const int left = x / p.block * p.block, width = min(p.block, size.width - left);
  const int top = y / p.block * p.block, height = min(p.block, size.height - top);
  int sum[CHANNELS] = {};
  for (int i = 0; i < 16; ++i) {
    const Value* sample = in.at(left + (2 * (i % 4) + 1) * width / 8, top + (2 * (i / 4) + 1) * height / 8);
#pragma unroll
    for (int c = 0; c < CHANNELS; ++c) sum[c] += sample[c];
  }
#pragma unroll
  for (int c = 0; c < CHANNELS; ++c) out[c] = (sum[c] + 8) >> 4;
}
"""
    )

    def constants(self, params: PrivacyMaskParams) -> bytes:
        block = params.block if params.mode == "pixelate" else 0
        rest = np.array([block, *bgr(params.color), grey(params.color)], np.int32)
        return regions.constants(params.rectangles, params.polygons, params.unit).tobytes() + rest.tobytes()

    def run_cpu(self, src: Values, dst: Values, params: PrivacyMaskParams, scratch: Scratch) -> None:
        height, width = src.shape[:2]
        fills = params.mode == "fill"
        rows = height if fills else params.block
        hidden = _boxes(params.rectangles, params.polygons, params.unit, width, height, rows)
        np.copyto(dst, src)
        if not fills:
            _pixelate(src, dst, hidden, params.block, scratch)
            return
        row = scratch.array("privacy_mask.row", (width, *src.shape[2:]), src.dtype)
        row[...] = fill_of(params.color, src)
        for top, bottom, left, right in hidden:
            dst[top:bottom, left:right] = row[left:right]


# As many as cameras may have masks; a few kilobytes each.
_boxes = lru_cache(maxsize=64)(regions.boxes)

_BAND_SAMPLES = 1 << 15  # times 16 bytes of intermediates: a band stays in the L2 cache


def _pixelate(src: Values, dst: Values, hidden: tuple[Box, ...], block: int, scratch: Scratch) -> None:
    """Fill boxes, none of which lies in two rows of blocks, with their blocks' colours."""
    if not hidden:
        return
    left, right = min(box.left for box in hidden) // block, (max(box.right for box in hidden) - 1) // block + 1
    blocks, rest = right - left, src.shape[2:]
    columns = _samples(src.shape[1], block)[4 * left : 4 * right]
    rows = _samples(src.shape[0], block)
    first_column = left * block
    block_of = np.arange(min(right * block, src.shape[1]) - first_column, dtype=np.intp) // block
    most = max(1, _BAND_SAMPLES // (16 * blocks))
    samples = scratch.array("privacy_mask.samples", (4 * most, 4 * blocks, *rest), src.dtype)
    values = scratch.array("privacy_mask.values", samples.shape, np.float32)
    means = scratch.array("privacy_mask.means", (most, blocks, *rest), np.float32)
    colors = scratch.array("privacy_mask.colors", means.shape, src.dtype)
    lines = scratch.array("privacy_mask.lines", (most, len(block_of), *rest), src.dtype)

    start = 0
    while start < len(hidden):
        band = hidden[start].top // block
        end = start
        while end < len(hidden) and hidden[end].top // block < band + most:
            end += 1
        n = hidden[end - 1].top // block + 1 - band
        pick(src, samples[: 4 * n], columns, rows[4 * band : 4 * (band + n)], scratch)
        np.copyto(values[: 4 * n], samples[: 4 * n])
        # Sums of 16 values and sixteenths are exact in 32-bit floats. Half up: OpenCV rounds half to even, and 1/64
        # leaves no halves.
        cv2.resize(values[: 4 * n], (blocks, n), dst=means[:n], interpolation=cv2.INTER_AREA)
        if src.dtype == np.uint8:
            cv2.convertScaleAbs(means[:n], dst=colors[:n], alpha=1, beta=1 / 64)
        else:
            np.copyto(colors[:n], np.add(means[:n], 0.5, out=means[:n]), casting="unsafe")
        pick(colors[:n], lines[:n], block_of, np.arange(n), scratch)
        for box in hidden[start:end]:
            line = lines[box.top // block - band, box.left - first_column : box.right - first_column]
            dst[box.top : box.bottom, box.left : box.right] = line
        start = end


@lru_cache(maxsize=64)
def _samples(size: int, block: int) -> npt.NDArray[np.intp]:
    """Along one axis, the four places that each block is made of, one after the other."""
    first = np.arange(0, size, block, dtype=np.intp)[:, None]
    return (first + (2 * np.arange(4) + 1) * np.minimum(block, size - first) // 8).ravel()


def _largest(value: object) -> float:
    """The largest number in nested tuples."""
    if isinstance(value, tuple):
        return max(map(_largest, value), default=0.0)
    assert isinstance(value, float)
    return value
