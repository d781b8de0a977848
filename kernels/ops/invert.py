from __future__ import annotations

import numpy as np

from kernels.image import Pixels
from kernels.op import OpParams, TableOp


class InvertParams(OpParams):
    pass


class Invert(TableOp[InvertParams]):
    """Negative: out = 255 − in.

    As cv2.bitwise_not on 8 bits.
    """

    name = "invert"
    Params = InvertParams

    def table(self, params: InvertParams) -> Pixels:
        return np.arange(255, -1, -1, dtype=np.uint8)
