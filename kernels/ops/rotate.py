from __future__ import annotations

from dataclasses import replace

import cv2
import numpy as np
from pydantic import Field

from kernels.image import Shape, Values
from kernels.op import OpKind, OpParams, PixelOp, Scratch

_CODES = {90: cv2.ROTATE_90_CLOCKWISE, 180: cv2.ROTATE_180, 270: cv2.ROTATE_90_COUNTERCLOCKWISE}


class RotateParams(OpParams):
    degrees: int = Field(
        default=90, ge=0, le=270, multiple_of=90, description="Clockwise; 90 and 270 swap width and height.",
        json_schema_extra={"x-unit": "°", "x-step": 90},
    )  # fmt: skip


class Rotate(PixelOp[RotateParams]):
    """Turns the picture by quarter turns, clockwise; exact.

    out(x, y) = in(y, height − 1 − x) for 90°, in(width − 1 − x, height − 1 − y) for 180° and in(width − 1 − y, x) for
    270°, with the width and height of the picture that is turned. As cv2.rotate.
    """

    name = "rotate"
    kind = OpKind.GATHER
    Params = RotateParams
    takes_16_bit = True
    cuda_source = """
struct rotate_params {
  int quarters;  // clockwise, 0 to 3
};

template <int CHANNELS, class Value>
__device__ __forceinline__ void rotate(const Picture<CHANNELS, Value>& in, int x, int y, Size size,
                                       const rotate_params& p, Value* out) {
  const int right = size.width - 1 - x, below = size.height - 1 - y;
  const int column = p.quarters == 0 ? x : p.quarters == 1 ? y : p.quarters == 2 ? right : below;
  const int row = p.quarters == 0 ? y : p.quarters == 1 ? right : p.quarters == 2 ? below : x;
  const Value* from = in.at(column, row);
#pragma unroll
  for (int c = 0; c < CHANNELS; ++c) out[c] = from[c];
}
"""

    def output(self, source: Shape, params: RotateParams) -> Shape:
        if params.degrees in (0, 180):
            return source
        return replace(source, width=source.height, height=source.width)

    def constants(self, params: RotateParams) -> bytes:
        return np.array(params.degrees // 90, np.int32).tobytes()

    def run_cpu(self, src: Values, dst: Values, params: RotateParams, scratch: Scratch) -> None:
        if params.degrees == 0:
            np.copyto(dst, src)
        else:
            cv2.rotate(src, _CODES[params.degrees], dst=dst)
