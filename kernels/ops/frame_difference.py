from __future__ import annotations

import cv2
import numpy as np
from pydantic import Field

from kernels.image import Pixels
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

    Rounded half up and saturated, from a table of the 256 differences: exact. Source: the difference picture of Jain
    and Nagel, "On the analysis of accumulative difference pictures from image sequences of real world scenes", IEEE
    Trans. Pattern Analysis and Machine Intelligence 1 (1979).
    """

    name = "frame_difference"
    Params = FrameDifferenceParams
    cuda_source = """
struct frame_difference_params {
  uint8 of[256];  // the result for each difference
};

template <int CHANNELS>
struct alignas(CHANNELS == 1 ? 1 : 4) frame_difference_state {
  uint8 before[CHANNELS == 1 ? 1 : 4];
};

template <int CHANNELS>
__device__ __forceinline__ void frame_difference(const uint8* in, frame_difference_state<CHANNELS>& state, bool first,
                                                 int, int, Size, const frame_difference_params& p, uint8* out) {
#pragma unroll
  for (int c = 0; c < CHANNELS; ++c) {
    out[c] = first ? 0 : p.of[abs(in[c] - state.before[c])];
    state.before[c] = in[c];
  }
}
"""

    def state_bytes(self, channels: int) -> int:
        return 1 if channels == 1 else 4

    def constants(self, params: FrameDifferenceParams) -> bytes:
        return _table(params).tobytes()

    def run_cpu(self, src: Pixels, dst: Pixels, params: FrameDifferenceParams, scratch: Scratch) -> None:
        before = scratch.array("before", src.shape, np.uint8)
        if scratch.frames == 0:
            np.copyto(before, src)
            dst[...] = 0
            return
        table = _table(params)
        for band, _, _ in bands(len(src), 0, max(1, _BAND_VALUES // src[0].size)):
            cv2.absdiff(src[band], before[band], dst=dst[band])
            if params.gain.is_integer():
                # Quicker than the table, and the same: products are whole.
                cv2.convertScaleAbs(dst[band], dst=dst[band], alpha=params.gain)
            else:
                cv2.LUT(dst[band], table, dst=dst[band])
            np.copyto(before[band], src[band])


def _table(params: FrameDifferenceParams) -> Pixels:
    values = np.floor(params.gain * np.arange(256, dtype=np.float64) + 0.5)
    return np.minimum(values, 255).astype(np.uint8)
