from __future__ import annotations

from typing import Annotated

from pydantic import Field

from kernels.matrix import IntMatrix, MatrixOp, in_units
from kernels.op import OpParams
from kernels.params import FROM_LIST

Factor = Annotated[float, Field(ge=-8.0, le=8.0)]
Offset = Annotated[int, Field(ge=-255, le=255)]


class ColorMatrixParams(OpParams):
    matrix: Annotated[tuple[Factor, ...], Field(min_length=9, max_length=9), FROM_LIST] = Field(
        default=(1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0),
        description="Three rows: blue, green and red of the result, each from blue, green and red.",
        json_schema_extra={"x-unit": ""},
    )
    offsets: Annotated[tuple[Offset, ...], Field(min_length=3, max_length=3), FROM_LIST] = Field(
        default=(0, 0, 0),
        description="Added to blue, green and red. Of 16 bits a level is 257.",
        json_schema_extra={"x-unit": "levels"},
    )


class ColorMatrix(MatrixOp[ColorMatrixParams]):
    """Mixes the channels: (blue, green, red) → matrix · (blue, green, red) + offsets; GRAY8 passes unchanged.

    The matrix in 1/1024, each entry rounded half up, the diagonal such that a row's sum is the given one's nearest:
    where rows add up to 1, grey is exact. (Σ m·v + 1024·offset + 512) >> 10, saturated. ``cv2.transform``'s order.
    """

    name = "color_matrix"
    Params = ColorMatrixParams

    def rows(self, params: ColorMatrixParams) -> IntMatrix:
        matrix = params.matrix
        return in_units([matrix[0:3], matrix[3:6], matrix[6:9]], params.offsets)
