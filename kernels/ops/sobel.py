from __future__ import annotations

import numpy as np

from kernels import wide_cpu
from kernels.image import Values
from kernels.op import OpParams, Scratch, WindowOp
from kernels.stencil_cpu import gradient_strength


class SobelParams(OpParams):
    pass


class Sobel(WindowOp[SobelParams]):
    """Edge strength per channel: |gx| + |gy| of the 3x3 Sobel derivatives, saturated.

    gx has the weights [-1 0 1; -2 0 2; -1 0 1], gy its transpose; border reflect-101. Source: I. Sobel, "An
    Isotropic 3x3 Image Gradient Operator" (1968); the same integers as cv2.Sobel(ksize=3).
    """

    name = "sobel"
    Params = SobelParams
    takes_16_bit = True
    fixed_radius = 1
    cuda_source = """
struct sobel_params {};

template <class At>
__device__ __forceinline__ int sobel(At at, const sobel_params&) {
  const int a = at(-1, -1), b = at(0, -1), c = at(1, -1);
  const int d = at(-1, 0), e = at(1, 0);
  const int f = at(-1, 1), g = at(0, 1), h = at(1, 1);
  return abs(c - a + 2 * (e - d) + h - f) + abs(f - a + 2 * (g - b) + h - c);
}
"""

    def constants(self, params: SobelParams) -> bytes:
        return b""

    def run_cpu(self, src: Values, dst: Values, params: SobelParams, scratch: Scratch) -> None:
        if src.dtype == np.uint16:
            wide_cpu.gradient_strength(src, dst, 3, scratch)
            return
        gradient_strength(src, dst, 3, scratch)
