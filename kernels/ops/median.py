from __future__ import annotations

import cv2
import numpy as np
from pydantic import Field

from kernels.image import Values
from kernels.op import OpParams, Scratch, WindowOp
from kernels.params import Odd
from kernels.stencil_cpu import padded


class MedianParams(OpParams):
    ksize: Odd = Field(
        default=3, ge=3, le=5, description="Width of the window: 3 or 5.",
        json_schema_extra={"x-unit": "px", "x-step": 2},
    )  # fmt: skip


class Median(WindowOp[MedianParams]):
    """The middle of the 9 or 25 values in a square window, per channel: removes specks, keeps edges. Exact.

    out = value number (ksize² + 1) / 2 of all ksize² in order. Source: Tukey, "Exploratory Data Analysis" (1977).
    Border reflect-101, where cv2.medianBlur repeats the outermost pixels. On the GPU by forgetful selection: of a few
    values more than half, neither the least nor the greatest can be the median; both make room for the next value
    (Perrot, Domas and Couturier, "Fine-tuned High-speed Implementation of a GPU-based Median Filter", 2014).
    """

    name = "median"
    Params = MedianParams
    takes_16_bit = True
    cuda_source = """
struct median_params {
  int ksize;
};

__device__ __forceinline__ void median_sort(int& a, int& b) {
  const int least = min(a, b);
  b = max(a, b);
  a = least;
}

// Puts the least of COUNT values first and the greatest last.
template <int COUNT>
__device__ __forceinline__ void median_extremes_to_the_ends(int* v) {
#pragma unroll
  for (int i = 0; i < COUNT / 2; ++i) median_sort(v[i], v[COUNT - 1 - i]);
#pragma unroll
  for (int i = 1; i < (COUNT + 1) / 2; ++i) median_sort(v[0], v[i]);
#pragma unroll
  for (int i = COUNT / 2; i < COUNT - 1; ++i) median_sort(v[i], v[COUNT - 1]);
}

// The median of what COUNT values in v and the window from value NEXT on, in rows of SIDE, hold.
template <int SIDE, int COUNT, int NEXT, class At>
__device__ __forceinline__ int median_of(At at, int* v) {
  median_extremes_to_the_ends<COUNT>(v);
  if constexpr (NEXT == SIDE * SIDE) {
    return v[1];
  } else {
    v[0] = at(NEXT % SIDE - SIDE / 2, NEXT / SIDE - SIDE / 2);
    return median_of<SIDE, COUNT - 1, NEXT + 1>(at, v);
  }
}

// Called, not inlined into each of a thread's sixteen values: that takes the compiler a second.
template <int SIDE, class At>
__device__ __noinline__ int median_of_window(At at) {
  constexpr int FIRST = SIDE * SIDE / 2 + 2;
  int v[FIRST];
#pragma unroll
  for (int i = 0; i < FIRST; ++i) v[i] = at(i % SIDE - SIDE / 2, i / SIDE - SIDE / 2);
  return median_of<SIDE, FIRST, FIRST>(at, v);
}

template <class At>
__device__ __forceinline__ int median(At at, const median_params& p) {
  return p.ksize == 3 ? median_of_window<3>(at) : median_of_window<5>(at);
}
"""

    @property
    def max_radius(self) -> int:
        return 2

    def radius(self, params: MedianParams) -> int:
        return params.ksize // 2

    def constants(self, params: MedianParams) -> bytes:
        return np.array(params.ksize, np.int32).tobytes()

    def run_cpu(self, src: Values, dst: Values, params: MedianParams, scratch: Scratch) -> None:
        height, width = src.shape[:2]
        radius = params.ksize // 2
        cv2.medianBlur(src, params.ksize, dst=dst)
        # OpenCV's own border reaches as far into the picture as the window does.
        for rows in (slice(0, min(radius, height)), slice(max(height - radius, 0), height)):
            part = padded(src, rows, slice(0, width), radius, scratch)
            dst[rows] = _medians(part, radius, scratch)
        for columns in (slice(0, min(radius, width)), slice(max(width - radius, 0), width)):
            part = padded(src, slice(0, height), columns, radius, scratch)
            # Lying, as OpenCV is quick along rows only.
            lying = scratch.array("lying", (part.shape[1], part.shape[0], *part.shape[2:]), src.dtype)
            cv2.transpose(part, dst=lying)
            dst[:, columns] = _medians(lying, radius, scratch).swapaxes(0, 1)


def _medians(part: Values, radius: int, scratch: Scratch) -> Values:
    """Of the part without its frame of ``radius`` pixels."""
    made = scratch.array("medians", part.shape, part.dtype)
    cv2.medianBlur(part, 2 * radius + 1, dst=made)
    return made[radius:-radius, radius:-radius]
