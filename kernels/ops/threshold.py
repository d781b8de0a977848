from __future__ import annotations

import numpy as np
from pydantic import Field

from kernels.image import Pixels
from kernels.op import OpParams, TableOp


class ThresholdParams(OpParams):
    threshold: int = Field(
        default=127, ge=0, le=255, description="Values above it count as bright.",
        json_schema_extra={"x-unit": "levels", "x-step": 1},
    )  # fmt: skip
    max_value: int = Field(
        default=255, ge=0, le=255, description="What bright values become; the others become 0.",
        json_schema_extra={"x-unit": "levels", "x-step": 1},
    )  # fmt: skip
    inverted: bool = Field(default=False, description="The other way round: dark values become max_value.")


class Threshold(TableOp[ThresholdParams]):
    """Two levels, per channel: out = max_value where in > threshold, else 0.

    The same as cv2.threshold with THRESH_BINARY or, inverted, THRESH_BINARY_INV.
    """

    name = "threshold"
    Params = ThresholdParams

    def table(self, params: ThresholdParams) -> Pixels:
        bright = np.arange(256) > params.threshold
        return np.where(bright != params.inverted, params.max_value, 0).astype(np.uint8)
