"""Resampling on the CPU as exact weighted means along both axes; for ops that change the size.

A result value is ``⌊(Σ_j Σ_i weight_y[j]·weight_x[i]·v) / (total_x·total_y) + 1/2⌋``: whole numbers, summed first
down the columns, then along the rows, in floats that hold them exactly.
"""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np
import numpy.typing as npt

from kernels.image import Pixels
from kernels.op import Scratch

_NO_FRACTIONS = np.empty((0, 0), np.uint16)
_BAND_VALUES = 1 << 15  # times about 24 bytes of intermediates: a band stays in the L2 cache


@dataclass(frozen=True, slots=True)
class Taps:
    """Of one axis, for each place of the result: which places of the source, and how much each weighs.

    ``index`` and ``weight``: (taps, places) of whole numbers; the weights of a place add up to ``total``, at most 2^14.
    """

    index: npt.NDArray[np.intp]
    weight: npt.NDArray[np.float32]
    total: int


def weighted_means(src: Pixels, dst: Pixels, across: Taps, down: Taps, scratch: Scratch) -> None:
    """Fill ``dst`` (H, W) or (H, W, 3) with weighted means of ``src``. Blocks; allocates nothing of a frame's size."""
    height, width = dst.shape[:2]
    channels = 1 if dst.ndim == 2 else dst.shape[2]
    row_in, row_out = src.shape[1] * channels, width * channels
    rows = max(1, min(height, _BAND_VALUES // max(row_in, row_out)))
    # Sums down a column are below 2^8·2^14, whole sums below 2^8·2^28: exact in 32 and 64-bit floats.
    columns = scratch.array("resample.columns", (rows, row_in), np.float32)
    weighted = scratch.array("resample.weighted", (row_in,), np.float32)
    picked = scratch.array("resample.picked", (rows, row_out), np.float32)
    weighed = scratch.array("resample.weighed", (rows, row_out), np.float64)
    sums = scratch.array("resample.sums", (rows, row_out), np.float64)
    index = (across.index[:, :, None] * channels + np.arange(channels)).reshape(-1, row_out)
    weight = across.weight.repeat(channels, axis=1)
    whole = across.total * down.total
    signed = bool((across.weight < 0).any() or (down.weight < 0).any())

    for top in range(0, height, rows):
        n = min(rows, height - top)
        for k in range(n):
            for tap, (place, share) in enumerate(zip(down.index[:, top + k], down.weight[:, top + k], strict=True)):
                target = columns[k] if tap == 0 else weighted
                np.multiply(src[place].reshape(-1), share, out=target, dtype=np.float32)
                if tap and share:
                    np.add(columns[k], weighted, out=columns[k])
        for tap in range(len(index)):
            np.take(columns[:n], index[tap], axis=1, out=picked[:n], mode="clip")
            np.multiply(picked[:n], weight[tap], out=sums[:n] if tap == 0 else weighed[:n], dtype=np.float64)
            if tap:
                np.add(sums[:n], weighed[:n], out=sums[:n])
        # The sums' nearest distance to a half is 1 / (2 whole), far more than a 64-bit division's error.
        band = sums[:n]
        band *= 2
        band += whole
        band /= 2 * whole
        np.floor(band, out=band)
        if signed:
            np.clip(band, 0, 255, out=band)
        np.copyto(dst[top : top + n], band.reshape(n, *dst.shape[1:]), casting="unsafe")


def pick(src: Pixels, dst: Pixels, across: npt.NDArray[np.intp], down: npt.NDArray[np.intp], scratch: Scratch) -> None:
    """Fill ``dst`` with single pixels of ``src``: column x is column ``across[x]``, row y is row ``down[y]``."""
    height, width = dst.shape[:2]
    rows = max(1, min(height, _BAND_VALUES // width))
    places = scratch.array("resample.places", (rows, width, 2), np.int16)
    places[:, :, 0] = across
    for top in range(0, height, rows):
        n = min(rows, height - top)
        places[:n, :, 1] = down[top : top + n, None]
        cv2.remap(src, places[:n], _NO_FRACTIONS, cv2.INTER_NEAREST, dst=dst[top : top + n])
