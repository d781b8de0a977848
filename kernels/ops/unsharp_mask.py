from __future__ import annotations

import math

import cv2
import numpy as np
import numpy.typing as npt
from pydantic import Field

from kernels import wide_cpu
from kernels.formats import LEVEL
from kernels.image import Values
from kernels.op import MAX_RADIUS_PX, OpParams, Scratch, SeparableOp
from kernels.params import Odd
from kernels.smoothing import gaussian_mean, gaussian_taps
from kernels.stencil_cpu import bands

_BAND_VALUES = 1 << 18  # bytes of differences: a band of four pictures stays in the L2 cache


class UnsharpMaskParams(OpParams):
    ksize: Odd = Field(
        default=5, ge=3, le=2 * MAX_RADIUS_PX + 1, description="Width of the blur's window, odd.",
        json_schema_extra={"x-unit": "px", "x-step": 2},
    )  # fmt: skip
    sigma: float = Field(
        default=0.0, ge=0.0, le=50.0, description="The blur's standard deviation; 0 derives it from ksize.",
        json_schema_extra={"x-unit": "px", "x-step": 0.1},
    )  # fmt: skip
    amount: float = Field(
        default=1.0, ge=0.0, le=10.0, description="How much of what the blur takes away is added.",
        json_schema_extra={"x-unit": "×", "x-step": 0.1},
    )  # fmt: skip
    threshold: int = Field(
        default=0, ge=0, le=255,
        description="Differences up to this many levels are left alone: noise, skin. Of 16 bits a level is 257.",
        json_schema_extra={"x-unit": "levels", "x-step": 1},
    )  # fmt: skip


class UnsharpMask(SeparableOp[UnsharpMaskParams]):
    """Sharpening by what a blur takes away: v + amount·(v − blurred), where they differ by more than the threshold.

    blurred is what ``gaussian_blur`` makes; amount is used in 1/256, rounded half up:
    v + ((amount·(v − blurred) + 128) >> 8), saturated. Exact.
    Source: Gonzalez and Woods, "Digital Image Processing", 3.6.
    """

    name = "unsharp_mask"
    Params = UnsharpMaskParams
    takes_16_bit = True
    cuda_source = """
struct unsharp_mask_params {
  Taps taps;  // of sum 256
  int amount;  // in 1/256
  int threshold;
};

template <class Value = uint8>
__device__ __forceinline__ int unsharp_mask(uint32 sum, int centre, const unsharp_mask_params& p) {
  const int difference = centre - (int)((sum + (1 << 15)) >> 16);
  return abs(difference) <= p.threshold * Depth<Value>::LEVEL ? centre : centre + ((p.amount * difference + 128) >> 8);
}
"""

    def taps(self, params: UnsharpMaskParams) -> npt.NDArray[np.uint16]:
        return gaussian_taps(params.ksize, params.sigma)

    def finish_constants(self, params: UnsharpMaskParams) -> bytes:
        return np.array((_units(params), params.threshold), np.int32).tobytes()

    def run_cpu(self, src: Values, dst: Values, params: UnsharpMaskParams, scratch: Scratch) -> None:
        if src.dtype == np.uint16:
            _run_wide(src, dst, self.taps(params), params, scratch)
            return
        gaussian_mean(src, dst, params.ksize, params.sigma)
        amount = _units(params) / 256
        # Sums in 1/512 that 32-bit floats hold; the last term leaves none at a half, which OpenCV rounds to even.
        sharpen = (1 + amount, -amount, 1 / 512)
        if params.threshold == 0:
            cv2.addWeighted(src, sharpen[0], dst, sharpen[1], sharpen[2], dst=dst)
            return
        rows = max(1, min(len(src), _BAND_VALUES // src[0].size))
        for band, _, _ in bands(len(src), 0, rows):
            # As one channel: OpenCV's masks are.
            given, made = (picture[band].reshape(band.stop - band.start, -1) for picture in (src, dst))
            alike = scratch.array("alike", given.shape, np.uint8)
            cv2.absdiff(given, made, dst=alike)
            cv2.threshold(alike, params.threshold, 255, cv2.THRESH_BINARY_INV, dst=alike)
            cv2.addWeighted(given, sharpen[0], made, sharpen[1], sharpen[2], dst=made)
            cv2.copyTo(given, alike, dst=made)


def _run_wide(
    src: Values, dst: Values, taps: npt.NDArray[np.uint16], params: UnsharpMaskParams, scratch: Scratch
) -> None:
    wide_cpu.gaussian_mean(src, dst, taps, scratch)
    amount, most = _units(params), params.threshold * LEVEL[16]
    for band, _, _ in bands(len(src), 0, wide_cpu.band_rows(src)):
        values, difference, sharper = (
            scratch.array(f"wide.{name}", src[band].shape, np.float64) for name in ("values", "difference", "sharper")
        )
        np.copyto(values, src[band])
        np.subtract(values, dst[band], out=difference)
        np.multiply(difference, amount / 256, out=sharper)
        np.floor(np.add(sharper, 0.5, out=sharper), out=sharper)
        sharper[np.abs(difference, out=difference) <= most] = 0
        wide_cpu.store(np.add(values, sharper, out=sharper), dst[band])


def _units(params: UnsharpMaskParams) -> int:
    """The amount in 1/256."""
    return math.floor(params.amount * 256 + 0.5)
