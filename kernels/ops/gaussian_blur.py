from __future__ import annotations

from typing import Any

import cv2
import numpy as np
import numpy.typing as npt
from pydantic import Field, field_validator

from kernels.image import Pixels
from kernels.op import MAX_RADIUS_PX, OpParams, Scratch, SeparableOp

MAX_KSIZE = 2 * MAX_RADIUS_PX + 1

# Small windows without a sigma are binomial or tuned in OpenCV, not sampled from the formula; in 1/256.
_FIXED = {
    1: (256,),
    3: (64, 128, 64),
    5: (16, 64, 96, 64, 16),
    7: (8, 28, 56, 72, 56, 28, 8),
    9: (4, 13, 30, 51, 60, 51, 30, 13, 4),
}

# From 4.11 on a build of OpenCV may choose a quicker and inexact blur unless it is told not to.
_BIT_EXACT: dict[str, Any] = {"hint": cv2.ALGO_HINT_ACCURATE} if hasattr(cv2, "ALGO_HINT_ACCURATE") else {}


class GaussianBlurParams(OpParams):
    ksize: int = Field(
        default=5, ge=1, le=MAX_KSIZE, description="Width of the window, odd.",
        json_schema_extra={"x-unit": "px", "x-step": 2},
    )  # fmt: skip
    sigma: float = Field(
        default=0.0, ge=0.0, le=50.0, description="Standard deviation; 0 derives it from ksize as OpenCV does.",
        json_schema_extra={"x-unit": "px", "x-step": 0.1},
    )  # fmt: skip

    @field_validator("ksize")
    @classmethod
    def _odd(cls, value: int) -> int:
        if value % 2 == 0:
            raise ValueError("must be odd")
        return value


class GaussianBlur(SeparableOp[GaussianBlurParams]):
    """Gaussian smoothing with integer taps of sum 256 along each axis.

    sigma 0 means 0.3·((ksize − 1)/2 − 1) + 0.8. The taps are those of OpenCV's bit-exact 8-bit GaussianBlur: the
    normalised Gaussian in 1/256, the rounding error carried from the ends inwards so that the sum is exactly 256.
    """

    name = "gaussian_blur"
    Params = GaussianBlurParams

    def taps(self, params: GaussianBlurParams) -> npt.NDArray[np.uint16]:
        ksize, half = params.ksize, params.ksize // 2
        if params.sigma == 0 and ksize in _FIXED:
            weights = np.array(_FIXED[ksize]) / 256.0
        else:
            sigma = _sigma(params) or 0.3 * (half - 1) + 0.8
            x = np.arange(ksize) - half
            weights = np.exp(-(x**2) / (2.0 * sigma * sigma))
            weights /= weights.sum()
        taps = np.zeros(ksize, np.uint16)
        carried = 0.0
        for i in range(half):
            wanted = weights[i] * 256.0 + carried
            rounded = int(np.rint(wanted))
            carried = wanted - rounded
            taps[i] = taps[ksize - 1 - i] = rounded
        taps[half] = 256 - 2 * int(taps[:half].sum())
        return taps

    def run_cpu(self, src: Pixels, dst: Pixels, params: GaussianBlurParams, scratch: Scratch) -> None:
        size = (params.ksize, params.ksize)
        cv2.GaussianBlur(src, size, _sigma(params), dst=dst, borderType=cv2.BORDER_REFLECT_101, **_BIT_EXACT)


def _sigma(params: GaussianBlurParams) -> float:
    """The standard deviation, 0 where it is to be derived; never so small that its square is lost."""
    # From 0.05 px down the neighbours weigh nothing (e^-200), whatever the value.
    return max(params.sigma, 0.05) if params.sigma > 0 else 0.0
