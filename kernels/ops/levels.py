from __future__ import annotations

import numpy as np
from pydantic import Field

from kernels.image import Pixels
from kernels.op import OpParams, TableOp


class LevelsParams(OpParams):
    black: int = Field(
        default=0, ge=0, le=255, description="What becomes black; everything below it does too.",
        json_schema_extra={"x-unit": "levels", "x-step": 1},
    )  # fmt: skip
    white: int = Field(
        default=255, ge=0, le=255, description="What becomes white; everything above it does too.",
        json_schema_extra={"x-unit": "levels", "x-step": 1},
    )  # fmt: skip


class Levels(TableOp[LevelsParams]):
    """Stretches the values from black to white over the whole range: out = 255·(in − black) / (white − black).

    Rounded half up, saturated; exact. With white at or below black: 255 for what is above black, else 0.
    Source: contrast stretching, Gonzalez and Woods, "Digital Image Processing", 3.2.
    """

    name = "levels"
    Params = LevelsParams

    def table(self, params: LevelsParams) -> Pixels:
        width = max(params.white - params.black, 1)
        above = np.arange(256) - params.black
        return np.clip((2 * 255 * above + width) // (2 * width), 0, 255).astype(np.uint8)
