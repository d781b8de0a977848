"""What the ops that move pixels must yield, in exact fractions and whole numbers, written from their definitions."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
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


def fill_values(picture: Pixels, color: str) -> tuple[int, ...]:
    """A colour's channels for this picture; in grey, BT.601's luma as grayscale has it."""
    red, green, blue = (int(color[i : i + 2], 16) for i in (1, 3, 5))
    if picture.ndim == 3:
        return blue, green, red
    weights = [math.floor(Fraction(weight, 1000) * 32768 + Fraction(1, 2)) for weight in (299, 587)]
    return ((weights[0] * red + weights[1] * green + (32768 - sum(weights)) * blue + 16384) >> 15,)


def letterbox(picture: Pixels, params: dict[str, Any]) -> Pixels:
    from tests.kernels.oracles import resize

    height, width = picture.shape[:2]
    scale = min(Fraction(params["width"], width), Fraction(params["height"], height))
    inner_width, inner_height = (max(math.floor(side * scale + Fraction(1, 2)), 1) for side in (width, height))
    inner = resize(picture, {"width": inner_width, "height": inner_height, "interpolation": params["interpolation"]})
    result = np.empty((params["height"], params["width"], *picture.shape[2:]), np.uint8)
    result[...] = np.reshape(fill_values(picture, params["fill"]), picture.shape[2:])
    left, top = (params["width"] - inner_width) // 2, (params["height"] - inner_height) // 2
    result[top : top + inner_height, left : left + inner_width] = inner
    return result


GATHER_ORACLES: dict[str, Callable[[Pixels, dict[str, Any]], Pixels]] = {
    "crop": crop,
    "letterbox": letterbox,
    "rotate": rotate,
}
