"""What an encoder is: pixels to bytes of one media type. ONE FILE PER ENCODER in this folder, found by file name.

Encoders work on pictures that somebody else holds a lease of, and return bytes of their own: what goes to a client is
never a view of a slot. :class:`Encoder` takes arrays, :class:`DeviceEncoder` what lies in a GPU's memory.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Protocol

import numpy as np
import numpy.typing as npt

from kernels.device import Device
from kernels.errors import InputError
from kernels.formats import PixelFormat
from kernels.image import MAX_SIDE_PX, DeviceView, Values

DEFAULT_QUALITY = 80


class PictureEncoder(ABC):
    """What both kinds of encoders say of themselves.

    ``name`` is the file's name and the label of its counter, ``format`` what a client asks for (``jpg``),
    ``uses_quality`` False where a quality means nothing.
    """

    name: ClassVar[str]
    format: ClassVar[str]
    media_type: ClassVar[str]
    uses_quality: ClassVar[bool] = False


class Encoder(PictureEncoder):
    """One way to write a picture. Stateless: any thread, any number at a time.

    ``takes_16_bit``: pictures of 16 bits stay what they are; for others who calls makes 8 of them.
    """

    takes_16_bit: ClassVar[bool] = False

    @abstractmethod
    def encode(self, pixels: npt.NDArray[Any], quality: int = DEFAULT_QUALITY) -> bytes:
        """The picture as bytes. Blocks for milliseconds, mostly without the GIL.

        ``pixels``: uint8, or uint16 where the encoder takes it, of (H, W) grey, (H, W, 3) BGR or (H, W, 4) BGRA with
        any strides; not kept, not changed.

        Raises:
            InputError: another shape, type or size, or a quality outside 1–100.
        """


class PixelEncoder(Protocol):
    """What writes arrays: an :class:`Encoder`, or one stream of a format whose pictures depend on those before."""

    @property
    def name(self) -> str: ...
    @property
    def media_type(self) -> str: ...
    @property
    def takes_16_bit(self) -> bool: ...
    def encode(self, pixels: npt.NDArray[Any], quality: int = DEFAULT_QUALITY) -> bytes: ...


class DeviceCoder(Protocol):
    """Encodes pictures in a device's memory, one at a time. One thread at a time, which has activated the device."""

    def encode(self, picture: DeviceView, quality: int, stream: Any = None) -> bytes:
        """The picture as bytes of the host; blocks until they are there. Behind what is on ``stream``, if given.

        Raises:
            InputError: it is in none of the encoder's formats; DeviceFailedError, OutOfMemoryError
        """

    def close(self) -> None:
        """Release what it holds; idempotent."""


class DeviceEncoder(PictureEncoder):
    """A way to write a picture that lies on the device, so that only the bytes leave it. Stateless.

    ``planes`` is what pictures of three channels are given as where they have to be made anew (for another size).
    """

    formats: ClassVar[tuple[PixelFormat, ...]]
    planes: ClassVar[PixelFormat]

    @abstractmethod
    def absence(self, device: Device) -> str | None:
        """Why pictures on that device cannot be encoded this way, and what helps; None if they can."""

    @abstractmethod
    def open(self, device: Device) -> DeviceCoder:
        """A coder for one stream of pictures. The calling thread has activated the device.

        Raises:
            DeviceFailedError, OutOfMemoryError
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
