from __future__ import annotations

from typing import Any

import numpy.typing as npt
import simplejpeg

from pipeline.encoders.base import DEFAULT_QUALITY, Encoder, as_pixels, check_quality


class JpegCpu(Encoder):
    """JPEG by libjpeg-turbo (simplejpeg): baseline, 4:2:0, BT.601 full range as JFIF says. Alpha is left out."""

    name = "jpeg_cpu"
    format = "jpg"
    media_type = "image/jpeg"
    uses_quality = True

    def encode(self, pixels: npt.NDArray[Any], quality: int = DEFAULT_QUALITY) -> bytes:
        check_quality(quality)
        picture = as_pixels(pixels)
        data: bytes
        if picture.ndim == 2:
            data = simplejpeg.encode_jpeg(picture[:, :, None], quality, "GRAY", "Gray")
        else:
            data = simplejpeg.encode_jpeg(picture, quality, "BGR" if picture.shape[2] == 3 else "BGRA", "420")
        return data
