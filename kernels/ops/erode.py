from __future__ import annotations

from pydantic import Field

from kernels.morphology import SquareOp
from kernels.op import MAX_RADIUS_PX, OpParams
from kernels.params import Odd


class ErodeParams(OpParams):
    ksize: Odd = Field(
        default=3, ge=1, le=2 * MAX_RADIUS_PX + 1, description="Width of the square window, odd.",
        json_schema_extra={"x-unit": "px", "x-step": 2},
    )  # fmt: skip


class Erode(SquareOp[ErodeParams]):
    """The least value in a square window, per channel: bright areas shrink. Exact.

    out(x, y) = min in(x + i, y + j) over |i|, |j| ≤ (ksize − 1) / 2. Border reflect-101, which changes nothing: as
    cv2.erode with a rectangle. Source: J. Serra, "Image Analysis and Mathematical Morphology" (1982).
    """

    name = "erode"
    Params = ErodeParams
    steps = ("min",)

    def ksize(self, params: ErodeParams) -> int:
        return params.ksize
