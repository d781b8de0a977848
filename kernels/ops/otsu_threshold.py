from __future__ import annotations

from fractions import Fraction

import numpy as np
import numpy.typing as npt
from pydantic import Field

from kernels.image import Pixels
from kernels.op import OpParams, StatisticOf, StatisticOp

_NEAR = 1 - 1e-9  # 64-bit floats are nearer than that; whole numbers decide among what they find


class OtsuThresholdParams(OpParams):
    max_value: int = Field(
        default=255, ge=0, le=255, description="What bright values become; the others become 0.",
        json_schema_extra={"x-unit": "levels", "x-step": 1},
    )  # fmt: skip
    inverted: bool = Field(default=False, description="The other way round: dark values become max_value.")
    statistic: StatisticOf = "frame"


class OtsuThreshold(StatisticOp[OtsuThresholdParams]):
    """Two levels, per channel, at the threshold that parts dark from bright best, found anew for each frame.

    out = max_value where in > t, else 0. t is the level with the greatest (S·w − n·s)² / (w·(n − w)), where w of n
    values are t or less and s of S is their sum; the lowest of several, compared exactly; 0 for a picture of one value.
    The variance between the two classes (Otsu, A threshold selection method from gray-level histograms, 1979), as
    cv2.threshold with THRESH_OTSU has it, in 64-bit floats.
    """

    name = "otsu_threshold"
    Params = OtsuThresholdParams
    cuda_source = """
struct otsu_threshold_params {
  int max_value, inverted;
};

// a * a * b, least word first: 124 and 54 bits.
__device__ __forceinline__ void otsu_product(uint64 a, uint64 b, uint64* words) {
  const uint64 low = a * a, high = __umul64hi(a, a), carry = __umul64hi(low, b);
  words[0] = low * b;
  words[1] = high * b + carry;
  words[2] = __umul64hi(high, b) + (words[1] < carry);
}

template <int CHANNELS>
__device__ int otsu_threshold(const uint32* histogram, uint32 pixels, int channel, int value,
                              const otsu_threshold_params& p) {
  const uint32* counts = histogram + 256 * channel;
  uint64 all = 0;
  for (int v = 1; v < 256; ++v) all += (uint64)v * counts[v];
  uint64 best_way = 0, best_parts = 1, sum = 0;
  uint32 dark = 0;
  int threshold = 0;
  for (int v = 0; v < 256; ++v) {
    if (counts[v] == 0) continue;  // the same classes as before
    dark += counts[v];
    sum += (uint64)v * counts[v];
    if (dark == pixels) break;
    // At least 0, as the mean of the dark values is below that of all; below 2^62, though both products pass 2^64.
    const uint64 way = all * dark - pixels * sum, parts = (uint64)dark * (pixels - dark);
    uint64 found[3], best[3];
    otsu_product(way, best_parts, found);
    otsu_product(best_way, parts, best);
    int word = 2;
    while (word > 0 && found[word] == best[word]) --word;
    if (found[word] <= best[word]) continue;
    best_way = way;
    best_parts = parts;
    threshold = v;
  }
  return (value > threshold) != (p.inverted != 0) ? p.max_value : 0;
}
"""

    def constants(self, params: OtsuThresholdParams) -> bytes:
        return np.array([params.max_value, params.inverted], np.int32).tobytes()

    def tables(self, histogram: npt.NDArray[np.int64], params: OtsuThresholdParams) -> Pixels:
        thresholds = np.array([[otsu_level(counts)] for counts in histogram])
        bright = np.arange(256) > thresholds
        return np.where(bright != params.inverted, params.max_value, 0).astype(np.uint8)


def otsu_level(counts: npt.NDArray[np.int64]) -> int:
    """The threshold for (256,) counts of at most 2^28 pixels."""
    dark, sums = counts.cumsum(), (counts * np.arange(256)).cumsum()
    n = dark[-1:]
    # The difference is below 2^62, whatever the products lose above 2^63.
    way, parts = sums[-1:] * dark - n * sums, dark * (n - dark)
    variances = way.astype(np.float64) ** 2 / np.maximum(parts, 1)
    near = np.flatnonzero(variances >= variances.max() * _NEAR)
    best = max(Fraction(int(way[t]) ** 2, max(int(parts[t]), 1)) for t in near)
    return next(int(t) for t in near if Fraction(int(way[t]) ** 2, max(int(parts[t]), 1)) == best)
