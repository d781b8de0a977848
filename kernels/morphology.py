"""Morphology with a square window on the CPU, by OpenCV; the GPU's is in the shared headers."""

from __future__ import annotations

from abc import abstractmethod

import cv2
import numpy as np

from kernels.image import Values
from kernels.op import MorphologyOp, P, Scratch
from kernels.stencil_cpu import bands

_BAND_VALUES = 1 << 19  # bytes: a band stays in the L2 cache, and what it shares with its neighbours is little


class SquareOp(MorphologyOp[P]):
    """A morphology op of one or two steps whose parameters give the width of its square window."""

    takes_16_bit = True

    @abstractmethod
    def ksize(self, params: P) -> int:
        """Width of the window in pixels, odd."""

    def step_radius(self, params: P) -> int:
        return self.ksize(params) // 2

    def run_cpu(self, src: Values, dst: Values, params: P, scratch: Scratch) -> None:
        # OpenCV leaves out what lies beyond the border: as reflect-101, whose values the window holds anyway.
        window = np.ones((self.ksize(params), self.ksize(params)), np.uint8)
        first, *others = (cv2.erode if step == "min" else cv2.dilate for step in self.steps)
        if not others:
            first(src, window, dst=dst)
            return
        # In bands with what the second window reads: in place OpenCV would copy the whole picture. The second step
        # makes more rows than are right: those below the band are made again by the next, those above are put back.
        (second,) = others
        height, radius = len(src), self.step_radius(params)
        rows = max(1, min(height, _BAND_VALUES // src[0].nbytes))
        for band, read, _ in bands(height, 2 * radius, rows):
            made = scratch.array("morphology.first", src[read].shape, src.dtype)
            first(src[read], window, dst=made)
            top, bottom = max(band.start - radius, 0), min(band.stop + radius, height)
            above = scratch.array("morphology.above", dst[top : band.start].shape, src.dtype)
            np.copyto(above, dst[top : band.start])
            second(made[top - read.start : bottom - read.start], window, dst=dst[top:bottom])
            np.copyto(dst[top : band.start], above)
