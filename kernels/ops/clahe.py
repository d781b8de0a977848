from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
from pydantic import Field

from kernels.image import Pixels
from kernels.local_tables import MAX_GRID
from kernels.op import LocalStatisticOp, OpParams, StatisticOf


class ClaheParams(OpParams):
    clip_limit: float = Field(
        default=2.0, ge=0.0, le=256.0,
        description="No brightness counts more than so many times the mean: more is harsher and noisier. 0: no limit.",
        json_schema_extra={"x-unit": "", "x-step": 0.1},
    )  # fmt: skip
    tiles_x: int = Field(
        default=8, ge=1, le=MAX_GRID, description="Regions across: each has a contrast of its own.",
        json_schema_extra={"x-unit": "", "x-step": 1},
    )  # fmt: skip
    tiles_y: int = Field(
        default=8, ge=1, le=MAX_GRID, description="Regions down.", json_schema_extra={"x-unit": "", "x-step": 1}
    )
    statistic: StatisticOf = "frame"


class Clahe(LocalStatisticOp[ClaheParams]):
    """Evens out contrast region by region, up to a limit: detail in shade and in light at once; colours stay.

    A region's table is T(v) = (510·below(v) + n) // (2n), where below(v) of its n pixels are v or less once counts
    above max(⌊clip_limit·n/256⌋, 1) are cut: of what is cut ⌊cut/256⌋ goes to each of the 256 levels, and 1 more to
    each ⌊256/rest⌋th of them as long as there is a rest. clip_limit is taken in 1/10⁶.
    A pixel between the middles of four regions gets what their tables make of it, by its distances: shares in 1/256
    across and in 1/32768 down, rounded half up. BGR8: Y is what ``grayscale`` makes, and Y' − Y is added to each
    channel, saturated: as by way of YCrCb, with Cr and Cb kept.
    Contrast limited adaptive histogram equalization (Zuiderveld, Graphics Gems IV, 1994, VIII.5) with regions, limit
    and rest of cv2.createCLAHE (its clipLimit, 40 by default there, and tileGridSize). That computes in 32-bit floats
    and differs by at most 1 level; where little is clipped, by 2 in some pixels of a million.
    A block of a GPU's threads counts a region at a time: few tiles are slow.
    """

    name = "clahe"
    Params = ClaheParams
    cuda_source = """
struct clahe_params {
  Grid grid;
  uint32 clip_limit;  // in 1/10^6 of the mean count
};

__device__ int clahe(const uint32* histogram, uint32 pixels, int value, const clahe_params& p) {
  uint32 most = pixels;
  if (p.clip_limit > 0) most = max((uint32)min((uint64)p.clip_limit * pixels / 256000000, (uint64)pixels), 1u);
  uint32 cut = 0, below = 0;
  for (int v = 0; v < 256; ++v) {
    const uint32 count = histogram[v];
    cut += count - min(count, most);
    if (v <= value) below += min(count, most);
  }
  const uint32 each = cut / 256, rest = cut % 256;
  below += each * (value + 1);
  if (rest > 0) below += min(rest, value / (256 / rest) + 1);
  return (510ull * below + pixels) / (2ull * pixels);
}
"""

    def grid(self, params: ClaheParams) -> tuple[int, int]:
        return params.tiles_x, params.tiles_y

    def table_constants(self, params: ClaheParams) -> bytes:
        return np.array([_millionths(params)], np.uint32).tobytes()

    def tables(self, histograms: npt.NDArray[np.int64], params: ClaheParams) -> Pixels:
        n = histograms.sum(axis=1, keepdims=True)
        most = np.maximum(_millionths(params) * n // 256_000_000, 1) if params.clip_limit > 0 else n
        clipped = np.minimum(histograms, most)
        each, rest = np.divmod(n - clipped.sum(axis=1, keepdims=True), 256)
        values = np.arange(256)
        more = np.minimum(rest, values // (256 // np.maximum(rest, 1)) + 1)
        below = clipped.cumsum(axis=1) + each * (values + 1) + more
        tables: Pixels = ((510 * below + n) // (2 * n)).astype(np.uint8)
        return tables


def _millionths(params: ClaheParams) -> int:
    return math.floor(1_000_000 * params.clip_limit + 0.5)
