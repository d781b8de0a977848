"""What an encoder is: pixels to bytes of one media type. ONE FILE PER ENCODER in this folder, found by file name.

Encoders work on arrays that somebody else holds a lease of, and return bytes of their own: what goes to a client is
never a view of a slot.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from kernels.errors import InputError
from kernels.image import MAX_SIDE_PX, Values

DEFAULT_QUALITY = 80


class Encoder(ABC):
    """One way to write a picture. Stateless: any thread, any number at a time.

    ``name`` is the file's name and the label of its counter, ``format`` what a client asks for (``jpg``),
    ``uses_quality`` False where a quality means nothing. ``takes_16_bit``: pictures of 16 bits stay what they are; for
    others who calls makes 8 of them.
    """

    name: ClassVar[str]
    format: ClassVar[str]
    media_type: ClassVar[str]
    uses_quality: ClassVar[bool] = False
    takes_16_bit: ClassVar[bool] = False

    @abstractmethod
    def encode(self, pixels: npt.NDArray[Any], quality: int = DEFAULT_QUALITY) -> bytes:
        """The picture as bytes. Blocks for milliseconds, mostly without the GIL.

        ``pixels``: uint8, or uint16 where the encoder takes it, of (H, W) grey, (H, W, 3) BGR or (H, W, 4) BGRA with
        any strides; not kept, not changed.

        Raises:
            InputError: another shape, type or size, or a quality outside 1–100.
        """


def as_pixels(pixels: npt.NDArray[Any], *, takes_16_bit: bool = False) -> Values:
    """The same picture in contiguous rows: as it is where it already is that, else copied. (H, W), (H, W, 3 or 4).

    Raises:
        InputError: not a picture of 8 bit a channel, or 16 where they are taken: other depths have no agreed scale, and
            a guess would be a wrong picture with no error.
    """
    if pixels.dtype != np.uint8 and not (takes_16_bit and pixels.dtype == np.uint16):
        allowed = "uint8 or uint16" if takes_16_bit else "uint8"
        raise InputError("pixels", f"{pixels.dtype} has no defined scale to 8 bit", allowed)
    if pixels.ndim == 3 and pixels.shape[2] == 1:
        pixels = pixels[:, :, 0]
    if not (pixels.ndim == 2 or (pixels.ndim == 3 and pixels.shape[2] in (3, 4))):
        raise InputError("pixels", f"shape {pixels.shape} is not a picture", "(H, W), (H, W, 3) or (H, W, 4)")
    if not (1 <= pixels.shape[0] <= MAX_SIDE_PX and 1 <= pixels.shape[1] <= MAX_SIDE_PX):
        size = f"{pixels.shape[1]}x{pixels.shape[0]}"
        raise InputError("pixels", f"{size} is not a size", f"1x1 to {MAX_SIDE_PX}x{MAX_SIDE_PX} px")
    return np.ascontiguousarray(pixels)


def check_quality(quality: int) -> int:
    """Raise InputError unless 1–100."""
    if not 1 <= quality <= 100:
        raise InputError("quality", f"{quality} is out of range", "integer, 1 to 100")
    return quality
