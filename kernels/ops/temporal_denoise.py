from __future__ import annotations

import math

import cv2
import numpy as np
from pydantic import Field

from kernels import wide_cpu
from kernels.formats import LEVEL
from kernels.image import Pixels, Values
from kernels.op import OpParams, Scratch, TemporalOp
from kernels.stencil_cpu import bands

_BAND_VALUES = 1 << 15  # times 12 bytes: a band stays in the L2 cache
_UNIT = 128  # of a new value's share: means, and what is added to them, are then exact in 32-bit floats


class TemporalDenoiseParams(OpParams):
    strength: float = Field(
        default=0.8, ge=0.0, le=0.99, description="Share of the average so far where nothing moves; 0 changes nothing.",
        json_schema_extra={"x-unit": "", "x-step": 0.01},
    )  # fmt: skip
    threshold: int = Field(
        default=24, ge=0, le=255,
        description="A value this far from the average has moved and is taken as it is; up to half of it is noise. "
        "Of 16 bits a level is 257.",
        json_schema_extra={"x-unit": "levels", "x-step": 1},
    )  # fmt: skip


class TemporalDenoise(TemporalOp[TemporalDenoiseParams]):
    """Averages each value over the frames, and lets go of the average where the picture moves.

    The average m' = m + k·(in − m), in 1/256 level; out is m', rounded half up. The new value's share k depends on the
    distance e = |in − out before|: 1 − strength for e up to half the threshold, from there in a straight line to 1 at
    the threshold; in 1/128, rounded half up, never less than 1/128. Of 16 bits e is taken in whole levels, e / 257
    rounded, and the average in 1/256 value. What is added is rounded half up to 1/256 level;
    exact. Source: Dubois and Sabri, "Noise reduction in image sequences using motion-compensated temporal filtering",
    IEEE Trans. Communications 32 (1984), section III, without the compensation.
    """

    name = "temporal_denoise"
    Params = TemporalDenoiseParams
    takes_16_bit = True
    cuda_source = """
struct temporal_denoise_params {
  uint8 share[256];  // of the new value, in 1/128, for each distance
};

template <int CHANNELS, class Value = uint8>
struct alignas(2 * sizeof(Value) * (CHANNELS == 1 ? 1 : 4)) temporal_denoise_state {
  typename Depth<Value>::Double mean[CHANNELS == 1 ? 1 : 4];  // in 1/256 value; half of one value included
};

template <int CHANNELS, class Value>
__device__ __forceinline__ void temporal_denoise(const Value* in, temporal_denoise_state<CHANNELS, Value>& state,
                                                 bool first, int, int, Size, const temporal_denoise_params& p,
                                                 Value* out) {
  constexpr int LEVEL = Depth<Value>::LEVEL;
#pragma unroll
  for (int c = 0; c < CHANNELS; ++c) {
    // All products are below 2^31.
    const int now = in[c] << 8 | 128, mean = state.mean[c];
    const int share = first ? 128 : p.share[(abs(in[c] - (mean >> 8)) + LEVEL / 2) / LEVEL];
    state.mean[c] = first ? now : mean + ((share * (now - mean) + 64) >> 7);
    out[c] = state.mean[c] >> 8;
  }
}
"""

    def state_bytes(self, channels: int) -> int:
        return 2 if channels == 1 else 8

    def constants(self, params: TemporalDenoiseParams) -> bytes:
        return _shares(params).tobytes()

    def run_cpu(self, src: Values, dst: Values, params: TemporalDenoiseParams, scratch: Scratch) -> None:
        if src.dtype == np.uint16:
            _run_wide(src, dst, _shares(params), scratch)
            return
        height, values = len(src), src[0].size
        # Rows of values, where they lie.
        src, dst = src.reshape(height, values), dst.reshape(height, values)
        means = scratch.array("means", (height, values), np.uint16)
        rows = max(1, min(height, _BAND_VALUES // values))
        shares = _shares(params).astype(np.float32) / _UNIT
        for band, _, _ in bands(height, 0, rows):
            now, out, mean = src[band], dst[band], means[band]
            if scratch.frames == 0:
                np.multiply(now, 256, out=mean, dtype=np.uint16)
                np.add(mean, 128, out=mean)
                np.copyto(out, now)
                continue
            share = scratch.array("share", (rows, values), np.float32)[: len(now)]
            change = scratch.array("change", (rows, values), np.float32)[: len(now)]
            np.right_shift(mean, 8, out=out, casting="unsafe")
            cv2.absdiff(now, out, dst=out)
            cv2.LUT(out, shares, dst=share)
            np.multiply(now, np.float32(256), out=change)
            np.add(change, np.float32(128), out=change)
            np.subtract(change, mean, out=change)
            np.multiply(change, share, out=change)
            np.add(change, mean, out=change)
            np.add(change, np.float32(0.5), out=change)
            np.copyto(mean, change, casting="unsafe")
            np.right_shift(mean, 8, out=out, casting="unsafe")


def _run_wide(src: Values, dst: Values, shares: Pixels, scratch: Scratch) -> None:
    means = scratch.array("means", src.shape, np.int32)
    for band, _, _ in bands(len(src), 0, wide_cpu.band_rows(src)):
        now, mean = scratch.array("now", src[band].shape, np.int32), means[band]
        np.add(np.multiply(src[band], 256, out=now, dtype=np.int32), 128, out=now)
        if scratch.frames == 0:
            np.copyto(mean, now)
        else:
            distance = scratch.array("distance", src[band].shape, np.int32)
            np.subtract(src[band], np.right_shift(mean, 8, out=distance), out=distance, dtype=np.int32)
            np.add(np.abs(distance, out=distance), LEVEL[16] // 2, out=distance)
            share = np.take(shares, np.floor_divide(distance, LEVEL[16], out=distance))
            # All products are below 2^31.
            np.multiply(np.subtract(now, mean, out=now), share, out=now)
            np.right_shift(np.add(now, 64, out=now), 7, out=now)
            np.add(mean, now, out=mean)
        np.right_shift(mean, 8, out=now)
        np.copyto(dst[band], now, casting="unsafe")


def _shares(params: TemporalDenoiseParams) -> Pixels:
    """(256,): the share of a new value at each distance, in 1/128."""
    shares = np.full(256, _UNIT, np.uint8)
    for distance in range(params.threshold):
        moved = max(2 * distance - params.threshold, 0) / params.threshold
        share = 1.0 - params.strength * (1.0 - moved)
        # Nine decimals count, so that errors of the floats they came from do not.
        shares[distance] = max(math.floor(round(share * _UNIT, 9) + 0.5), 1)
    return shares
