from __future__ import annotations

import numpy as np
from pydantic import Field

from kernels.image import Pixels
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

    def table(self, params: GammaParams) -> Pixels:
        values = np.arange(256) / 255.0
        return np.floor(255.0 * values ** (1.0 / params.gamma) + 0.5).astype(np.uint8)
