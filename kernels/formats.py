"""Pixel formats: planes, subsampling, and the arithmetic from YUV to BGR.

A format is a list of planes; a plane is a grid of equal byte groups, each of which covers ``x_step`` by
``y_step`` pixels. Odd sizes are legal everywhere: the last group of a row (or row of groups) is then only
partly inside the picture, as V4L2 and H.264 have it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from kernels.errors import UnknownNameError


class Matrix(Enum):
    """Which luma weights a YUV format uses."""

    BT601 = "bt601"
    BT709 = "bt709"


class Range(Enum):
    """Which codes carry the picture: 16–235 (chroma 16–240), or all 256."""

    LIMITED = "limited"
    FULL = "full"


@dataclass(frozen=True, slots=True)
class PlaneLayout:
    """One plane: ``group_bytes`` bytes for each ``x_step`` x ``y_step`` pixels."""

    x_step: int
    y_step: int
    group_bytes: int

    def groups(self, width: int) -> int:
        """Byte groups in a row of ``width`` pixels, the last one possibly partial."""
        return -(-width // self.x_step)

    def row_bytes(self, width: int) -> int:
        """Bytes of a row that belong to the picture; the stride is at least this."""
        return self.groups(width) * self.group_bytes

    def rows(self, height: int) -> int:
        """Rows of this plane for a picture of ``height`` pixels."""
        return -(-height // self.y_step)


@dataclass(frozen=True, slots=True)
class PixelFormat:
    """A named pixel format. ``channels`` is 1 (grey) or 3 (blue, green, red) once it is ingested.

    ``is_working``: it lies as ops take it, so that there is nothing to convert. ``depth``: bits of a value, 8 or 16 (in
    the machine's own order of bytes, over the whole range from 0 to 65535).
    """

    name: str
    planes: tuple[PlaneLayout, ...]
    channels: int
    is_yuv: bool
    is_working: bool = False
    depth: int = 8

    @property
    def value_bytes(self) -> int:
        """Bytes of a value: 1 or 2."""
        return self.depth // 8

    @property
    def pixel_bytes(self) -> int:
        """Bytes of a pixel once it is ingested."""
        return self.channels * self.value_bytes

    def __str__(self) -> str:
        return self.name


BGR8 = PixelFormat("BGR8", (PlaneLayout(1, 1, 3),), channels=3, is_yuv=False, is_working=True)
RGB8 = PixelFormat("RGB8", (PlaneLayout(1, 1, 3),), channels=3, is_yuv=False)
GRAY8 = PixelFormat("GRAY8", (PlaneLayout(1, 1, 1),), channels=1, is_yuv=False, is_working=True)
BGR16 = PixelFormat("BGR16", (PlaneLayout(1, 1, 6),), channels=3, is_yuv=False, is_working=True, depth=16)
GRAY16 = PixelFormat("GRAY16", (PlaneLayout(1, 1, 2),), channels=1, is_yuv=False, is_working=True, depth=16)
NV12 = PixelFormat("NV12", (PlaneLayout(1, 1, 1), PlaneLayout(2, 2, 2)), channels=3, is_yuv=True)
I420 = PixelFormat("I420", (PlaneLayout(1, 1, 1), PlaneLayout(2, 2, 1), PlaneLayout(2, 2, 1)), channels=3, is_yuv=True)
YUYV = PixelFormat("YUYV", (PlaneLayout(2, 1, 4),), channels=3, is_yuv=True)
UYVY = PixelFormat("UYVY", (PlaneLayout(2, 1, 4),), channels=3, is_yuv=True)

FORMATS: dict[str, PixelFormat] = {f.name: f for f in (BGR8, RGB8, GRAY8, NV12, I420, YUYV, UYVY, GRAY16, BGR16)}

# What a level of 8 bits is in a picture of each depth: white is 255 · 1 or 255 · 257.
LEVEL = {8: 1, 16: 257}


def working_format(channels: int, depth: int) -> PixelFormat:
    """The format of pictures as ops see them: 1 or 3 channels of 8 or 16 bits."""
    grey, color = {8: (GRAY8, BGR8), 16: (GRAY16, BGR16)}[depth]
    return grey if channels == 1 else color


def pixel_format(name: str, field: str = "format") -> PixelFormat:
    """The format of that name.

    Raises:
        UnknownNameError: there is none; lists those there are.
    """
    try:
        return FORMATS[name]
    except KeyError:
        raise UnknownNameError(field, "pixel format", name, FORMATS) from None


def default_matrix(height: int) -> Matrix:
    """What video without a label means: BT.601 below 720 lines, BT.709 from there."""
    return Matrix.BT601 if height < 720 else Matrix.BT709


@dataclass(frozen=True, slots=True)
class YuvCoefficients:
    """Integers that define YUV → BGR exactly, the same on every device.

    With t(c, v, o) = (c·(v − o) + 512) >> 10, which is in units of 1/32 level:
    ``B = sat((t(y, Y, y_offset) + t(bu, U, 128) + 16) >> 5)``,
    ``G = sat((t(y, Y, y_offset) + t(gu, U, 128) + t(gv, V, 128) + 16) >> 5)``,
    ``R = sat((t(y, Y, y_offset) + t(rv, V, 128) + 16) >> 5)``, where sat clamps to 0–255.
    Each coefficient is the standard's (ITU-R BT.601-7, BT.709-6) times 2^15, rounded; the result is within
    0.55 level of the standard's real number. Full-range luma of a grey pixel comes out unchanged.
    """

    y_offset: int
    y: int
    bu: int
    gu: int
    gv: int
    rv: int


def yuv_coefficients(matrix: Matrix, value_range: Range) -> YuvCoefficients:
    """The coefficients of a matrix and range, from the standards' K_r and K_b."""
    kr, kb = {Matrix.BT601: (0.299, 0.114), Matrix.BT709: (0.2126, 0.0722)}[matrix]
    kg = 1.0 - kr - kb
    luma, chroma = (255 / 219, 255 / 224) if value_range is Range.LIMITED else (1.0, 1.0)

    def fixed(value: float) -> int:
        return round(value * 32768)

    return YuvCoefficients(
        y_offset=16 if value_range is Range.LIMITED else 0,
        y=fixed(luma),
        bu=fixed(2 * (1 - kb) * chroma),
        gu=fixed(-2 * (1 - kb) * kb / kg * chroma),
        gv=fixed(-2 * (1 - kr) * kr / kg * chroma),
        rv=fixed(2 * (1 - kr) * chroma),
    )


# BGR → YUV, BT.601 with full range (what JPEG means, JFIF 1.02), exactly: luma of a pixel is
# (Σ LUMA·(B, G, R) + 2^14) >> 15; chroma of a 2x2 square is sat((Σ U·(B, G, R) + 2^21 + 2^13) >> 14) of the sums of its
# four pixels; the last column and row stand for what an odd size lacks. Grey is exact: luma unchanged, chroma 128.
LUMA = (3735, 19235, 9798)
CHROMA_U = (2048, -1357, -691)
CHROMA_V = (-333, -1715, 2048)
