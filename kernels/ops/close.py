from __future__ import annotations

from pydantic import Field

from kernels.morphology import SquareOp
from kernels.op import MAX_RADIUS_PX, OpParams
from kernels.params import Odd


class CloseParams(OpParams):
    ksize: Odd = Field(
        default=3, ge=1, le=2 * (MAX_RADIUS_PX // 2) + 1, description="Width of the square window, odd.",
        json_schema_extra={"x-unit": "px", "x-step": 2},
    )  # fmt: skip


class Close(SquareOp[CloseParams]):
    """Fills dark spots narrower than a square window: ``dilate``, then ``erode``; per channel, exact.

    out = erode(dilate(in)). As cv2.morphologyEx(MORPH_CLOSE) with a rectangle.
    Source: J. Serra, "Image Analysis and Mathematical Morphology" (1982).
    """

    name = "close"
    Params = CloseParams
    steps = ("max", "min")

    def ksize(self, params: CloseParams) -> int:
        return params.ksize
