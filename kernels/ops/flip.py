from __future__ import annotations

from typing import Literal

import cv2
import numpy as np
from pydantic import Field

from kernels.image import Values
from kernels.op import OpKind, OpParams, PixelOp, Scratch

_CODES = {"horizontal": 1, "vertical": 0, "both": -1}  # as cv2.flip has them


class FlipParams(OpParams):
    direction: Literal["horizontal", "vertical", "both"] = Field(
        default="horizontal",
        description="horizontal swaps left and right, vertical top and bottom; both is a half turn.",
    )


class Flip(PixelOp[FlipParams]):
    """Mirrors the picture; exact.

    out(x, y) = in(width − 1 − x, y) horizontally, in(x, height − 1 − y) vertically. As cv2.flip.
    """

    name = "flip"
    kind = OpKind.GATHER
    Params = FlipParams
    takes_16_bit = True
    cuda_source = """
struct flip_params {
  int columns, rows;  // 1: reversed
};

template <int CHANNELS, class Value>
__device__ __forceinline__ void flip(const Picture<CHANNELS, Value>& in, int x, int y, Size size, const flip_params& p,
                                     Value* out) {
  const Value* from = in.at(p.columns ? size.width - 1 - x : x, p.rows ? size.height - 1 - y : y);
#pragma unroll
  for (int c = 0; c < CHANNELS; ++c) out[c] = from[c];
}
"""

    def constants(self, params: FlipParams) -> bytes:
        reversed_axes = (params.direction != "vertical", params.direction != "horizontal")
        return np.array(reversed_axes, np.int32).tobytes()

    def run_cpu(self, src: Values, dst: Values, params: FlipParams, scratch: Scratch) -> None:
        cv2.flip(src, _CODES[params.direction], dst=dst)
