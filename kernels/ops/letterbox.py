from __future__ import annotations

from dataclasses import dataclass, replace

import cv2
import numpy as np
from pydantic import Field

from kernels.image import MAX_SIDE_PX, Shape, Values
from kernels.op import OpKind, OpParams, PixelOp, Scratch
from kernels.ops.resize import CODES, Interpolation, in_proportion, resample
from kernels.params import Color, bgr, fill_of, grey


class LetterboxParams(OpParams):
    width: int = Field(
        default=640, ge=1, le=MAX_SIDE_PX, description="Width of the result, bars included.",
        json_schema_extra={"x-unit": "px", "x-step": 1},
    )  # fmt: skip
    height: int = Field(
        default=640, ge=1, le=MAX_SIDE_PX, description="Height of the result, bars included.",
        json_schema_extra={"x-unit": "px", "x-step": 1},
    )  # fmt: skip
    fill: Color = Field(
        default="#727272", description="Colour of the bars; a grey picture takes its grey, as grayscale has it."
    )
    interpolation: Interpolation = Field(default="linear", description="How the picture is resized, as by resize.")


@dataclass(frozen=True, slots=True)
class Placement:
    """Where the resized picture lies in the result, in px."""

    left: int
    top: int
    width: int
    height: int


def placement(source_width: int, source_height: int, width: int, height: int) -> Placement:
    """Where a picture lies in its letterbox; also what takes coordinates back: ``(x - left) · source / width``."""
    inner_width, inner_height = width, height
    if width * source_height <= height * source_width:
        inner_height = min(in_proportion(source_height, width, source_width), height)
    else:
        inner_width = min(in_proportion(source_width, height, source_height), width)
    return Placement((width - inner_width) // 2, (height - inner_height) // 2, inner_width, inner_height)


class Letterbox(PixelOp[LetterboxParams]):
    """Fits the whole picture into a size, its aspect kept, and fills what is left on both sides.

    The picture is made min(width / W, height / H) times as large as its W x H pixels.
    The side that limits is filled, the other one follows, rounded half up to whole pixels, at least 1; the picture is
    made so large as resize does, and lies in the middle, half a pixel to the left or above where the bars are odd.
    Source: what detectors of the YOLO family are given; the grey is that of YOLOv5's letterbox.
    """

    name = "letterbox"
    kind = OpKind.GATHER
    Params = LetterboxParams
    takes_16_bit = True
    cuda_source = """
struct letterbox_params {
  int interpolation;
  uint8 fill[4];  // blue, green, red; grey
};

template <int CHANNELS, class Value>
__device__ __forceinline__ void letterbox(const Picture<CHANNELS, Value>& in, int x, int y, Size size,
                                          const letterbox_params& p, Value* out) {
  const Size from = in.size;
  Size inner = size;
  if (size.width * from.height <= size.height * from.width)
    inner.height = min(max((2 * from.height * size.width + from.width) / (2 * from.width), 1), size.height);
  else
    inner.width = min(max((2 * from.width * size.height + from.height) / (2 * from.height), 1), size.width);
  x -= (size.width - inner.width) / 2;
  y -= (size.height - inner.height) / 2;
  if (x >= 0 && x < inner.width && y >= 0 && y < inner.height) {
    resample(in, x, y, inner, p.interpolation, out);
  } else {
#pragma unroll
    for (int c = 0; c < CHANNELS; ++c) out[c] = p.fill[CHANNELS == 1 ? 3 : c] * Depth<Value>::LEVEL;
  }
}
"""

    def output(self, source: Shape, params: LetterboxParams) -> Shape:
        return replace(source, width=params.width, height=params.height)

    def constants(self, params: LetterboxParams) -> bytes:
        fill = bytes((*bgr(params.fill), grey(params.fill)))
        return np.array(CODES[params.interpolation], np.int32).tobytes() + fill

    def run_cpu(self, src: Values, dst: Values, params: LetterboxParams, scratch: Scratch) -> None:
        height, width = dst.shape[:2]
        place = placement(src.shape[1], src.shape[0], width, height)
        right, bottom = place.left + place.width, place.top + place.height
        resample(src, dst[place.top : bottom, place.left : right], params.interpolation, scratch)
        fill = fill_of(params.fill, dst)
        for bar in (dst[: place.top], dst[bottom:], dst[place.top : bottom, : place.left], dst[:, right:]):
            if bar.size:
                cv2.rectangle(bar, (0, 0), (bar.shape[1] - 1, bar.shape[0] - 1), fill, cv2.FILLED)
