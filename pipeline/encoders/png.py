from __future__ import annotations

from typing import Any

import cv2
import numpy.typing as npt

from pipeline.encoders.base import DEFAULT_QUALITY, Encoder, as_pixels


class Png(Encoder):
    """PNG by OpenCV: every pixel exactly, alpha and 16 bits included."""

    name = "png"
    format = "png"
    media_type = "image/png"
    takes_16_bit = True

    def encode(self, pixels: npt.NDArray[Any], quality: int = DEFAULT_QUALITY) -> bytes:
        # Raises where it fails; False is never returned for PNG.
        _, data = cv2.imencode(".png", as_pixels(pixels, takes_16_bit=True))
        return data.tobytes()
