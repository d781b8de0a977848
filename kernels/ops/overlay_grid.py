from __future__ import annotations

import math

import cv2
import numpy as np
from pydantic import Field

from kernels import wide_cpu
from kernels.image import Values
from kernels.op import OpKind, OpParams, PixelOp, Scratch
from kernels.params import Color, bgr, fill_of, grey
from kernels.stencil_cpu import bands


class OverlayGridParams(OpParams):
    spacing: int = Field(
        default=64, ge=4, le=4096, description="From one line to the next; the first are at the left and the top edge.",
        json_schema_extra={"x-unit": "px", "x-step": 1},
    )  # fmt: skip
    thickness: int = Field(
        default=1, ge=1, le=64, description="How wide the lines are; from spacing on they cover everything.",
        json_schema_extra={"x-unit": "px", "x-step": 1},
    )  # fmt: skip
    color: Color = Field(default="#ffffff", description="Of the lines; grey pictures show its luma.")
    opacity: float = Field(
        default=0.5, ge=0.0, le=1.0, description="0 shows no lines, 1 nothing of what is below them.",
        json_schema_extra={"x-unit": "", "x-step": 0.05},
    )  # fmt: skip


class OverlayGrid(PixelOp[OverlayGridParams]):
    """Draws a grid of lines over the picture: pixel (x, y) where x mod spacing or y mod spacing is below thickness.

    There out = (in·(256 − a) + color·a + 128) >> 8 with a = ⌊256·opacity + ½⌋; exact. Source: "over" in Porter
    and Duff, "Compositing Digital Images" (1984).
    """

    name = "overlay_grid"
    kind = OpKind.POINT
    Params = OverlayGridParams
    takes_16_bit = True
    cuda_source = """
struct overlay_grid_params {
  int spacing, thickness;
  int share;  // of the picture, in 1/256
  int added[4];  // for blue, green, red and grey, in 1/256 level; half of one included
};

template <int CHANNELS, class Value>
__device__ __forceinline__ void overlay_grid(const Picture<CHANNELS, Value>& in, int x, int y, Size,
                                             const overlay_grid_params& p, Value* out) {
  const Value* from = in.at(x, y);
  const bool line = x % p.spacing < p.thickness || y % p.spacing < p.thickness;
#pragma unroll
  for (int c = 0; c < CHANNELS; ++c) {
    const int added = (p.added[CHANNELS == 1 ? 3 : c] - 128) * Depth<Value>::LEVEL + 128;
    out[c] = line ? (from[c] * p.share + added) >> 8 : from[c];
  }
}
"""

    def constants(self, params: OverlayGridParams) -> bytes:
        opaque = _opaque(params)
        added = [value * opaque + 128 for value in (*bgr(params.color), grey(params.color))]
        return np.array([params.spacing, params.thickness, 256 - opaque, *added], np.int32).tobytes()

    def run_cpu(self, src: Values, dst: Values, params: OverlayGridParams, scratch: Scratch) -> None:
        opaque, (height, width) = _opaque(params), src.shape[:2]
        if src.dtype == np.uint16:
            _run_wide(src, dst, params, scratch)
            return
        fill = np.array(fill_of(params.color, src), np.int32)
        below = np.arange(256, dtype=np.int32)[:, None] * (256 - opaque)
        table = ((below + fill * opaque + 128) >> 8).astype(np.uint8)[None]
        if params.thickness >= params.spacing:
            cv2.LUT(src, table, dst=dst)
            return
        np.copyto(dst, src)
        if opaque == 0:
            return
        # From the source, so that a crossing is drawn once.
        if params.thickness * params.spacing < width:  # fewer columns in a line than lines
            for left in range(params.thickness):
                every = src[:, left :: params.spacing]
                column = scratch.array("overlay_grid.columns", every.shape, np.uint8)
                np.copyto(column, every)
                dst[:, left :: params.spacing] = cv2.LUT(column, table, dst=column)
        else:
            for left in range(0, width, params.spacing):
                columns = slice(left, left + params.thickness)
                cv2.LUT(src[:, columns], table, dst=dst[:, columns])
        for top in range(0, height, params.spacing):
            rows = slice(top, top + params.thickness)
            cv2.LUT(src[rows], table, dst=dst[rows])


def _run_wide(src: Values, dst: Values, params: OverlayGridParams, scratch: Scratch) -> None:
    opaque, (height, width) = _opaque(params), src.shape[:2]
    added = np.array(fill_of(params.color, src), np.int32) * opaque + 128
    across, down = (np.arange(side) % params.spacing < params.thickness for side in (width, height))
    for band, _, _ in bands(height, 0, wide_cpu.band_rows(src)):
        drawn = scratch.array("wide.drawn", src[band].shape, np.int32)
        np.add(np.multiply(src[band], 256 - opaque, out=drawn, dtype=np.int32), added, out=drawn)
        np.right_shift(drawn, 8, out=drawn)
        line = (down[band, None] | across).reshape(-1, width, *[1] * (src.ndim - 2))
        np.copyto(dst[band], src[band])
        np.copyto(dst[band], drawn, where=line, casting="unsafe")


def _opaque(params: OverlayGridParams) -> int:
    return math.floor(256 * params.opacity + 0.5)
