from __future__ import annotations

from dataclasses import replace

import numpy as np
from pydantic import Field
from pydantic.config import JsonDict

from kernels.image import MAX_SIDE_PX, Shape, Values
from kernels.op import OpKind, OpParams, PixelOp, Scratch

_PX: JsonDict = {"x-unit": "px", "x-step": 1}


class CropParams(OpParams):
    x: int = Field(
        default=0, ge=0, le=MAX_SIDE_PX, description="The leftmost column that stays; beyond the picture, its last.",
        json_schema_extra=_PX,
    )  # fmt: skip
    y: int = Field(
        default=0, ge=0, le=MAX_SIDE_PX, description="The topmost row that stays; beyond the picture, its last.",
        json_schema_extra=_PX,
    )  # fmt: skip
    width: int = Field(
        default=0, ge=0, le=MAX_SIDE_PX, description="Width of the result, at most what there is; 0 is all there is.",
        json_schema_extra=_PX,
    )  # fmt: skip
    height: int = Field(
        default=0, ge=0, le=MAX_SIDE_PX, description="Height of the result, at most what there is; 0 is all there is.",
        json_schema_extra=_PX,
    )  # fmt: skip


class Crop(PixelOp[CropParams]):
    """Keeps a rectangle of the picture; exact.

    out(i, j) = in(x + i, y + j), as a slice of a NumPy array.

    A rectangle that is not wholly inside is cut to the picture, at least one pixel: the result is then smaller than
    asked for, never padded.
    """

    name = "crop"
    kind = OpKind.GATHER
    Params = CropParams
    takes_16_bit = True
    cuda_source = """
struct crop_params {
  int x, y;
};

template <int CHANNELS, class Value>
__device__ __forceinline__ void crop(const Picture<CHANNELS, Value>& in, int x, int y, Size size, const crop_params& p,
                                     Value* out) {
  const Value* from = in.at(min(p.x, in.size.width - 1) + x, min(p.y, in.size.height - 1) + y);
#pragma unroll
  for (int c = 0; c < CHANNELS; ++c) out[c] = from[c];
}
"""

    def output(self, source: Shape, params: CropParams) -> Shape:
        width, height = source.width - _first(params.x, source.width), source.height - _first(params.y, source.height)
        return replace(source, width=min(params.width or width, width), height=min(params.height or height, height))

    def constants(self, params: CropParams) -> bytes:
        return np.array((params.x, params.y), np.int32).tobytes()

    def run_cpu(self, src: Values, dst: Values, params: CropParams, scratch: Scratch) -> None:
        x, y = _first(params.x, src.shape[1]), _first(params.y, src.shape[0])
        np.copyto(dst, src[y : y + dst.shape[0], x : x + dst.shape[1]])


def _first(wanted: int, side: int) -> int:
    return min(wanted, side - 1)
