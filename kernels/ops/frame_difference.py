from __future__ import annotations

import math

import cv2
import numpy as np
from pydantic import Field

from kernels.image import Pixels, Values
from kernels.op import OpParams, Scratch, TemporalOp
from kernels.stencil_cpu import bands

_BAND_VALUES = 1 << 17  # bytes of each of three pictures: a band stays in the L2 cache


class FrameDifferenceParams(OpParams):
    gain: float = Field(
        default=4.0, ge=0.0, le=16.0, description="Factor of the difference: small ones are dark otherwise.",
        json_schema_extra={"x-unit": "", "x-step": 0.5},
    )  # fmt: skip


class FrameDifference(TemporalOp[FrameDifferenceParams]):
    """Shows what has changed since the frame before: out = gain·|in − in before|, for each value; first black.

    Rounded half up and saturated, from a table of the 256 differences, of 16 bits with the gain in 1/2^32: exact.
    Source: the difference picture of Jain
    and Nagel, "On the analysis of accumulative difference pictures from image sequences of real world scenes", IEEE
    Trans. Pattern Analysis and Machine Intelligence 1 (1979).
    """

    name = "frame_difference"
    Params = FrameDifferenceParams
    takes_16_bit = True
    cuda_source = """
struct frame_difference_params {
  uint8 of[256];   // the result for each difference
  long long gain;  // of 16 bits, in 1/2^32
};

template <int CHANNELS, class Value = uint8>
struct alignas(sizeof(Value) * (CHANNELS == 1 ? 1 : 4)) frame_difference_state {
  Value before[CHANNELS == 1 ? 1 : 4];
};

template <int CHANNELS, class Value>
__device__ __forceinline__ void frame_difference(const Value* in, frame_difference_state<CHANNELS, Value>& state,
                                                 bool first, int, int, Size, const frame_difference_params& p,
                                                 Value* out) {
#pragma unroll
  for (int c = 0; c < CHANNELS; ++c) {
    if constexpr (sizeof(Value) == 1)
      out[c] = first ? 0 : p.of[abs(in[c] - state.before[c])];
    else
      out[c] = first ? 0 : saturate<Value>((p.gain * abs(in[c] - state.before[c]) + (1LL << 31)) >> 32);
    state.before[c] = in[c];
  }
}
"""

    def state_bytes(self, channels: int) -> int:
        return 1 if channels == 1 else 4

    def constants(self, params: FrameDifferenceParams) -> bytes:
        return _table(params).tobytes() + np.array(_gain(params), np.int64).tobytes()

    def run_cpu(self, src: Values, dst: Values, params: FrameDifferenceParams, scratch: Scratch) -> None:
        before = scratch.array("before", src.shape, src.dtype)
        if scratch.frames == 0:
            np.copyto(before, src)
            dst[...] = 0
            return
        table = _table(params)
        for band, _, _ in bands(len(src), 0, max(1, _BAND_VALUES // src[0].size)):
            cv2.absdiff(src[band], before[band], dst=dst[band])
            if src.dtype == np.uint16:
                wide = scratch.array("wide", src[band].shape, np.int64)
                np.multiply(dst[band], _gain(params), out=wide, dtype=np.int64)
                np.right_shift(np.add(wide, 1 << 31, out=wide), 32, out=wide)
                np.copyto(dst[band], np.minimum(wide, 65535, out=wide), casting="unsafe")
            elif params.gain.is_integer():
                # Quicker than the table, and the same: products are whole.
                cv2.convertScaleAbs(dst[band], dst=dst[band], alpha=params.gain)
            else:
                cv2.LUT(dst[band], table, dst=dst[band])
            np.copyto(before[band], src[band])


def _gain(params: FrameDifferenceParams) -> int:
    """In 1/2^32."""
    return math.floor(params.gain * 2**32 + 0.5)


def _table(params: FrameDifferenceParams) -> Pixels:
    values = np.floor(params.gain * np.arange(256, dtype=np.float64) + 0.5)
    return np.minimum(values, 255).astype(np.uint8)
