from __future__ import annotations

from typing import Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from kernels.image import Pixels
from kernels.op import OpParams, StatisticOf, StatisticOp


class EqualizeHistogramParams(OpParams):
    channels: Literal["together", "each"] = Field(
        default="together",
        description="One curve for blue, green and red, from all their values: grey stays grey. Or one for each.",
    )
    statistic: StatisticOf = "frame"


class EqualizeHistogram(StatisticOp[EqualizeHistogramParams]):
    """Spreads values so that each range of levels is about as frequent as any other, anew for each frame.

    out = (2·255·(below(v) − d) + n − d) // (2·(n − d)), where below(v) of n values are v or less, and d are as small as
    the least: 255·(below(v) − d) / (n − d), rounded half up. A picture of one value stays as it is. Together n counts
    the values of all channels. The histogram equalization of Gonzalez and Woods (Digital Image Processing, 3.3), from
    the least value on as in cv2.equalizeHist, which computes in 32-bit floats and may be one level off.
    """

    name = "equalize_histogram"
    Params = EqualizeHistogramParams
    cuda_source = """
struct equalize_histogram_params {
  int together;
};

template <int CHANNELS>
__device__ int equalize_histogram(const uint32* histogram, uint32 pixels, int channel, int value,
                                  const equalize_histogram_params& p) {
  const int first = p.together ? 0 : channel, end = p.together ? CHANNELS : channel + 1;
  uint32 below = 0, least = 0;
  for (int v = 0; v < 256; ++v) {
    uint32 count = 0;
    for (int c = first; c < end; ++c) count += histogram[256 * c + v];
    if (least == 0) least = count;
    if (v <= value) below += count;
  }
  const uint32 rest = pixels * (end - first) - least;
  return rest == 0 ? value : (510ull * (max(below, least) - least) + rest) / (2ull * rest);
}
"""

    def constants(self, params: EqualizeHistogramParams) -> bytes:
        return np.array([params.channels == "together"], np.int32).tobytes()

    def tables(self, histogram: npt.NDArray[np.int64], params: EqualizeHistogramParams) -> Pixels:
        counts = histogram.sum(axis=0, keepdims=True) if params.channels == "together" else histogram
        below = counts.cumsum(axis=1)
        least = np.take_along_axis(counts, (counts > 0).argmax(axis=1)[:, None], axis=1)
        rest = below[:, -1:] - least
        table = (510 * (np.maximum(below, least) - least) + rest) // np.maximum(2 * rest, 1)
        table = np.where(rest == 0, np.arange(256), table)
        return np.broadcast_to(table, histogram.shape).astype(np.uint8)
