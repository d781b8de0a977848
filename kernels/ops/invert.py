from __future__ import annotations

import numpy as np

from kernels.image import Pixels, Values
from kernels.op import OpParams, TableOp


class InvertParams(OpParams):
    pass


class Invert(TableOp[InvertParams]):
    """Negative: out = 255 − in.

    As cv2.bitwise_not on 8 bits.
    """

    name = "invert"
    Params = InvertParams
    takes_16_bit = True

    def table(self, params: InvertParams) -> Pixels:
        return np.arange(255, -1, -1, dtype=np.uint8)

    def table_16(self, params: InvertParams) -> Values:
        return np.arange(65535, -1, -1, dtype=np.uint16)
