"""Reads from EXIF data how to turn a picture: by ourselves, as OpenCV's versions differ in what they heed."""

from __future__ import annotations

from typing import Literal

from pipeline.sources._orientation import UPRIGHT, Orientation

# EXIF 2.3, tag 0x0112.
_ORIENTATIONS = {
    1: UPRIGHT,
    2: Orientation(False, True, False),
    3: Orientation(False, True, True),
    4: Orientation(False, False, True),
    5: Orientation(True, False, False),
    6: Orientation(True, True, False),
    7: Orientation(True, True, True),
    8: Orientation(True, False, True),
}
_ORIENTATION_TAG = 0x0112


def exif_orientation(data: bytes) -> Orientation:
    """The orientation that a JPEG, PNG or WebP file asks for; upright where it says nothing that makes sense."""
    if data.startswith(b"\xff\xd8"):
        exif = _in_jpeg(data)
    elif data.startswith(b"\x89PNG"):
        exif = _in_chunks(data, 8, b"eXIf", "big")
    elif data.startswith(b"RIFF"):
        exif = _in_chunks(data, 12, b"EXIF", "little")
    else:
        return UPRIGHT
    return _ORIENTATIONS.get(_orientation_tag(exif.removeprefix(b"Exif\0\0")), UPRIGHT)


def _in_jpeg(data: bytes) -> bytes:
    at = 2
    while data[at : at + 1] == b"\xff" and data[at + 1 : at + 2] != b"\xda":  # up to the scan
        length = int.from_bytes(data[at + 2 : at + 4], "big")
        if data[at + 1] == 0xE1 and data[at + 4 : at + 10] == b"Exif\0\0":
            return data[at + 4 : at + 2 + length]
        at += 2 + length
    return b""


def _in_chunks(data: bytes, at: int, wanted: bytes, order: Literal["little", "big"]) -> bytes:
    """The body of a PNG chunk (length, kind, body, checksum) or a RIFF chunk (kind, length, body, padding)."""
    while at + 8 <= len(data):
        first, second = data[at : at + 4], data[at + 4 : at + 8]
        kind, size = (second, first) if order == "big" else (first, second)
        length = int.from_bytes(size, order)
        if kind == wanted:
            return data[at + 8 : at + 8 + length]
        at += 8 + length + (4 if order == "big" else length % 2)
    return b""


def _orientation_tag(tiff: bytes) -> int:
    order: Literal["little", "big"] = "big" if tiff.startswith(b"MM") else "little"

    def number(at: int, length: int) -> int:
        return int.from_bytes(tiff[at : at + length], order)

    directory = number(4, 4)
    for entry in range(directory + 2, directory + 2 + 12 * number(directory, 2), 12):
        if number(entry, 2) == _ORIENTATION_TAG:
            return number(entry + 8, 2)
    return 0
