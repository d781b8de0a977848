from __future__ import annotations

import cv2
import numpy as np

from kernels import wide_cpu
from kernels.image import Values
from kernels.op import OpParams, Scratch, WindowOp
from kernels.stencil_cpu import gradient_strength


class ScharrParams(OpParams):
    pass


class Scharr(WindowOp[ScharrParams]):
    """Edge strength per channel, the same in every direction: |gx| + |gy| of the 3x3 Scharr derivatives, saturated.

    gx has the weights [-3 0 3; -10 0 10; -3 0 3], gy its transpose; border reflect-101. Exact; four times
    as strong as ``sobel``. Source: H. Scharr, "Optimal Operators in Digital Image Processing" (2000); as cv2.Scharr.
    """

    name = "scharr"
    Params = ScharrParams
    takes_16_bit = True
    fixed_radius = 1
    cuda_source = """
struct scharr_params {};

template <class At>
__device__ __forceinline__ int scharr(At at, const scharr_params&) {
  const int a = at(-1, -1), b = at(0, -1), c = at(1, -1);
  const int d = at(-1, 0), e = at(1, 0);
  const int f = at(-1, 1), g = at(0, 1), h = at(1, 1);
  return abs(3 * (c - a + h - f) + 10 * (e - d)) + abs(3 * (f - a + h - c) + 10 * (g - b));
}
"""

    def constants(self, params: ScharrParams) -> bytes:
        return b""

    def run_cpu(self, src: Values, dst: Values, params: ScharrParams, scratch: Scratch) -> None:
        if src.dtype == np.uint16:
            wide_cpu.gradient_strength(src, dst, cv2.FILTER_SCHARR, scratch)
            return
        gradient_strength(src, dst, cv2.FILTER_SCHARR, scratch)
