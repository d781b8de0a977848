from __future__ import annotations

from dataclasses import replace
from typing import Literal

import cv2
import numpy as np
from pydantic import Field

from kernels.image import Pixels, Shape
from kernels.op import ComponentsOp, OpParams, Scratch


class CannyParams(OpParams):
    low: int = Field(
        default=50, ge=0, le=2040, description="A gradient above this goes on with an edge.",
        json_schema_extra={"x-unit": "levels", "x-step": 1},
    )  # fmt: skip
    high: int = Field(
        default=150, ge=0, le=2040, description="A gradient above this begins an edge.",
        json_schema_extra={"x-unit": "levels", "x-step": 1},
    )  # fmt: skip
    norm: Literal["l1", "l2"] = Field(
        default="l1", description="Of a gradient: |gx| + |gy|, up to 2040, or the root of gx² + gy², up to 1442."
    )


class Canny(ComponentsOp[CannyParams]):
    """Edges, one pixel wide: 255 on them, 0 elsewhere; the result is GRAY8.

    A pixel's gradient (gx, gy) is that of Sobel's 3x3 windows, of the first channel where g = |gx| + |gy|, or
    √(gx² + gy²), is greatest; beyond its sides the picture goes on with its edge, and g is 0. The pixel may be an edge
    where g > low and no neighbour across the edge has a greater one: left and right if |gy| < t·|gx| for t = 13573/2^15
    (22.5°), above and below if |gy| > (t + 2)·|gx|, else those of the diagonal; of two that are equal the left or upper
    one, of a diagonal none. It is an edge if it hangs together, over any of eight neighbours, with one where g > high.
    Where low is greater they change places. Exactly cv2.Canny, apertureSize 3; norm "l2" is its L2gradient.
    Source: Canny, A computational approach to edge detection, IEEE Trans. Pattern Analysis and Machine Intelligence 8
    (1986). On a CPU it is cv2.Canny itself, which alone of all takes some bytes a pixel from the allocator each frame.
    """

    name = "canny"
    Params = CannyParams
    cuda_source = """
struct canny_params {
  int low, high;  // squared with squares
  int squares;
};

// Both gradients, 16 bits each.
template <int CHANNELS, class At>
__device__ __forceinline__ int canny_measure(At at, const canny_params& p) {
  int found = 0, most = -1;
#pragma unroll
  for (int c = 0; c < CHANNELS; ++c) {
    // One way down, and the other.
    const int falls = at(1, 1, c) - at(-1, -1, c), rises = at(1, -1, c) - at(-1, 1, c);
    const int gx = falls + rises + 2 * (at(1, 0, c) - at(-1, 0, c));
    const int gy = falls - rises + 2 * (at(0, 1, c) - at(0, -1, c));
    const int strength = p.squares ? gx * gx + gy * gy : abs(gx) + abs(gy);
    if (strength > most) {
      most = strength;
      found = (int)((uint32)gy << 16 | ((uint32)gx & 0xffff));
    }
  }
  return found;
}

template <class At>
__device__ __forceinline__ int canny_class(At at, const canny_params& p) {
  const auto strength = [&](int dx, int dy) {
    const int measure = at(dx, dy), gx = (short)measure, gy = measure >> 16;
    return p.squares ? gx * gx + gy * gy : abs(gx) + abs(gy);
  };
  const int here = strength(0, 0);
  if (here <= p.low) return 0;
  const int gx = (short)at(0, 0), gy = at(0, 0) >> 16, across = abs(gx) * 13573, down = abs(gy) << 15;
  bool greatest;
  if (down < across) {
    greatest = here > strength(-1, 0) && here >= strength(1, 0);
  } else if (down > across + (abs(gx) << 16)) {
    greatest = here > strength(0, -1) && here >= strength(0, 1);
  } else {
    const int side = (gx ^ gy) < 0 ? -1 : 1;
    greatest = here > strength(-side, -1) && here > strength(side, 1);
  }
  return !greatest ? 0 : here > p.high ? 2 : 1;
}
"""

    def output(self, source: Shape, params: CannyParams) -> Shape:
        return replace(source, channels=1)

    def constants(self, params: CannyParams) -> bytes:
        squares = params.norm == "l2"
        limits = [limit**2 if squares else limit for limit in (params.low, params.high)]
        return np.array([*sorted(limits), squares], np.int32).tobytes()

    def run_cpu(self, src: Pixels, dst: Pixels, params: CannyParams, scratch: Scratch) -> None:
        cv2.Canny(src, params.low, params.high, edges=dst, apertureSize=3, L2gradient=params.norm == "l2")
