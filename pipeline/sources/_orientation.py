"""The eight ways a picture can lie, as its metadata says it, and how to write it upright."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from kernels.image import Pixels


@dataclass(frozen=True, slots=True)
class Orientation:
    """Upright = the stored picture, transposed if ``transpose``, then its columns and rows reversed as said."""

    transpose: bool = False
    reverse_x: bool = False
    reverse_y: bool = False

    def upright(self, plane: Pixels) -> Pixels:
        """A view of (rows, columns[, bytes]) as it is to be seen; nothing is copied."""
        if self.transpose:
            plane = plane.swapaxes(0, 1)
        return plane[:: -1 if self.reverse_y else 1, :: -1 if self.reverse_x else 1]


UPRIGHT = Orientation()


def orientation_of_matrix(matrix: bytes) -> Orientation | None:
    """The orientation of a display matrix (9 native 32-bit integers: ISO 14496-12 "tkhd", libavutil/display.h).

    A stored pixel (x, y) is shown at (a·x + c·y, b·x + d·y), shifted into the picture. None where that is neither a
    quarter turn nor a mirror image.
    """
    a, b, _, c, d = struct.unpack_from("=5i", matrix)
    if b == c == 0 and a and d:
        return Orientation(False, a < 0, d < 0)
    if a == d == 0 and b and c:
        return Orientation(True, c < 0, b < 0)
    return None


def orientation_of_turn(degrees: int) -> Orientation | None:
    """The orientation for a turn counterclockwise by a multiple of 90 degrees, else None."""
    return {
        0: UPRIGHT,
        90: Orientation(True, False, True),
        180: Orientation(False, True, True),
        270: Orientation(True, True, False),
    }.get(degrees % 360)
