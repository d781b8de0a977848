from __future__ import annotations

from pydantic import Field

from kernels.morphology import SquareOp
from kernels.op import MAX_RADIUS_PX, OpParams
from kernels.params import Odd


class DilateParams(OpParams):
    ksize: Odd = Field(
        default=3, ge=1, le=2 * MAX_RADIUS_PX + 1, description="Width of the square window, odd.",
        json_schema_extra={"x-unit": "px", "x-step": 2},
    )  # fmt: skip


class Dilate(SquareOp[DilateParams]):
    """The greatest value in a square window, per channel: bright areas grow. Exact.

    out(x, y) = max in(x + i, y + j) over |i|, |j| ≤ (ksize − 1) / 2. Border reflect-101, which changes nothing: as
    cv2.dilate with a rectangle. Source: J. Serra, "Image Analysis and Mathematical Morphology" (1982).
    """

    name = "dilate"
    Params = DilateParams
    steps = ("max",)

    def ksize(self, params: DilateParams) -> int:
        return params.ksize
