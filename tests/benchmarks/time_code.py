"""Reads a test card's sequence code from its edges: after a sobel, the squares are gone and their borders are left."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt

PREFIX = 0b10110010
COLUMNS, SQUARE_PX, X_PX, Y_PX = 20, 16, 16, 16
EDGE = 100  # levels; what is no edge is near 0, or near the chain's offset


def read_edges(picture: npt.NDArray[Any]) -> int | None:
    """The sequence number in a (H, W) picture of a card that went through the benchmarks' chain.

    None where it is not clear: another prefix, an edge where the black margin must be, or two codes that differ, as in
    a torn picture.
    """
    height = picture.shape[0]
    top, bottom = _read(picture, Y_PX), _read(picture, height - 3 * SQUARE_PX)
    return top if top == bottom else None


def _read(picture: npt.NDArray[Any], top: int) -> int | None:
    bits: list[int] = []
    for row in range(2):
        y = top + row * SQUARE_PX + SQUARE_PX // 2
        line = picture[y - 2 : y + 2].mean(axis=0)
        bit = 0  # the margin to the left is black
        for column in range(COLUMNS + 1):
            x = X_PX + column * SQUARE_PX
            bit ^= int(line[x - 1 : x + 1].max() >= EDGE)
            bits.append(bit)
        if bits.pop():  # as is the one to the right
            return None
    value = int("".join(map(str, bits)), 2)
    return value & 0xFFFFFFFF if value >> 32 == PREFIX else None
