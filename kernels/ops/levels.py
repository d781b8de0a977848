from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from pydantic import Field

from kernels.image import Pixels, Shape, Values
from kernels.op import OpParams, TableOp


class LevelsParams(OpParams):
    black: float = Field(
        default=0.0, ge=0.0, le=255.0, description="What becomes black; everything below it does too.",
        json_schema_extra={"x-unit": "levels", "x-step": 1},
    )  # fmt: skip
    white: float = Field(
        default=255.0, ge=0.0, le=255.0, description="What becomes white; everything above it does too.",
        json_schema_extra={"x-unit": "levels", "x-step": 1},
    )  # fmt: skip
    bits: int = Field(
        default=16, ge=8, le=16,
        description="Of a picture of 16 bits: how many of them the camera fills; 255 levels are its greatest value.",
        json_schema_extra={"x-unit": "bits", "x-step": 1},
    )  # fmt: skip


class Levels(TableOp[LevelsParams]):
    """Stretches the values from black to white over the whole range: out = 255·(in − black) / (white − black).

    The way from 10 to 16 bits to 8: the result always has 8. Of a picture of 16 bits black and white are taken in
    (2^bits − 1) / 255; both are rounded half up to a value of the picture. The result is rounded half up and saturated;
    exact. With white at or below black: 255 for what is above black, else 0.
    Source: contrast stretching, Gonzalez and Woods, "Digital Image Processing", 3.2.
    """

    name = "levels"
    Params = LevelsParams
    takes_16_bit = True

    def output(self, source: Shape, params: LevelsParams) -> Shape:
        return replace(source, depth=8)

    def table(self, params: LevelsParams) -> Pixels:
        return _table(params, 256, 255)

    def table_16(self, params: LevelsParams) -> Values:
        return _table(params, 65536, (1 << params.bits) - 1)


def _table(params: LevelsParams, values: int, most: int) -> Pixels:
    """The result for each of so many values, ``most`` being what 255 levels are."""
    black, white = (math.floor(level * most / 255 + 0.5) for level in (params.black, params.white))
    width = max(white - black, 1)
    above = np.arange(values) - black
    return np.clip((2 * 255 * above + width) // (2 * width), 0, 255).astype(np.uint8)
