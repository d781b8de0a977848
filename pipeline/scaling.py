"""Smaller pictures for small screens, in a buffer that is kept: a stream allocates nothing of a frame's size."""

from __future__ import annotations

import cv2
import numpy as np

from kernels.image import Pixels, Values

MIN_WIDTH_PX = 16


class Downscaler:
    """Scales pictures to one width, keeping the aspect. Not thread-safe: one per stream of pictures."""

    def __init__(self, width: int | None) -> None:
        self.width = width
        self._buffer: Pixels = np.empty(0, np.uint8)

    def __call__(self, pixels: Values) -> Values:
        """The picture at ``width``, by the mean of the area that falls on a pixel; as it is where it is not wider.

        ``pixels``: (H, W) or (H, W, C), uint8 or uint16. The result is valid until the next call.
        """
        if self.width is None or self.width >= pixels.shape[1]:
            return pixels
        size = scaled_size(pixels.shape[1], pixels.shape[0], self.width)
        shape = (size[1], size[0], *pixels.shape[2:])
        nbytes = int(np.prod(shape)) * pixels.itemsize
        if self._buffer.nbytes < nbytes:
            self._buffer = np.empty(nbytes, np.uint8)
        out = self._buffer[:nbytes].view(pixels.dtype).reshape(shape)
        cv2.resize(pixels, size, dst=out, interpolation=cv2.INTER_AREA)
        return out


def scaled_size(width: int, height: int, wanted_width: int | None) -> tuple[int, int]:
    """(width, height) in px at the wanted width: never larger, the height rounded to keep the aspect, at least 1."""
    if wanted_width is None or wanted_width >= width:
        return width, height
    return wanted_width, max(1, (2 * height * wanted_width + width) // (2 * width))
