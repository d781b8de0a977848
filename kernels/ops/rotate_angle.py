from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from pydantic import Field

from kernels.image import Values
from kernels.op import OpKind, OpParams, PixelOp, Scratch
from kernels.sampling import Border, Fill, Interpolation, Points, Sampling, points_of, sample

_PLACE_BITS = 32


class RotateAngleParams(OpParams):
    degrees: float = Field(
        default=0.0, ge=-360.0, le=360.0, description="Clockwise, about the middle of the picture.",
        json_schema_extra={"x-unit": "°", "x-step": 0.1},
    )  # fmt: skip
    scale: float = Field(
        default=1.0, ge=0.01, le=100.0, description="How many times larger the turned picture is.",
        json_schema_extra={"x-unit": "×", "x-step": 0.01},
    )  # fmt: skip
    interpolation: Interpolation = "linear"
    border: Border = "constant"
    fill: Fill = "#000000"


class RotateAngle(PixelOp[RotateAngleParams]):
    """Turns the picture by any angle about its middle, clockwise; the size stays, so corners are cut off.

    With c = cos / scale and s = sin / scale, rounded to 1/2^32, a pixel that lies (x, y) from the middle shows the
    point (c·x + s·y, c·y − s·x) from it, rounded half up to 1/32 px: OpenCV's getRotationMatrix2D, with the angle's
    sign changed, about ((width − 1) / 2, (height − 1) / 2). Quarter turns of a square are exact.
    """

    name = "rotate_angle"
    kind = OpKind.GATHER
    Params = RotateAngleParams
    takes_16_bit = True
    cuda_source = """
struct rotate_angle_params {
  int64 cosine, sine;  // of the way back, in 1/2^PLACE_BITS
  Sampling sampling;
};

template <int CHANNELS, class Value>
__device__ __forceinline__ void rotate_angle(const Picture<CHANNELS, Value>& in, int x, int y, Size size,
                                             const rotate_angle_params& p, Value* out) {
  // Twice the distance from the middle, so that the place is in half as large units.
  const int right = 2 * x - (size.width - 1), below = 2 * y - (size.height - 1);
  const int64 from_x = p.cosine * right + p.sine * below + ((int64)(size.width - 1) << PLACE_BITS);
  const int64 from_y = p.cosine * below - p.sine * right + ((int64)(size.height - 1) << PLACE_BITS);
  sample(in, point_of(from_x, PLACE_BITS + 1), point_of(from_y, PLACE_BITS + 1), p.sampling, out);
}
"""

    def constants(self, params: RotateAngleParams) -> bytes:
        return np.array(_turn(params.degrees, params.scale), np.int64).tobytes() + _sampling(params).constants()

    def run_cpu(self, src: Values, dst: Values, params: RotateAngleParams, scratch: Scratch) -> None:
        height, width = dst.shape[:2]
        cosine, sine = _turn(params.degrees, params.scale)
        right = 2 * np.arange(width, dtype=np.int64) - (width - 1)

        def points(first: int, last: int) -> tuple[Points, Points]:
            below = 2 * np.arange(first, last, dtype=np.int64)[:, None] - (height - 1)
            from_x = right * cosine + (below * sine + (width - 1 << _PLACE_BITS))
            from_y = (below * cosine + (height - 1 << _PLACE_BITS)) - right * sine
            return points_of(from_x, _PLACE_BITS + 1), points_of(from_y, _PLACE_BITS + 1)

        sample(self.name, (params.degrees, params.scale), points, src, dst, _sampling(params), scratch)


def _sampling(params: RotateAngleParams) -> Sampling:
    return Sampling(params.interpolation, params.border, params.fill)


@lru_cache(maxsize=64)
def _turn(degrees: float, scale: float) -> tuple[int, int]:
    """Cosine and sine over the scale, in 1/2^32; exact at quarter turns."""
    quarters, rest = divmod(degrees, 90.0)
    cosine, sine = math.cos(math.radians(rest)), math.sin(math.radians(rest))
    for _ in range(int(quarters) % 4):
        cosine, sine = -sine, cosine
    return round(cosine / scale * 2**_PLACE_BITS), round(sine / scale * 2**_PLACE_BITS)
