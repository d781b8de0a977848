from __future__ import annotations

import numpy as np
from pydantic import Field

from kernels.matrix import IntMatrix, MatrixOp, in_units
from kernels.op import OpParams


class WhiteBalanceParams(OpParams):
    red: float = Field(
        default=1.0, ge=0.0, le=8.0, description="Red is multiplied by it.",
        json_schema_extra={"x-unit": "", "x-step": 0.01},
    )  # fmt: skip
    green: float = Field(
        default=1.0, ge=0.0, le=8.0, description="Green is multiplied by it.",
        json_schema_extra={"x-unit": "", "x-step": 0.01},
    )  # fmt: skip
    blue: float = Field(
        default=1.0, ge=0.0, le=8.0, description="Blue is multiplied by it.",
        json_schema_extra={"x-unit": "", "x-step": 0.01},
    )  # fmt: skip


class WhiteBalance(MatrixOp[WhiteBalanceParams]):
    """A gain for each colour: out = in·gain, the gain in 1/1024; grey pictures (GRAY8) pass unchanged.

    (v·⌊1024·gain + ½⌋ + 512) >> 10, saturated. The von Kries scaling of a camera's channels, as cameras' own
    red and blue balance. Source: J. von Kries, "Chromatic adaptation" (1902).
    """

    name = "white_balance"
    Params = WhiteBalanceParams

    def rows(self, params: WhiteBalanceParams) -> IntMatrix:
        return in_units(np.diag([params.blue, params.green, params.red]).tolist())
