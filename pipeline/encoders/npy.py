from __future__ import annotations

import io
from typing import Any

import numpy as np
import numpy.typing as npt

from kernels.errors import InputError
from pipeline.encoders.base import DEFAULT_QUALITY, Encoder


class Npy(Encoder):
    """NumPy's own file format: the bytes as they are, of any shape, for ``numpy.load``."""

    name = "npy"
    format = "npy"
    media_type = "application/x-npy"
    takes_16_bit = True

    def encode(self, pixels: npt.NDArray[Any], quality: int = DEFAULT_QUALITY) -> bytes:
        if pixels.dtype.hasobject or pixels.size == 0:
            raise InputError("pixels", f"{pixels.dtype} {pixels.shape} is not pixels", "numbers, at least one")
        out = io.BytesIO()
        np.lib.format.write_array(out, np.ascontiguousarray(pixels), allow_pickle=False)
        return out.getvalue()
