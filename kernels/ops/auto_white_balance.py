from __future__ import annotations

import math

import cv2
import numpy as np
import numpy.typing as npt
from pydantic import Field

from kernels.image import Pixels
from kernels.matrix import UNIT
from kernels.op import OpParams, Scratch, StatisticOf, StatisticOp, look_up, of_previous


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
        gain = _gains((histogram * np.arange(256)).sum(axis=1), params)[:, None]
        saturated: Pixels = np.minimum((np.arange(256) * gain + 512) >> 10, 255).astype(np.uint8)
        return saturated

    def run_cpu(self, src: Pixels, dst: Pixels, params: AutoWhiteBalanceParams, scratch: Scratch) -> None:
        # Sums are all that counts of a histogram; of grey only whether there is any light.
        sums = np.array([cv2.hasNonZero(src)] if src.ndim == 2 else cv2.sumElems(src)[:3], np.int64)
        before = scratch.array("sums", sums.shape, np.int64)
        gains = _gains(before if of_previous(params) and scratch.frames else sums, params)
        before[...] = sums
        if (gains == UNIT).all():
            np.copyto(dst, src)
        elif src.ndim == 2:
            table = np.minimum((np.arange(256) * gains[0] + 512) >> 10, 255).astype(np.uint8)
            look_up(src, table, dst)
        else:  # half a unit more leaves no halves to round: see kernels.matrix
            rows = np.column_stack((np.diag(gains / UNIT), np.full(3, 1 / (2 * UNIT)))).astype(np.float32)
            cv2.transform(src, rows, dst=dst)


def _gains(sums: npt.NDArray[np.int64], params: AutoWhiteBalanceParams) -> npt.NDArray[np.int64]:
    """In 1/1024, of each channel."""
    own, most = len(sums) * sums, _max_gain(params)
    return np.minimum(np.where(own > 0, (2048 * sums.sum() + own) // np.maximum(2 * own, 1), most), most)


def _max_gain(params: AutoWhiteBalanceParams) -> int:
    return math.floor(1024 * params.max_gain + 0.5)
