from __future__ import annotations

from pydantic import Field

from kernels.morphology import SquareOp
from kernels.op import MAX_RADIUS_PX, OpParams
from kernels.params import Odd


class OpenParams(OpParams):
    ksize: Odd = Field(
        default=3, ge=1, le=2 * (MAX_RADIUS_PX // 2) + 1, description="Width of the square window, odd.",
        json_schema_extra={"x-unit": "px", "x-step": 2},
    )  # fmt: skip


class Open(SquareOp[OpenParams]):
    """Removes bright spots narrower than a square window: ``erode``, then ``dilate``; per channel, exact.

    out = dilate(erode(in)). As cv2.morphologyEx(MORPH_OPEN) with a rectangle.
    Source: J. Serra, "Image Analysis and Mathematical Morphology" (1982).
    """

    name = "open"
    Params = OpenParams
    steps = ("min", "max")

    def ksize(self, params: OpenParams) -> int:
        return params.ksize
