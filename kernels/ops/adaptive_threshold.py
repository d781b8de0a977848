from __future__ import annotations

from typing import Literal

import cv2
import numpy as np
import numpy.typing as npt
from pydantic import Field

from kernels import wide_cpu
from kernels.formats import LEVEL
from kernels.image import Values
from kernels.op import MAX_RADIUS_PX, OpParams, Scratch, SeparableOp
from kernels.params import Odd
from kernels.smoothing import GAUSSIAN_SUM, box_mean, box_taps, gaussian_mean, gaussian_taps, mean_constants
from kernels.stencil_cpu import bands

_BAND_VALUES = 1 << 18  # bytes: a band of both pictures stays in the L2 cache


class AdaptiveThresholdParams(OpParams):
    method: Literal["mean", "gaussian"] = Field(
        default="mean", description="Compare with the plain or with the Gaussian mean around the pixel.",
        json_schema_extra={"x-unit": ""},
    )  # fmt: skip
    ksize: Odd = Field(
        default=11, ge=3, le=2 * MAX_RADIUS_PX + 1, description="Width of the window, odd.",
        json_schema_extra={"x-unit": "px", "x-step": 2},
    )  # fmt: skip
    offset: int = Field(
        default=2, ge=-255, le=255,
        description="Taken from the mean: how much darker than it still counts as bright. Of 16 bits a level is 257.",
        json_schema_extra={"x-unit": "levels", "x-step": 1},
    )  # fmt: skip
    max_value: int = Field(
        default=255, ge=0, le=255,
        description="What becomes of a value above the threshold; 0 of the others. Of 16 bits a level is 257.",
        json_schema_extra={"x-unit": "levels", "x-step": 1},
    )  # fmt: skip
    inverted: bool = Field(
        default=False, description="Swap the two results.", json_schema_extra={"x-unit": ""}
    )  # fmt: skip


class AdaptiveThreshold(SeparableOp[AdaptiveThresholdParams]):
    """Black and white by what is around a pixel: max_value where v > mean − offset, else 0; per channel.

    The mean is what ``box_blur`` or ``gaussian_blur`` (sigma 0) makes, border reflect-101: as cv2.adaptiveThreshold,
    whose border repeats the outermost pixels and whose Gaussian mean is computed in floats. Exact.
    """

    name = "adaptive_threshold"
    Params = AdaptiveThresholdParams
    takes_16_bit = True
    cuda_source = """
struct adaptive_threshold_params {
  Taps taps;
  uint32 half, reciprocal;  // of the sum of the weights: see kernels/smoothing.py
  int offset;
  int above, below;  // the results
};

template <class Value = uint8>
__device__ __forceinline__ int adaptive_threshold(uint32 sum, int centre, const adaptive_threshold_params& p) {
  int mean;
  if constexpr (sizeof(Value) == 1)
    mean = (int)((uint64)(sum + p.half) * p.reciprocal >> 31);
  else
    mean = (sum + p.half) / (p.half == 1 << 15 ? 1 << 16 : 2 * p.half + 1);
  return (centre > mean - p.offset * Depth<Value>::LEVEL ? p.above : p.below) * Depth<Value>::LEVEL;
}
"""

    def taps(self, params: AdaptiveThresholdParams) -> npt.NDArray[np.uint16]:
        return box_taps(params.ksize) if params.method == "mean" else gaussian_taps(params.ksize, 0.0)

    def finish_constants(self, params: AdaptiveThresholdParams) -> bytes:
        whole = params.ksize**2 if params.method == "mean" else GAUSSIAN_SUM**2
        results = (0, params.max_value) if params.inverted else (params.max_value, 0)
        return mean_constants(whole) + np.array((params.offset, *results), np.int32).tobytes()

    def run_cpu(self, src: Values, dst: Values, params: AdaptiveThresholdParams, scratch: Scratch) -> None:
        if src.dtype == np.uint16:
            _run_wide(src, dst, self.taps(params), params, scratch)
            return
        if params.method == "mean":
            box_mean(src, dst, params.ksize)
        else:
            gaussian_mean(src, dst, params.ksize, 0.0)
        # v > mean − offset is v ≥ mean − (offset − 1). The right side as a byte, saturated, compares the same.
        offset = params.offset - 1 if params.offset > 0 else params.offset
        bound = np.clip(np.arange(256) - offset, 0, 255).astype(np.uint8)
        above, below = (cv2.CMP_GE, cv2.CMP_LT) if params.offset > 0 else (cv2.CMP_GT, cv2.CMP_LE)
        results = np.zeros(256, np.uint8)
        results[255] = params.max_value
        rows = max(1, min(len(src), _BAND_VALUES // src[0].size))
        for band, _, _ in bands(len(src), 0, rows):
            made = dst[band]
            cv2.LUT(made, bound, dst=made)
            cv2.compare(src[band], made, below if params.inverted else above, dst=made)
            if params.max_value != 255:
                cv2.LUT(made, results, dst=made)


def _run_wide(
    src: Values, dst: Values, taps: npt.NDArray[np.uint16], params: AdaptiveThresholdParams, scratch: Scratch
) -> None:
    if params.method == "mean":
        wide_cpu.box_mean(src, dst, params.ksize, scratch)
    else:
        wide_cpu.gaussian_mean(src, dst, taps, scratch)
    result = params.max_value * LEVEL[16]
    for band, _, _ in bands(len(src), 0, wide_cpu.band_rows(src)):
        bound = scratch.array("wide.bound", src[band].shape, np.int32)
        np.subtract(dst[band], params.offset * LEVEL[16], out=bound, dtype=np.int32)
        above = np.greater(src[band], bound)
        np.multiply(above != params.inverted, np.uint16(result), out=dst[band])
