from __future__ import annotations

import numpy as np
import numpy.typing as npt
from pydantic import Field

from kernels import wide_cpu
from kernels.image import Values
from kernels.op import MAX_RADIUS_PX, OpParams, Scratch, SeparableOp
from kernels.params import Odd
from kernels.smoothing import box_mean, box_taps, mean_constants


class BoxBlurParams(OpParams):
    ksize: Odd = Field(
        default=5, ge=1, le=2 * MAX_RADIUS_PX + 1, description="Width of the window, odd.",
        json_schema_extra={"x-unit": "px", "x-step": 2},
    )  # fmt: skip


class BoxBlur(SeparableOp[BoxBlurParams]):
    """The mean of all values in a square window, rounded half up; exact, border reflect-101. As cv2.blur.

    out = ⌊Σ v / n + ½⌋ over the n = ksize² values of a channel; n is odd, so there are no ties.
    """

    name = "box_blur"
    Params = BoxBlurParams
    takes_16_bit = True
    cuda_source = """
struct box_blur_params {
  Taps taps;  // ones
  uint32 half, reciprocal;  // of the number of values: see kernels/smoothing.py
};

template <class Value = uint8>
__device__ __forceinline__ int box_blur(uint32 sum, int, const box_blur_params& p) {
  if constexpr (sizeof(Value) == 1)
    return (uint64)(sum + p.half) * p.reciprocal >> 31;
  else
    return (sum + p.half) / (2 * p.half + 1);
}
"""

    def taps(self, params: BoxBlurParams) -> npt.NDArray[np.uint16]:
        return box_taps(params.ksize)

    def finish_constants(self, params: BoxBlurParams) -> bytes:
        return mean_constants(params.ksize**2)

    def run_cpu(self, src: Values, dst: Values, params: BoxBlurParams, scratch: Scratch) -> None:
        if src.dtype == np.uint16:
            wide_cpu.box_mean(src, dst, params.ksize, scratch)
            return
        box_mean(src, dst, params.ksize)
