"""Point ops that mix the channels of a pixel by a matrix of whole numbers: exact, and as quick as OpenCV's own.

In units of 1/1024 because ``cv2.transform`` on 8-bit pixels counts in them: with half of one added to the offset, its
vector path (``(Σ m·v + 512) >> 10`` in whole numbers) and its path for what is left of a row (32-bit floats, half to
even, but never at a half then) both round half up. Checked with OpenCV 4.10 and 5.0 on x86_64, with and without AVX2.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt

from kernels.formats import LEVEL
from kernels.image import Values
from kernels.op import OpKind, P, PixelOp, Scratch
from kernels.wide_cpu import mixed

UNIT = 1024
MAX_FACTOR = 16  # OpenCV counts in 16 bits up to 32

Rows = Sequence[Sequence[float]]
IntMatrix = npt.NDArray[np.int32]

# BT.601 luma of blue, green, red (ITU-R BT.601-7, section 2.5.1).
LUMA = (0.114, 0.587, 0.299)

_CUDA = """
struct NAME_params {
  int rows[3][4];  // blue, green, red of the result from blue, green, red and 1; in 1/1024
};

template <int CHANNELS, class Value>
__device__ __forceinline__ void NAME(const Picture<CHANNELS, Value>& in, int x, int y, Size, const NAME_params& p,
                                     Value* out) {
  const Value* from = in.at(x, y);
  if constexpr (CHANNELS == 1) {
    out[0] = from[0];
  } else {
    typedef typename Depth<Value>::Sum Sum;
    const Sum blue = from[0], green = from[1], red = from[2];
#pragma unroll
    for (int c = 0; c < 3; ++c) {
      const Sum mixed = p.rows[c][0] * blue + p.rows[c][1] * green + p.rows[c][2] * red;
      const Sum sum = mixed + (Sum)p.rows[c][3] * Depth<Value>::LEVEL;
      out[c] = min(max((sum + 512) >> 10, (Sum)0), (Sum)Depth<Value>::MOST);
    }
  }
}
"""


class MatrixOp(PixelOp[P]):
    """A point op on colours: ``(Σ rows[c]·(blue, green, red, 1) + 512) >> 10``, saturated; grey passes unchanged."""

    kind = OpKind.POINT
    takes_16_bit = True

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.cuda_source = _CUDA.replace("NAME", cls.name)

    @abstractmethod
    def rows(self, params: P) -> IntMatrix:
        """(3, 4) int32 in 1/1024: factors below ``MAX_FACTOR``, offsets whole levels of at most 255."""

    def constants(self, params: P) -> bytes:
        return self.rows(params).tobytes()

    def run_cpu(self, src: Values, dst: Values, params: P, scratch: Scratch) -> None:
        if src.ndim == 2:
            np.copyto(dst, src)
            return
        if src.dtype == np.uint16:
            mixed(src, dst, self.rows(params) * (1, 1, 1, LEVEL[16]) / UNIT, scratch)
            return
        rows = self.rows(params).astype(np.float32) / UNIT
        rows[:, 3] += 1 / (2 * UNIT)
        cv2.transform(src, rows, dst=dst)


def in_units(matrix: Rows, offsets: Sequence[float] = (0, 0, 0)) -> IntMatrix:
    """The matrix in 1/1024, rounded half up, such that the sum of each row is its real sum's nearest: grey stays grey.

    The diagonal takes what rounding leaves. Offsets are rounded to whole levels.
    """
    rows = np.zeros((3, 4), np.int32)
    for i, (factors, offset) in enumerate(zip(matrix, offsets, strict=True)):
        for j, factor in enumerate(factors):
            rows[i, j] = _nearest(factor)
        rows[i, i] += _nearest(math.fsum(factors)) - rows[i, :3].sum()
        rows[i, 3] = math.floor(offset + 0.5) * UNIT
    return rows


def _nearest(factor: float) -> int:
    """In 1/1024; nine decimals count, so that errors of the floats it came from do not."""
    return math.floor(round(factor, 9) * UNIT + 0.5)
