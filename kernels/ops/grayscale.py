from __future__ import annotations

from dataclasses import replace

import cv2
import numpy as np

from kernels import wide_cpu
from kernels.image import Shape, Values
from kernels.op import OpKind, OpParams, PixelOp, Scratch

_WEIGHTS = np.array([[3735, 19235, 9798, 0]]) / (1 << 15)


class GrayscaleParams(OpParams):
    pass


class Grayscale(PixelOp[GrayscaleParams]):
    """Grey (GRAY8) by BT.601 luma: (3735·B + 19235·G + 9798·R + 2^14) >> 15; grey pictures pass unchanged.

    The weights are 0.299 and 0.587 (ITU-R BT.601-7, section 2.5.1) times 2^15, rounded, and what is left of 2^15 for
    blue: those of cv2.cvtColor with COLOR_BGR2GRAY, which agrees for each of the 2^24 colours (OpenCV 4.10 and 5.0,
    x86_64).
    """

    name = "grayscale"
    kind = OpKind.POINT
    Params = GrayscaleParams
    takes_16_bit = True
    cuda_source = """
struct grayscale_params {};

template <int CHANNELS, class Value>
__device__ __forceinline__ void grayscale(const Picture<CHANNELS, Value>& in, int x, int y, Size,
                                          const grayscale_params&, Value* out) {
  const Value* from = in.at(x, y);
  if constexpr (CHANNELS == 1)
    out[0] = from[0];
  else
    out[0] = (3735 * from[0] + 19235 * from[1] + 9798 * from[2] + (1 << 14)) >> 15;
}
"""

    def output(self, source: Shape, params: GrayscaleParams) -> Shape:
        return replace(source, channels=1)

    def constants(self, params: GrayscaleParams) -> bytes:
        return b""

    def run_cpu(self, src: Values, dst: Values, params: GrayscaleParams, scratch: Scratch) -> None:
        if src.ndim == 2:
            np.copyto(dst, src)
        elif src.dtype == np.uint16:
            wide_cpu.mixed(src, dst, _WEIGHTS, scratch)
        else:
            cv2.cvtColor(src, cv2.COLOR_BGR2GRAY, dst=dst)
