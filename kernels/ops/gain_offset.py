from __future__ import annotations

import numpy as np
from pydantic import Field

from kernels.image import Pixels
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
        default=0.0, ge=-255.0, le=255.0, description="Added after the gain (brightness).",
        json_schema_extra={"x-unit": "levels", "x-step": 1.0},
    )  # fmt: skip


class GainOffset(TableOp[GainOffsetParams]):
    """Linear tone curve: out = gain·in + offset, rounded half up and saturated.

    Never an absolute value: a negative result is 0 (OpenCV's convertScaleAbs would mirror it).
    Source: Szeliski, "Computer Vision: Algorithms and Applications", 3.1.1.
    """

    name = "gain_offset"
    Params = GainOffsetParams

    def table(self, params: GainOffsetParams) -> Pixels:
        values = np.floor(params.gain * np.arange(256, dtype=np.float64) + params.offset + 0.5)
        return np.clip(values, 0, 255).astype(np.uint8)
