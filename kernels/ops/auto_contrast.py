from __future__ import annotations

import math
from typing import Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from kernels.image import Pixels
from kernels.op import OpParams, StatisticOf, StatisticOp


class AutoContrastParams(OpParams):
    dark: float = Field(
        default=0.5, ge=0.0, le=49.0, description="So many of the darkest values may all become black.",
        json_schema_extra={"x-unit": "%", "x-step": 0.1},
    )  # fmt: skip
    bright: float = Field(
        default=0.5, ge=0.0, le=49.0, description="So many of the brightest values may all become white.",
        json_schema_extra={"x-unit": "%", "x-step": 0.1},
    )  # fmt: skip
    channels: Literal["together", "each"] = Field(
        default="together",
        description="One curve for blue, green and red, from all their values: hues stay as they are. Or one for each.",
    )
    statistic: StatisticOf = "frame"


class AutoContrast(StatisticOp[AutoContrastParams]):
    """Stretches values so that the darkest become black and the brightest white, anew for each frame.

    out = (510·(v − low) + high − low) // (2·(high − low)), saturated: 255·(v − low) / (high − low), rounded half up.
    Of n values ⌊n·dark⌋ may lie below low, the greatest level for which that holds, and ⌊n·bright⌋ above high, the
    least; both shares are taken in 1/10⁶. Where low = high nothing changes. Together n counts all channels' values.
    Source: the stretch between percentiles, as Pillow's ImageOps.autocontrast with a cutoff.
    """

    name = "auto_contrast"
    Params = AutoContrastParams
    cuda_source = """
struct auto_contrast_params {
  uint32 dark, bright;  // in 1/10^6
  int together;
};

template <int CHANNELS>
__device__ int auto_contrast(const uint32* histogram, uint32 pixels, int channel, int value,
                             const auto_contrast_params& p) {
  const int first = p.together ? 0 : channel, end = p.together ? CHANNELS : channel + 1;
  const uint64 n = (uint64)pixels * (end - first);
  const uint32 dark = n * p.dark / 1000000, bright = n - n * p.bright / 1000000;
  // The levels that are passed before more than dark, and before all but the brightest, are counted.
  int low = 0, high = 0;
  uint32 up_to = 0;
  for (int v = 0; v < 256; ++v) {
    for (int c = first; c < end; ++c) up_to += histogram[256 * c + v];
    low += up_to <= dark;
    high += up_to < bright;
  }
  if (low == high) return value;
  return value <= low ? 0 : (510 * (value - low) + high - low) / (2 * (high - low));
}
"""

    def constants(self, params: AutoContrastParams) -> bytes:
        return np.array([*_shares(params), params.channels == "together"], np.int32).tobytes()

    def tables(self, histogram: npt.NDArray[np.int64], params: AutoContrastParams) -> Pixels:
        counts = histogram.sum(axis=0, keepdims=True) if params.channels == "together" else histogram
        up_to = counts.cumsum(axis=1)
        n = up_to[:, -1:]
        dark, bright = (n * share // 1_000_000 for share in _shares(params))
        low = (up_to <= dark).sum(axis=1, keepdims=True)
        high = (up_to < n - bright).sum(axis=1, keepdims=True)
        width = high - low
        table = (510 * (np.arange(256) - low) + width) // np.maximum(2 * width, 1)
        table = np.where(width == 0, np.arange(256), table.clip(0, 255))
        return np.broadcast_to(table, histogram.shape).astype(np.uint8)


def _shares(params: AutoContrastParams) -> tuple[int, int]:
    return math.floor(10_000 * params.dark + 0.5), math.floor(10_000 * params.bright + 0.5)
