from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Literal

import cv2
import numpy as np
import numpy.typing as npt
from pydantic import Field

from kernels.image import Pixels, Shape
from kernels.op import OpKind, OpParams, PixelOp, Scratch

_BAND_PIXELS = 1 << 16  # times 5 bytes of intermediates: a band stays in the L2 cache


class ColormapParams(OpParams):
    map: Literal[
        "autumn", "bone", "cividis", "cool", "deepgreen", "hot", "hsv", "inferno", "jet", "magma", "ocean", "parula",
        "pink", "plasma", "rainbow", "spring", "summer", "turbo", "twilight", "twilight_shifted", "viridis", "winter",
    ] = Field(default="viridis", description="The colours from dark to bright, by OpenCV's names.")  # fmt: skip


class Colormap(PixelOp[ColormapParams]):
    """Shows brightness as colours: each grey value, or luma of a colour, becomes one of 256; the result is BGR8.

    Luma is (3735·B + 19235·G + 9798·R + 2^14) >> 15, as of ``grayscale``. The colours are those of cv2.applyColorMap.
    """

    name = "colormap"
    kind = OpKind.POINT
    Params = ColormapParams
    cuda_source = """
struct colormap_params {
  uint32 colors[256];  // blue, green, red from the lowest byte
};

template <int CHANNELS>
__device__ __forceinline__ void colormap(const Picture<CHANNELS>& in, int x, int y, Size, const colormap_params& p,
                                         uint8* out) {
  const uint8* from = in.at(x, y);
  int grey = from[0];
  if constexpr (CHANNELS == 3) grey = (3735 * from[0] + 19235 * from[1] + 9798 * from[2] + (1 << 14)) >> 15;
  const uint32 color = p.colors[grey];
#pragma unroll
  for (int c = 0; c < 3; ++c) out[c] = color >> 8 * c;
}
"""

    def output(self, source: Shape, params: ColormapParams) -> Shape:
        return replace(source, channels=3)

    def constants(self, params: ColormapParams) -> bytes:
        return colors(params.map).tobytes()

    def run_cpu(self, src: Pixels, dst: Pixels, params: ColormapParams, scratch: Scratch) -> None:
        height, width = src.shape[:2]
        rows = max(1, min(height, _BAND_PIXELS // width))
        grey = scratch.array("colormap.grey", (rows, width), np.uint8)
        # Whole words are looked up, and every fourth byte left out: quicker than three tables for three channels.
        words = scratch.array("colormap.words", (rows, width), np.int32)
        table = colors(params.map).view(np.int32)
        for top in range(0, height, rows):
            band = src[top : top + rows]
            n = len(band)
            if band.ndim == 3:
                cv2.cvtColor(band, cv2.COLOR_BGR2GRAY, dst=grey[:n])
                band = grey[:n]
            cv2.LUT(band, table, dst=words[:n])
            fours = words[:n].view(np.uint8).reshape(n, width, 4)
            cv2.cvtColor(fours, cv2.COLOR_BGRA2BGR, dst=dst[top : top + n])


@cache
def colors(name: str) -> npt.NDArray[np.uint32]:
    """(256,): blue, green, red of each value, from the lowest byte up."""
    values = np.arange(256, dtype=np.uint8)[:, None]
    bgr = cv2.applyColorMap(values, getattr(cv2, f"COLORMAP_{name.upper()}"))[:, 0]
    packed: npt.NDArray[np.uint32] = (bgr.astype(np.int64) * (1, 1 << 8, 1 << 16)).sum(axis=1).astype(np.uint32)
    return packed
