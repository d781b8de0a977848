from __future__ import annotations

import math
from dataclasses import replace
from functools import cache

import cv2
import numpy as np
import numpy.typing as npt
from pydantic import Field

from kernels.image import Pixels, Shape
from kernels.op import OpParams, Scratch, TemporalOp
from kernels.stencil_cpu import bands

_BAND_PIXELS = 1 << 14  # times 25 bytes of intermediates: a band stays in the L2 cache


class MotionHeatmapParams(OpParams):
    decay: float = Field(
        default=0.95, ge=0.0, le=0.995, description="Share of the heat that is left after a frame.",
        json_schema_extra={"x-unit": "", "x-step": 0.005},
    )  # fmt: skip
    gain: float = Field(
        default=2.0, ge=0.0, le=16.0, description="Heat for each level that a pixel changes by; 255 is the hottest.",
        json_schema_extra={"x-unit": "", "x-step": 0.1},
    )  # fmt: skip
    opacity: float = Field(
        default=0.7, ge=0.0, le=1.0, description="Of the colours, from a quarter of the heat on; less below.",
        json_schema_extra={"x-unit": "", "x-step": 0.05},
    )  # fmt: skip
    threshold: int = Field(
        default=8, ge=0, le=255, description="Taken from each change: so much is noise.",
        json_schema_extra={"x-unit": "levels", "x-step": 1},
    )  # fmt: skip


class MotionHeatmap(TemporalOp[MotionHeatmapParams]):
    """Shows where things have moved as colours over the picture, from blue to red; the result is BGR8.

    The heat h' = decay·h + gain·max(|luma − luma before| − threshold, 0) of each pixel, at most 255 + 255/256: decay,
    gain and heat in 1/256, decay·h rounded down. Out = (in·(256 − a) + color·a + 128) >> 8, with the colour of ⌊h'⌋ in
    cv2.COLORMAP_TURBO and a = (⌊256·opacity + ½⌋·min(⌊h'⌋, 64) + 32) >> 6. Luma as of ``grayscale``; exact.
    Akin to the motion history of Bobick and Davis, "The recognition of human movement using temporal templates", IEEE
    Trans. Pattern Analysis and Machine Intelligence 23 (2001).
    """

    name = "motion_heatmap"
    Params = MotionHeatmapParams
    cuda_source = """
struct motion_heatmap_params {
  int decay, gain, opaque;  // in 1/256
  int threshold;
  uint8 colors[256][3];
};

template <int CHANNELS>
struct alignas(4) motion_heatmap_state {
  uint16 heat;  // in 1/256
  uint8 luma;
};

template <int CHANNELS>
__device__ __forceinline__ void motion_heatmap(const uint8* in, motion_heatmap_state<CHANNELS>& state, bool first, int,
                                               int, Size, const motion_heatmap_params& p, uint8* out) {
  int luma = in[0];
  if constexpr (CHANNELS == 3) luma = (3735 * in[0] + 19235 * in[1] + 9798 * in[2] + (1 << 14)) >> 15;
  const int change = max(abs(luma - state.luma) - p.threshold, 0);
  const int heat = first ? 0 : min((state.heat * p.decay >> 8) + p.gain * change, 65535);
  state.heat = heat;
  state.luma = luma;
  const int level = heat >> 8, share = (p.opaque * min(level, 64) + 32) >> 6;
#pragma unroll
  for (int c = 0; c < 3; ++c)
    out[c] = (in[CHANNELS == 1 ? 0 : c] * (256 - share) + p.colors[level][c] * share + 128) >> 8;
}
"""

    def output(self, source: Shape, params: MotionHeatmapParams) -> Shape:
        return replace(source, channels=3)

    def state_bytes(self, channels: int) -> int:
        return 4

    def constants(self, params: MotionHeatmapParams) -> bytes:
        return np.array([*_fixed(params), params.threshold], np.int32).tobytes() + _colors().tobytes()

    def run_cpu(self, src: Pixels, dst: Pixels, params: MotionHeatmapParams, scratch: Scratch) -> None:
        height, width = src.shape[:2]
        before = scratch.array("before", (height, width), np.uint8)
        heat = scratch.array("heat", (height, width), np.uint16)
        rows = max(1, min(height, _BAND_PIXELS // width))
        decay, gain, opaque = _fixed(params)
        threshold = np.uint8(params.threshold)
        shares = (opaque * np.minimum(np.arange(256), 64) + 32 >> 6)[:, None]
        colors = (_colors() * shares + 128).astype(np.uint16)
        left = np.repeat(256 - shares, 3, axis=1).astype(np.uint16)
        for band, _, _ in bands(height, 0, rows):
            seen, out, hot = src[band], dst[band], heat[band]
            luma = seen
            if seen.ndim == 3:
                luma = scratch.array("luma", (rows, width), np.uint8)[: len(seen)]
                cv2.cvtColor(seen, cv2.COLOR_BGR2GRAY, dst=luma)
                np.copyto(out, seen)
            else:
                cv2.cvtColor(seen, cv2.COLOR_GRAY2BGR, dst=out)
            if scratch.frames == 0:
                hot[...] = 0
                np.copyto(before[band], luma)
                continue
            change = scratch.array("change", (rows, width), np.uint8)[: len(seen)]
            cv2.absdiff(luma, before[band], dst=change)
            np.subtract(np.maximum(change, threshold, out=change), threshold, out=change)
            np.copyto(before[band], luma)
            old, new = (scratch.array(name, (rows, width), np.int32)[: len(seen)] for name in ("old", "new"))
            np.right_shift(np.multiply(hot, decay, out=old, dtype=np.int32), 8, out=old)
            np.add(np.multiply(change, gain, out=new, dtype=np.int32), old, out=new)
            np.copyto(hot, np.minimum(new, 65535, out=new), casting="unsafe")
            np.right_shift(hot, 8, out=change, casting="unsafe")
            if change.any():
                _blend(out, change, colors, left, scratch)


def _blend(
    out: Pixels, level: Pixels, colors: npt.NDArray[np.uint16], left: npt.NDArray[np.uint16], scratch: Scratch
) -> None:
    """Put each level's colour, (256, 3) in 1/256, over what its share leaves; where there is no heat that is all."""
    shape = out.shape
    levels = scratch.array("levels", shape, np.uint8)
    added, shares = (scratch.array(name, shape, np.uint16) for name in ("added", "shares"))
    cv2.cvtColor(level, cv2.COLOR_GRAY2BGR, dst=levels)
    cv2.LUT(levels, colors[None], dst=added)
    cv2.LUT(levels, left[None], dst=shares)
    np.multiply(shares, out, out=shares)
    np.add(shares, added, out=shares)
    np.right_shift(shares, 8, out=out, casting="unsafe")


def _fixed(params: MotionHeatmapParams) -> tuple[int, int, int]:
    """Decay, gain and opacity in 1/256."""
    decay, gain, opaque = (math.floor(256 * v + 0.5) for v in (params.decay, params.gain, params.opacity))
    return decay, gain, opaque


@cache
def _colors() -> Pixels:
    """(256, 3): from dark blue over green to dark red."""
    values = np.arange(256, dtype=np.uint8)[:, None]
    return np.ascontiguousarray(cv2.applyColorMap(values, cv2.COLORMAP_TURBO)[:, 0], np.uint8)
