"""What the ops that move pixels must yield, in exact fractions and whole numbers, written from their definitions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from kernels.image import Pixels


def crop(picture: Pixels, params: dict[str, Any]) -> Pixels:
    height, width = picture.shape[:2]
    left, top = min(params["x"], width - 1), min(params["y"], height - 1)
    columns = range(left, min(left + params["width"], width) if params["width"] else width)
    rows = range(top, min(top + params["height"], height) if params["height"] else height)
    return picture[list(rows)][:, list(columns)]


def rotate(picture: Pixels, params: dict[str, Any]) -> Pixels:
    """Where each pixel of the source goes, one quarter turn after the other: what was on the left is on top."""
    for _ in range(params["degrees"] // 90):
        height, width = picture.shape[:2]
        turned = np.empty((width, height, *picture.shape[2:]), np.uint8)
        for y in range(height):
            turned[:, height - 1 - y] = picture[y]
        picture = turned
    return picture


GATHER_ORACLES: dict[str, Callable[[Pixels, dict[str, Any]], Pixels]] = {
    "crop": crop,
    "rotate": rotate,
}
