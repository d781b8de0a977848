from __future__ import annotations

import numpy as np
import numpy.typing as npt
from pydantic import Field

from kernels.image import Pixels
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
    cuda_source = """
struct box_blur_params {
  Taps taps;  // ones
  uint32 half, reciprocal;  // of the number of values: see kernels/smoothing.py
};

__device__ __forceinline__ int box_blur(uint32 sum, int, const box_blur_params& p) {
  return (uint64)(sum + p.half) * p.reciprocal >> 31;
}
"""

    def taps(self, params: BoxBlurParams) -> npt.NDArray[np.uint16]:
        return box_taps(params.ksize)

    def finish_constants(self, params: BoxBlurParams) -> bytes:
        return mean_constants(params.ksize**2)

    def run_cpu(self, src: Pixels, dst: Pixels, params: BoxBlurParams, scratch: Scratch) -> None:
        box_mean(src, dst, params.ksize)
