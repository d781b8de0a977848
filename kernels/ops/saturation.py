from __future__ import annotations

from pydantic import Field

from kernels.matrix import LUMA, IntMatrix, MatrixOp, in_units
from kernels.op import OpParams


class SaturationParams(OpParams):
    factor: float = Field(
        default=1.0, ge=0.0, le=4.0, description="0 leaves grey, 1 changes nothing, above 1 colours are stronger.",
        json_schema_extra={"x-unit": "", "x-step": 0.05},
    )  # fmt: skip


class Saturation(MatrixOp[SaturationParams]):
    """Moves colours away from their grey, or towards it: out = luma + factor·(in − luma).

    As a matrix in 1/1024, each entry rounded half up, the diagonal such that each row adds up to 1: grey is exact, and
    GRAY8 passes unchanged. Luma is BT.601's. Source: Haeberli, "Matrix Operations for Image Processing" (1993).
    """

    name = "saturation"
    Params = SaturationParams

    def rows(self, params: SaturationParams) -> IntMatrix:
        rest = 1.0 - params.factor
        return in_units([[rest * LUMA[j] + (params.factor if i == j else 0.0) for j in range(3)] for i in range(3)])
