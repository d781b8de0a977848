from __future__ import annotations

import math

import cv2
import numpy as np
from pydantic import Field

from kernels.image import Pixels
from kernels.op import OpKind, OpParams, PixelOp, Scratch
from kernels.params import Odd
from kernels.stencil_cpu import bands

MAX_KSIZE = 9
_BAND_VALUES = 1 << 19  # bytes: OpenCV makes a copy of a band, which is far less than a frame


class BilateralParams(OpParams):
    ksize: Odd = Field(
        default=5, ge=3, le=MAX_KSIZE, description="Width of the round window, odd.",
        json_schema_extra={"x-unit": "px", "x-step": 2},
    )  # fmt: skip
    sigma_color: float = Field(
        default=25.0, ge=1.0, le=255.0, description="Differences much larger than this are edges, and kept.",
        json_schema_extra={"x-unit": "levels", "x-step": 1},
    )  # fmt: skip
    sigma_space: float = Field(
        default=2.0, ge=0.1, le=50.0, description="Standard deviation of the weights by distance.",
        json_schema_extra={"x-unit": "px", "x-step": 0.1},
    )  # fmt: skip


class Bilateral(PixelOp[BilateralParams]):
    """Smoothing that keeps edges: a mean in which what looks different from the middle pixel weighs little.

    Σ w·v / Σ w over the pixels at a distance d of at most (ksize − 1)/2, rounded, with
    w = exp(−d²/(2·sigma_space²) − Δ²/(2·sigma_color²)); Δ is the sum of the channels' differences from the middle
    pixel, one weight for all channels. Border reflect-101. In 32-bit floats: GPU and CPU agree within 1 level. Source:
    C. Tomasi, R. Manduchi, "Bilateral Filtering for Gray and Color Images" (1998); as cv2.bilateralFilter.
    """

    name = "bilateral"
    kind = OpKind.STENCIL
    Params = BilateralParams
    cuda_source = """
struct bilateral_params {
  int radius;
  float space, color;  // exponents of 2, for a squared pixel and for a squared level
};

template <int CHANNELS>
__device__ __forceinline__ void bilateral(const Picture<CHANNELS>& in, int x, int y, Size, const bilateral_params& p,
                                          uint8* out) {
  const uint8* centre = in.at(x, y);
  float sum[CHANNELS] = {}, whole = 0.0f;
  for (int dy = -p.radius; dy <= p.radius; ++dy)
    for (int dx = -p.radius; dx <= p.radius; ++dx) {
      const int distance = dx * dx + dy * dy;
      if (distance > p.radius * p.radius) continue;
      const uint8* there = in.at(x + dx, y + dy);
      int difference = 0;
#pragma unroll
      for (int c = 0; c < CHANNELS; ++c) difference += abs(there[c] - centre[c]);
      const float weight = exp2f(p.space * distance + p.color * (difference * difference));
      whole += weight;
#pragma unroll
      for (int c = 0; c < CHANNELS; ++c) sum[c] += weight * there[c];
    }
#pragma unroll
  for (int c = 0; c < CHANNELS; ++c) out[c] = (int)(sum[c] / whole + 0.5f);
}
"""

    @property
    def max_radius(self) -> int:
        return MAX_KSIZE // 2

    def radius(self, params: BilateralParams) -> int:
        return params.ksize // 2

    def constants(self, params: BilateralParams) -> bytes:
        exponents = [-math.log2(math.e) / (2 * sigma * sigma) for sigma in (params.sigma_space, params.sigma_color)]
        return np.array(params.ksize // 2, np.int32).tobytes() + np.array(exponents, np.float32).tobytes()

    def run_cpu(self, src: Pixels, dst: Pixels, params: BilateralParams, scratch: Scratch) -> None:
        rows = max(1, min(len(src), _BAND_VALUES // src[0].size))
        sigmas = params.sigma_color, params.sigma_space
        # In small windows on grey Intel's library in OpenCV cuts fractions off. Switched off for this thread only.
        uses_ipp = cv2.ipp.useIPP()
        cv2.ipp.setUseIPP(False)
        try:
            for band, read, inner in bands(len(src), params.ksize // 2, rows):
                made = scratch.array("bilateral", src[read].shape, np.uint8)
                cv2.bilateralFilter(src[read], params.ksize, *sigmas, dst=made, borderType=cv2.BORDER_REFLECT_101)
                np.copyto(dst[band], made[inner])
        finally:
            cv2.ipp.setUseIPP(uses_ipp)
