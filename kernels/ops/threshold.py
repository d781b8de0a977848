from __future__ import annotations

import numpy as np
import numpy.typing as npt
from pydantic import Field

from kernels.image import Pixels, Values
from kernels.op import OpParams, TableOp


class ThresholdParams(OpParams):
    threshold: int = Field(
        default=127, ge=0, le=255, description="Values above it count as bright. Of 16 bits a level is 257.",
        json_schema_extra={"x-unit": "levels", "x-step": 1},
    )  # fmt: skip
    max_value: int = Field(
        default=255, ge=0, le=255,
        description="What bright values become; the others become 0. Of 16 bits a level is 257.",
        json_schema_extra={"x-unit": "levels", "x-step": 1},
    )  # fmt: skip
    inverted: bool = Field(default=False, description="The other way round: dark values become max_value.")


class Threshold(TableOp[ThresholdParams]):
    """Two levels, per channel: out = max_value where in > threshold, else 0.

    The same as cv2.threshold with THRESH_BINARY or, inverted, THRESH_BINARY_INV.
    """

    name = "threshold"
    Params = ThresholdParams
    takes_16_bit = True

    def table(self, params: ThresholdParams) -> Pixels:
        return _results(params, 255).astype(np.uint8)

    def table_16(self, params: ThresholdParams) -> Values:
        return _results(params, 65535).astype(np.uint16)


def _results(params: ThresholdParams, most: int) -> npt.NDArray[np.int64]:
    """The result for each value from 0 to ``most``."""
    level = most // 255
    bright = np.arange(most + 1) > params.threshold * level
    return np.where(bright != params.inverted, params.max_value * level, 0)
