from __future__ import annotations

import numpy as np
import numpy.typing as npt
from pydantic import Field

from kernels import wide_cpu
from kernels.image import Values
from kernels.op import MAX_RADIUS_PX, OpParams, Scratch, SeparableOp
from kernels.params import Odd
from kernels.smoothing import gaussian_mean, gaussian_taps

MAX_KSIZE = 2 * MAX_RADIUS_PX + 1


class GaussianBlurParams(OpParams):
    ksize: Odd = Field(
        default=5, ge=1, le=MAX_KSIZE, description="Width of the window, odd.",
        json_schema_extra={"x-unit": "px", "x-step": 2},
    )  # fmt: skip
    sigma: float = Field(
        default=0.0, ge=0.0, le=50.0, description="Standard deviation; 0 derives it from ksize as OpenCV does.",
        json_schema_extra={"x-unit": "px", "x-step": 0.1},
    )  # fmt: skip


class GaussianBlur(SeparableOp[GaussianBlurParams]):
    """Gaussian smoothing with integer taps of sum 256 along each axis.

    out = (Σ_j Σ_i taps[j]·taps[i]·v + 2^15) >> 16, the taps in proportion to exp(−i² / (2·sigma²)), i from the middle.
    sigma 0 means 0.3·((ksize − 1)/2 − 1) + 0.8. The taps are those of OpenCV's bit-exact 8-bit GaussianBlur: the
    normalised Gaussian in 1/256, the rounding error carried from the ends inwards so that the sum is exactly 256.
    """

    name = "gaussian_blur"
    Params = GaussianBlurParams
    takes_16_bit = True

    def taps(self, params: GaussianBlurParams) -> npt.NDArray[np.uint16]:
        return gaussian_taps(params.ksize, params.sigma)

    def run_cpu(self, src: Values, dst: Values, params: GaussianBlurParams, scratch: Scratch) -> None:
        if src.dtype == np.uint16:
            wide_cpu.gaussian_mean(src, dst, self.taps(params), scratch)
            return
        gaussian_mean(src, dst, params.ksize, params.sigma)
