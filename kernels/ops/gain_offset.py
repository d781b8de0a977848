from __future__ import annotations

import numpy as np
import numpy.typing as npt
from pydantic import Field

from kernels.image import Pixels, Values
from kernels.op import OpParams, TableOp


class GainOffsetParams(OpParams):
    gain: float = Field(
        default=1.0,
        ge=0.0,
        le=16.0,
        description="Factor (contrast).",
        json_schema_extra={"x-unit": "", "x-step": 0.05},
    )
    offset: float = Field(
        default=0.0, ge=-255.0, le=255.0, description="Added after the gain (brightness). Of 16 bits a level is 257.",
        json_schema_extra={"x-unit": "levels", "x-step": 1.0},
    )  # fmt: skip


class GainOffset(TableOp[GainOffsetParams]):
    """Linear tone curve: out = gain·in + offset, rounded half up and saturated.

    Never an absolute value: a negative result is 0 (OpenCV's convertScaleAbs would mirror it).
    Source: Szeliski, "Computer Vision: Algorithms and Applications", 3.1.1.
    """

    name = "gain_offset"
    Params = GainOffsetParams
    takes_16_bit = True

    def table(self, params: GainOffsetParams) -> Pixels:
        return _curve(params, 255).astype(np.uint8)

    def line(self, params: GainOffsetParams) -> tuple[float, float]:
        return params.gain, params.offset

    def table_16(self, params: GainOffsetParams) -> Values:
        return _curve(params, 65535).astype(np.uint16)


def _curve(params: GainOffsetParams, most: int) -> npt.NDArray[np.float64]:
    """The result for each value from 0 to ``most``."""
    offset = params.offset * (most // 255)
    return np.clip(np.floor(params.gain * np.arange(most + 1, dtype=np.float64) + offset + 0.5), 0, most)
