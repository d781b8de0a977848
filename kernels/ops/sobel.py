from __future__ import annotations

import cv2
import numpy as np

from kernels.image import Pixels
from kernels.op import OpParams, Scratch, WindowOp

BAND_ROWS = 48  # a band of 16-bit gradients of a 4K row set stays in the L2 cache


class SobelParams(OpParams):
    pass


class Sobel(WindowOp[SobelParams]):
    """Edge strength per channel: |gx| + |gy| of the 3x3 Sobel derivatives, saturated.

    gx has the weights [-1 0 1; -2 0 2; -1 0 1], gy its transpose; border reflect-101. Source: I. Sobel, "An
    Isotropic 3x3 Image Gradient Operator" (1968); the same integers as cv2.Sobel(ksize=3).
    """

    name = "sobel"
    Params = SobelParams
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

    def run_cpu(self, src: Pixels, dst: Pixels, params: SobelParams, scratch: Scratch) -> None:
        height = src.shape[0]
        for top in range(0, height, BAND_ROWS):
            bottom = min(top + BAND_ROWS, height)
            # A band with one more row on each inner side: OpenCV's own border then only touches the picture's.
            first, last = max(top - 1, 0), min(bottom + 1, height)
            band = src[first:last]
            gx = scratch.array("gx", band.shape, np.int16)
            gy = scratch.array("gy", band.shape, np.int16)
            cv2.Sobel(band, cv2.CV_16S, 1, 0, dst=gx, ksize=3, borderType=cv2.BORDER_REFLECT_101)
            cv2.Sobel(band, cv2.CV_16S, 0, 1, dst=gy, ksize=3, borderType=cv2.BORDER_REFLECT_101)
            inner = slice(top - first, bottom - first)
            ax = scratch.array("ax", (bottom - top, *src.shape[1:]), np.uint8)
            ay = scratch.array("ay", (bottom - top, *src.shape[1:]), np.uint8)
            cv2.convertScaleAbs(gx[inner], dst=ax)
            cv2.convertScaleAbs(gy[inner], dst=ay)
            cv2.add(ax, ay, dst=dst[top:bottom])
