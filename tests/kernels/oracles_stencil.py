"""Oracles of the ops that read a window around each pixel, in plain integers, written from their definitions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from kernels.image import Pixels

Ints = npt.NDArray[np.int64]
Oracle = Callable[[Pixels, dict[str, Any]], Pixels]


def mirrored(place: int, size: int) -> int:
    """Reflect-101 step by step: one reflection after the other until the place is in the picture."""
    while size > 1 and not 0 <= place < size:
        place = -place if place < 0 else 2 * (size - 1) - place
    return place if size > 1 else 0


def window(picture: Pixels, across: int, down: int) -> Iterator[tuple[int, int, Ints]]:
    """(dx, dy, the values at (x + dx, y + dy) for every pixel) of a window of odd sides, row by row."""
    height, width = picture.shape[:2]
    columns = [[mirrored(x + dx, width) for x in range(width)] for dx in range(-(across // 2), across // 2 + 1)]
    for dy in range(-(down // 2), down // 2 + 1):
        rows = picture[[mirrored(y + dy, height) for y in range(height)]].astype(np.int64)
        for dx, column in enumerate(columns, -(across // 2)):
            yield dx, dy, rows[:, column]


def weighed(picture: Pixels, weights: Sequence[Sequence[int]]) -> Ints:
    """Σ weight · value; the first weight belongs to the upper left neighbour."""
    down, across = len(weights), len(weights[0])
    total = np.zeros(picture.shape, np.int64)
    for dx, dy, values in window(picture, across, down):
        total += weights[dy + down // 2][dx + across // 2] * values
    return total


def to_bytes(values: Ints) -> Pixels:
    saturated: Pixels = np.clip(values, 0, 255).astype(np.uint8)
    return saturated


def scharr(picture: Pixels, params: dict[str, Any]) -> Pixels:
    gx = weighed(picture, [[-3, 0, 3], [-10, 0, 10], [-3, 0, 3]])
    gy = weighed(picture, [[-3, -10, -3], [0, 0, 0], [3, 10, 3]])
    return to_bytes(abs(gx) + abs(gy))


def laplacian(picture: Pixels, params: dict[str, Any]) -> Pixels:
    weights = {1: [[0, 1, 0], [1, -4, 1], [0, 1, 0]], 3: [[2, 0, 2], [0, -8, 0], [2, 0, 2]]}
    return to_bytes(abs(weighed(picture, weights[params["ksize"]])))


STENCIL_ORACLES: dict[str, Oracle] = {
    "laplacian": laplacian,
    "scharr": scharr,
}
