"""What stencils on the CPU share: bands of rows with what a window reads around them, and gradients."""

from __future__ import annotations

from collections.abc import Iterator

import cv2
import numpy as np

from kernels.image import Pixels, Values
from kernels.op import Scratch

BAND_ROWS = 48  # a band of 16-bit gradients of a 4K row set stays in the L2 cache


def bands(height: int, radius: int, rows: int) -> Iterator[tuple[slice, slice, slice]]:
    """For each band of at most ``rows`` rows: its rows, those its window reads, and where the first lie in the second.

    What is read is cut to the picture: only there does a border that OpenCV makes reach into the band.
    """
    for top in range(0, height, rows):
        bottom = min(top + rows, height)
        first, last = max(top - radius, 0), min(bottom + radius, height)
        yield slice(top, bottom), slice(first, last), slice(top - first, bottom - first)


def padded(src: Values, rows: slice, columns: slice, radius: int, scratch: Scratch) -> Values:
    """A part of a picture and ``radius`` pixels around it, border reflect-101, in scratch memory.

    For functions of OpenCV that know another border only. Costs a copy of the part.
    """
    height, width = src.shape[:2]
    top, bottom = max(rows.start - radius, 0), min(rows.stop + radius, height)
    left, right = max(columns.start - radius, 0), min(columns.stop + radius, width)
    shape = (rows.stop - rows.start + 2 * radius, columns.stop - columns.start + 2 * radius, *src.shape[2:])
    out = scratch.array("padded", shape, src.dtype)
    # What is missing, never more than the part reaches inwards unless it is the whole side: reflections lie in it.
    above, before = top - (rows.start - radius), left - (columns.start - radius)
    below, behind = rows.stop + radius - bottom, columns.stop + radius - right
    part = src[top:bottom, left:right]
    cv2.copyMakeBorder(part, above, below, before, behind, cv2.BORDER_REFLECT_101, dst=out)
    return out


def gradient_strength(src: Pixels, dst: Pixels, ksize: int, scratch: Scratch) -> None:
    """|gx| + |gy|, saturated, of ``cv2.Sobel``'s derivatives of that ``ksize`` (3, or ``cv2.FILTER_SCHARR``)."""
    for band, read, inner in bands(src.shape[0], 1, BAND_ROWS):
        rows = src[read]
        gx = scratch.array("gx", rows.shape, np.int16)
        gy = scratch.array("gy", rows.shape, np.int16)
        cv2.Sobel(rows, cv2.CV_16S, 1, 0, dst=gx, ksize=ksize, borderType=cv2.BORDER_REFLECT_101)
        cv2.Sobel(rows, cv2.CV_16S, 0, 1, dst=gy, ksize=ksize, borderType=cv2.BORDER_REFLECT_101)
        ax = scratch.array("ax", dst[band].shape, np.uint8)
        ay = scratch.array("ay", dst[band].shape, np.uint8)
        cv2.convertScaleAbs(gx[inner], dst=ax)
        cv2.convertScaleAbs(gy[inner], dst=ay)
        cv2.add(ax, ay, dst=dst[band])
