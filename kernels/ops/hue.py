from __future__ import annotations

import math

import numpy as np
from pydantic import Field

from kernels.matrix import LUMA, IntMatrix, MatrixOp, in_units
from kernels.op import OpParams

_BLUE, _GREEN, _RED = LUMA
# Y, Cb, Cr of blue, green, red (ITU-R BT.601-7, section 2.5.2), each as wide as the other.
_TO_YCC = np.array(
    [
        [_BLUE, _GREEN, _RED],
        [(1 - _BLUE) / (2 * (1 - _BLUE)), -_GREEN / (2 * (1 - _BLUE)), -_RED / (2 * (1 - _BLUE))],
        [-_BLUE / (2 * (1 - _RED)), -_GREEN / (2 * (1 - _RED)), (1 - _RED) / (2 * (1 - _RED))],
    ]
)
_FROM_YCC = np.linalg.inv(_TO_YCC)


class HueParams(OpParams):
    degrees: float = Field(
        default=0.0, ge=-180.0, le=180.0, description="Positive turns red to yellow, green to cyan, blue to magenta.",
        json_schema_extra={"x-unit": "°", "x-step": 1},
    )  # fmt: skip


class Hue(MatrixOp[HueParams]):
    """Turns all colours about grey by an angle in the plane of BT.601's Cb and Cr; luma stays.

    out = M⁻¹·R·M·in: M leads from blue, green and red to Y, Cb and Cr (ITU-R BT.601-7, section 2.5.2), R from (Cb, Cr)
    to (Cb·cos − Cr·sin, Cb·sin + Cr·cos).
    As a matrix in 1/1024, each entry rounded half up, the diagonal such that each row adds up to 1: grey is exact, and
    GRAY8 passes unchanged. What a television's hue control does (and FFmpeg's ``hue`` filter), not the H of HSV.
    """

    name = "hue"
    Params = HueParams

    def rows(self, params: HueParams) -> IntMatrix:
        angle = math.radians(params.degrees)
        cosine, sine = math.cos(angle), math.sin(angle)
        turn = np.array([[1, 0, 0], [0, cosine, -sine], [0, sine, cosine]])
        return in_units((_FROM_YCC @ turn @ _TO_YCC).tolist())
