from __future__ import annotations

import cv2
import numpy as np

from kernels import wide_cpu
from kernels.image import Values
from kernels.op import OpParams, Scratch, WindowOp

_KERNEL = np.array([[0, -1, 0], [-1, 5, -1], [0, -1, 0]], np.float32)


class SharpenParams(OpParams):
    pass


class Sharpen(WindowOp[SharpenParams]):
    """Sharpening by the 3x3 Laplacian: 5 times the value minus its four neighbours, saturated.

    out = Σ weights·v with the weights [0 -1 0; -1 5 -1; 0 -1 0]; border reflect-101. Whole numbers throughout, so
    cv2.filter2D with these weights is exact. Source: Gonzalez and Woods, "Digital Image Processing", 3.6.
    """

    name = "sharpen"
    Params = SharpenParams
    takes_16_bit = True
    fixed_radius = 1
    cuda_source = """
struct sharpen_params {};

template <class At>
__device__ __forceinline__ int sharpen(At at, const sharpen_params&) {
  return 5 * at(0, 0) - at(-1, 0) - at(1, 0) - at(0, -1) - at(0, 1);
}
"""

    def constants(self, params: SharpenParams) -> bytes:
        return b""

    def run_cpu(self, src: Values, dst: Values, params: SharpenParams, scratch: Scratch) -> None:
        if src.dtype == np.uint16:
            wide_cpu.weighed(src, dst, _KERNEL.astype(np.float64), 0.0, scratch, magnitude=False)
            return
        cv2.filter2D(src, -1, _KERNEL, dst=dst, borderType=cv2.BORDER_REFLECT_101)
