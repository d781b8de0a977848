from __future__ import annotations

import numpy as np
import numpy.typing as npt
from pydantic import Field

from kernels.image import Pixels, Values
from kernels.op import OpParams, TableOp


class GammaParams(OpParams):
    gamma: float = Field(
        default=1.0, ge=0.1, le=10.0, description="Above 1 brightens the dark parts, below 1 darkens them.",
        json_schema_extra={"x-unit": "", "x-step": 0.05},
    )  # fmt: skip


class Gamma(TableOp[GammaParams]):
    """Power-law tone curve: out = in^(1/gamma) on values scaled to 0–1.

    out = ⌊255·(in/255)^(1/gamma) + 0.5⌋; 0, 255 and gamma 1 are exact. Source: the usual display-gamma
    correction, e.g. Poynton, "Digital Video and HD", ch. 27.
    """

    name = "gamma"
    Params = GammaParams
    takes_16_bit = True

    def table(self, params: GammaParams) -> Pixels:
        return _curve(params, 255).astype(np.uint8)

    def table_16(self, params: GammaParams) -> Values:
        return _curve(params, 65535).astype(np.uint16)


def _curve(params: GammaParams, most: int) -> npt.NDArray[np.float64]:
    """The result for each value from 0 to ``most``."""
    curve: npt.NDArray[np.float64] = np.floor(most * (np.arange(most + 1) / most) ** (1.0 / params.gamma) + 0.5)
    return curve
