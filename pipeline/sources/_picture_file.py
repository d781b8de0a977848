"""Decodes one picture file, after its header and integrity were checked: OpenCV alone shows half of a damaged JPEG.

| format | its size is read first | damage is seen |
|---|---|---|
| JPEG | yes | by libjpeg's warnings, which OpenCV ignores: cut off, missing or surplus data |
| PNG | yes | by its checksums |
| WebP, BMP, binary PGM and PPM | yes | where the file is shorter than it says |

Other formats are refused, TIFF among them: OpenCV passes damaged ones as good.
"""

from __future__ import annotations

import re
import zlib

import cv2
import numpy as np
import simplejpeg

from kernels.errors import InputError
from kernels.formats import LEVEL
from kernels.image import Values, check_size
from pipeline.sources._exif import exif_orientation

SUFFIXES = frozenset((".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".webp", ".bmp", ".dib", ".pgm", ".ppm", ".pnm"))
NAMES = "JPEG, PNG, WebP, BMP, binary PGM and PPM"

_PNG = b"\x89PNG\r\n\x1a\n"
_NETPBM = re.compile(rb"P([56])%s([0-9]{1,9})%s([0-9]{1,9})%s([0-9]{1,5})\s" % ((rb"(?:\s|#[^\n]*\n)+",) * 3))


class DamagedPictureError(Exception):
    """The bytes are not a whole picture of a known format; the text says why."""


def decode_picture(data: bytes, depth: int = 8) -> Values:
    """(H, W) of a grey picture or (H, W, 3) BGR of any other, upright by its EXIF orientation.

    16 bits become 8 as v >> 8 (a file that says it uses fewer: v >> (bits - 8)). With a ``depth`` of 16 they stay as
    they are, and 8 become 16 as v · 257. Transparency is dropped: each pixel shows the colour that is stored for it.

    Raises:
        DamagedPictureError: not a picture, damaged, or larger than ``MAX_SIDE_PX``.
    """
    if not data:
        raise DamagedPictureError("is empty")
    if match := _NETPBM.match(data):
        return _decode_netpbm(data, match, depth)
    width, height = _checked_size(data)
    flags = cv2.IMREAD_ANYCOLOR | cv2.IMREAD_ANYDEPTH | cv2.IMREAD_IGNORE_ORIENTATION
    try:
        pixels = cv2.imdecode(np.frombuffer(data, np.uint8), flags)
    except cv2.error as error:
        raise DamagedPictureError(f"cannot be decoded: {error.err}") from error
    if pixels is None or pixels.shape[:2] != (height, width):
        raise DamagedPictureError("cannot be decoded")
    if pixels.dtype not in (np.uint8, np.uint16):
        raise DamagedPictureError(f"has {pixels.dtype} pixels, not 8 or 16 bits")
    if depth == 8 and pixels.dtype == np.uint16:
        pixels = np.right_shift(pixels, 8).astype(np.uint8)
    return np.ascontiguousarray(exif_orientation(data).upright(_at_depth(pixels, depth)))


def _at_depth(pixels: Values, depth: int) -> Values:
    """8 bits as 16 where those are asked for."""
    return pixels.astype(np.uint16) * np.uint16(LEVEL[16]) if depth == 16 and pixels.dtype == np.uint8 else pixels


def _checked_size(data: bytes) -> tuple[int, int]:
    """(width, height) by the header, without decoding; everything that needs no decoder is checked."""
    try:
        if data.startswith(b"\xff\xd8\xff"):
            return _check_jpeg(data)
        if data.startswith(_PNG):
            return _check_png(data)
        if data.startswith(b"BM"):
            return _check_bmp(data)
        if data.startswith(b"RIFF") and data[8:12] == b"WEBP":
            return _check_webp(data)
    except IndexError:
        raise DamagedPictureError("is cut off") from None
    raise DamagedPictureError(f"is not a picture of a known format ({NAMES})")


def _fits(width: int, height: int) -> tuple[int, int]:
    try:
        check_size(width, height)
    except InputError as error:
        raise DamagedPictureError(f"{error.reason}; allowed: {error.allowed}") from None
    return width, height


def _check_jpeg(data: bytes) -> tuple[int, int]:
    try:
        height, width, colorspace, _ = simplejpeg.decode_jpeg_header(data)
        size = _fits(width, height)
        # All of the scan is read, at an eighth of the size.
        target = "CMYK" if colorspace in ("CMYK", "YCCK") else "GRAY"
        simplejpeg.decode_jpeg(data, target, min_height=1, min_width=1, min_factor=8, strict=True)
    except ValueError as error:
        raise DamagedPictureError(f"is a damaged JPEG: {error}") from error
    return size


def _check_png(data: bytes) -> tuple[int, int]:
    size = _fits(_number(data, 16, 4, "big"), _number(data, 20, 4, "big"))
    at = len(_PNG)
    while True:
        length = _number(data, at, 4, "big")
        kind, end = data[at + 4 : at + 8], at + 8 + length
        if zlib.crc32(data[at + 4 : end]) != _number(data, end, 4, "big"):
            raise DamagedPictureError("is a damaged PNG: a checksum is wrong")
        if kind == b"IEND":
            return size
        at = end + 4


def _check_bmp(data: bytes) -> tuple[int, int]:
    start, header = _number(data, 10, 4), _number(data, 14, 4)
    if header == 12:
        width, height, bits, packed = _number(data, 18, 2), _number(data, 20, 2), _number(data, 24, 2), 0
    else:
        width, height = _number(data, 18, 4), _number(data, 22, 4)
        height = min(height, 2**32 - height)  # negative: from the top down
        bits, packed = _number(data, 28, 2), _number(data, 30, 4)
    size = _fits(width, height)
    if packed in (0, 3) and start + (width * bits + 31) // 32 * 4 * height > len(data):
        raise DamagedPictureError("is cut off")
    return size


def _check_webp(data: bytes) -> tuple[int, int]:
    if _number(data, 4, 4) + 8 > len(data):
        raise DamagedPictureError("is cut off")
    kind = data[12:16]
    if kind == b"VP8X":
        return _fits(_number(data, 24, 3) + 1, _number(data, 27, 3) + 1)
    if kind == b"VP8L":
        bits = _number(data, 21, 4)
        return _fits((bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1)
    if kind == b"VP8 ":
        return _fits(_number(data, 26, 2) & 0x3FFF, _number(data, 28, 2) & 0x3FFF)
    raise DamagedPictureError("is a damaged WebP")


def _decode_netpbm(data: bytes, match: re.Match[bytes], depth: int) -> Values:
    """Here, as OpenCV does not scale binary values by the file's maximum: 10 bits of 16 would come out black."""
    width, height = _fits(int(match[2]), int(match[3]))
    largest, channels = int(match[4]), 3 if match[1] == b"6" else 1
    if not 1 <= largest <= 65535:
        raise DamagedPictureError(f"has {largest} as its largest value, which must be 1 to 65535")
    count = width * height * channels
    kind = np.dtype(np.uint8 if largest < 256 else ">u2")
    if match.end() + count * kind.itemsize > len(data):
        raise DamagedPictureError("is cut off")
    values = np.frombuffer(data, kind, count, match.end()).reshape(height, width, channels)
    if largest > 255 and depth == 16:
        made = np.minimum(values, largest).astype(np.uint16)
        return made[:, :, 0] if channels == 1 else np.ascontiguousarray(made[:, :, ::-1])
    if largest > 255:
        values = np.right_shift(values, largest.bit_length() - 8)
    elif largest < 255:
        values = (values.astype(np.uint16) * 255 + largest // 2) // largest
    eight = np.minimum(values, 255).astype(np.uint8)
    return _at_depth(eight[:, :, 0] if channels == 1 else np.ascontiguousarray(eight[:, :, ::-1]), depth)


def _number(data: bytes, at: int, length: int, order: str = "little") -> int:
    part = data[at : at + length]
    if len(part) < length:
        raise IndexError
    return int.from_bytes(part, "big" if order == "big" else "little")
