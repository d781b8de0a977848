"""Gaussian and plain means of square windows, in whole numbers: what several ops are made of, on both devices."""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np
import numpy.typing as npt

from kernels.image import Pixels

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

GAUSSIAN_SUM = 256


def gaussian_taps(ksize: int, sigma: float) -> npt.NDArray[np.uint16]:
    """(ksize,) uint16 of sum 256: the taps of OpenCV's bit-exact 8-bit GaussianBlur.

    The normalised Gaussian in 1/256, the rounding error carried from the ends inwards; sigma 0 means
    0.3·((ksize − 1)/2 − 1) + 0.8.
    """
    half = ksize // 2
    if sigma == 0 and ksize in _FIXED:
        weights = np.array(_FIXED[ksize]) / 256.0
    else:
        width = _kept(sigma) or 0.3 * (half - 1) + 0.8
        x = np.arange(ksize) - half
        weights = np.exp(-(x**2) / (2.0 * width * width))
        weights /= weights.sum()
    taps = np.zeros(ksize, np.uint16)
    carried = 0.0
    for i in range(half):
        wanted = weights[i] * 256.0 + carried
        rounded = int(np.rint(wanted))
        carried = wanted - rounded
        taps[i] = taps[ksize - 1 - i] = rounded
    taps[half] = GAUSSIAN_SUM - 2 * int(taps[:half].sum())
    return taps


def gaussian_mean(src: Pixels, dst: Pixels, ksize: int, sigma: float) -> None:
    """``(Σ taps·taps·v + 2^15) >> 16`` on the CPU, border reflect-101; allocates a few rows."""
    sigma = _kept(sigma)
    cv2.GaussianBlur(src, (ksize, ksize), sigma, dst=dst, sigmaY=sigma, borderType=cv2.BORDER_REFLECT_101, **_BIT_EXACT)


def _kept(sigma: float) -> float:
    """The standard deviation, 0 where it is to be derived; never so small that its square is lost."""
    # From 0.05 px down the neighbours weigh nothing (e^-200), whatever the value.
    return max(sigma, 0.05) if sigma > 0 else 0.0


def box_taps(ksize: int) -> npt.NDArray[np.uint16]:
    """(ksize,) uint16 of ones."""
    return np.ones(ksize, np.uint16)


def box_mean(src: Pixels, dst: Pixels, ksize: int) -> None:
    """The mean of ksize·ksize values on the CPU, rounded half up, border reflect-101; allocates a few rows.

    An odd number of values has no mean at a half, and a sum below 2^18 times 1/n is, in the 32-bit floats of OpenCV,
    nearer to the real mean than any half is.
    """
    cv2.boxFilter(src, -1, (ksize, ksize), dst=dst, borderType=cv2.BORDER_REFLECT_101)


def mean_constants(whole: int) -> bytes:
    """``uint32 half, reciprocal``: (uint64)(sum + half) * reciprocal >> 31 is sum / whole, rounded half up.

    ``whole``: the sum of the weights, odd and at most 31², or a power of two up to 2^16. Exact for sums of bytes: the
    reciprocal's error, below 1/2^31 for each, is 0 for powers of two, else less than 1/whole for all sums below 2^21.
    """
    return np.array((whole // 2, -(-(1 << 31) // whole)), np.uint32).tobytes()
