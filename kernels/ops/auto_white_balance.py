from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
from pydantic import Field

from kernels.image import Pixels
from kernels.op import OpParams, StatisticOf, StatisticOp


class AutoWhiteBalanceParams(OpParams):
    max_gain: float = Field(
        default=4.0, ge=1.0, le=16.0,
        description="No colour is multiplied by more: in a picture almost without red the red is mostly noise.",
        json_schema_extra={"x-unit": "", "x-step": 0.1},
    )  # fmt: skip
    statistic: StatisticOf = "frame"


class AutoWhiteBalance(StatisticOp[AutoWhiteBalanceParams]):
    """Takes the light's colour out: blue, green and red get the same mean, anew for each frame; GRAY8 is unchanged.

    out = (v·gain + 512) >> 10, saturated, with gain = (2·1024·all + 3·own) // (2·3·own), at most ⌊1024·max_gain + ½⌋,
    where own is the sum of the channel's values and all that of all three: the mean of the three means, over the
    channel's own, in 1/1024. The grey world: the mean of the colours of a scene is grey (Buchsbaum, A spatial processor
    model for object colour perception, 1980). Wrong where one colour fills the scene, such as a lawn.
    """

    name = "auto_white_balance"
    Params = AutoWhiteBalanceParams
    cuda_source = """
struct auto_white_balance_params {
  int max_gain;  // in 1/1024
};

template <int CHANNELS>
__device__ int auto_white_balance(const uint32* histogram, uint32, int channel, int value,
                                  const auto_white_balance_params& p) {
  uint64 all = 0, own = 0;
  for (int c = 0; c < CHANNELS; ++c) {
    uint64 sum = 0;
    for (int v = 1; v < 256; ++v) sum += (uint64)v * histogram[256 * c + v];
    all += sum;
    if (c == channel) own = CHANNELS * sum;
  }
  uint64 gain = p.max_gain;
  if (own > 0) gain = min(gain, (2048 * all + own) / (2 * own));
  return (value * (int)gain + 512) >> 10;
}
"""

    def constants(self, params: AutoWhiteBalanceParams) -> bytes:
        return np.array([_max_gain(params)], np.int32).tobytes()

    def tables(self, histogram: npt.NDArray[np.int64], params: AutoWhiteBalanceParams) -> Pixels:
        sums = (histogram * np.arange(256)).sum(axis=1, keepdims=True)
        own = len(sums) * sums
        gain = np.where(own > 0, (2048 * sums.sum() + own) // np.maximum(2 * own, 1), _max_gain(params))
        table = (np.arange(256) * np.minimum(gain, _max_gain(params)) + 512) >> 10
        saturated: Pixels = np.minimum(table, 255).astype(np.uint8)
        return saturated


def _max_gain(params: AutoWhiteBalanceParams) -> int:
    return math.floor(1024 * params.max_gain + 0.5)
