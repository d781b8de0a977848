from __future__ import annotations

import cv2
import numpy as np
from pydantic import Field

from kernels import stencil_cpu, wide_cpu
from kernels.image import Values
from kernels.op import OpParams, Scratch, WindowOp
from kernels.params import Odd

_KERNELS = {
    1: np.array([[0, 1, 0], [1, -4, 1], [0, 1, 0]], np.float64),
    3: np.array([[2, 0, 2], [0, -8, 0], [2, 0, 2]], np.float64),
}


class LaplacianParams(OpParams):
    ksize: Odd = Field(
        default=1, ge=1, le=3, description="1: [0 1 0; 1 -4 1; 0 1 0]. 3: [2 0 2; 0 -8 0; 2 0 2], stronger.",
        json_schema_extra={"x-unit": "", "x-step": 2},
    )  # fmt: skip


class Laplacian(WindowOp[LaplacianParams]):
    """Edges and spots per channel: the magnitude of the second derivative, |∂²/∂x² + ∂²/∂y²|, saturated.

    The weights are cv2.Laplacian's for ksize 1 or 3, both 3x3; border reflect-101. Exact.
    """

    name = "laplacian"
    Params = LaplacianParams
    takes_16_bit = True
    fixed_radius = 1
    cuda_source = """
struct laplacian_params {
  int ksize;
};

template <class At>
__device__ __forceinline__ int laplacian(At at, const laplacian_params& p) {
  const int centre = at(0, 0);
  if (p.ksize == 1) return abs(at(0, -1) + at(-1, 0) + at(1, 0) + at(0, 1) - 4 * centre);
  return abs(2 * (at(-1, -1) + at(1, -1) + at(-1, 1) + at(1, 1)) - 8 * centre);
}
"""

    def constants(self, params: LaplacianParams) -> bytes:
        return np.array(params.ksize, np.int32).tobytes()

    def run_cpu(self, src: Values, dst: Values, params: LaplacianParams, scratch: Scratch) -> None:
        if src.dtype == np.uint16:
            wide_cpu.weighed(src, dst, _KERNELS[params.ksize], 0.0, scratch, magnitude=True)
            return
        for band, read, inner in stencil_cpu.bands(src.shape[0], 1, stencil_cpu.BAND_ROWS):
            rows = src[read]
            second = scratch.array("second", rows.shape, np.int16)
            cv2.Laplacian(rows, cv2.CV_16S, dst=second, ksize=params.ksize, borderType=cv2.BORDER_REFLECT_101)
            cv2.convertScaleAbs(second[inner], dst=dst[band])
