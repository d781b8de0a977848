"""What the ops that move pixels must yield, in exact fractions and whole numbers, written from their definitions."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

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


Ints = npt.NDArray[np.int64]


def sampled(picture: Pixels, x: Ints, y: Ints, params: dict[str, Any]) -> Pixels:
    """The picture at points in 1/32 px: its values in a table of all places that are asked for, then four of them."""
    x, y = np.clip(x, -(2**25), 2**25), np.clip(y, -(2**25), 2**25)
    if params["interpolation"] == "nearest":
        return value_at(picture, (x + 16) // 32, (y + 16) // 32, params).astype(np.uint8)
    total = np.zeros((*x.shape, *picture.shape[2:]), np.int64)
    for dx in (0, 1):
        for dy in (0, 1):
            weight = (x % 32 if dx else 32 - x % 32) * (y % 32 if dy else 32 - y % 32)
            value = value_at(picture, x // 32 + dx, y // 32 + dy, params)
            total += value * weight.reshape(*x.shape, *[1] * (picture.ndim - 2))
    return ((total + 512) // 1024).astype(np.uint8)


def value_at(picture: Pixels, x: Ints, y: Ints, params: dict[str, Any]) -> Ints:
    """Values at whole places, which may lie outside."""
    height, width = picture.shape[:2]
    inside_x, inside_y = (mirrored(x, width), mirrored(y, height)) if params["border"] == "reflect_101" else (
        np.minimum(np.maximum(x, 0), width - 1), np.minimum(np.maximum(y, 0), height - 1)
    )  # fmt: skip
    values: Ints = picture[inside_y, inside_x].astype(np.int64)
    if params["border"] == "constant":
        values[(x != inside_x) | (y != inside_y)] = np.reshape(fill_values(picture, params["fill"]), picture.shape[2:])
    return values


def mirrored(index: Ints, size: int) -> Ints:
    """… 2 1 0 1 2 … n-2 n-1 n-2 …, by a walk there and back."""
    walk = np.array([*range(size), *range(size - 2, 0, -1)], np.int64)
    return walk[index % len(walk)]


def warp_affine(picture: Pixels, params: dict[str, Any]) -> Pixels:
    """Solves the two equations for the origin and for one step along each axis; that gives the inverse's columns."""
    a, b, c, d, e, f = map(Fraction, params["matrix"])

    def back(x: Fraction, y: Fraction) -> tuple[Fraction, Fraction]:
        determinant = a * e - b * d
        return (x * e - y * b) / determinant, (a * y - d * x) / determinant

    origin, right, below = back(-c, -f), back(Fraction(1), Fraction(0)), back(Fraction(0), Fraction(1))
    width, height = params["width"] or picture.shape[1], params["height"] or picture.shape[0]
    y, x = np.mgrid[0:height, 0:width]

    def points(axis: int) -> Ints:
        step_x, step_y, start = (round(column[axis] * 2**32) for column in (right, below, origin))
        found: Ints = (x * step_x + y * step_y + start + 2**26) // 2**27
        return found

    return sampled(picture, points(0), points(1), params)


def cosine_and_sine(degrees: float) -> tuple[Decimal, Decimal]:
    """By their series, to some 40 digits."""
    with localcontext() as context:
        context.prec = 50
        pi = Decimal("3.14159265358979323846264338327950288419716939937511")
        angle = Decimal(degrees) * pi / 180
        sums, term = [Decimal(0), Decimal(0)], Decimal(1)
        for n in range(80):
            sums[n % 2] += term if n % 4 < 2 else -term
            term *= angle / (n + 1)
        return sums[0], sums[1]


def rotate_angle(picture: Pixels, params: dict[str, Any]) -> Pixels:
    cosine, sine = (
        math.floor(Fraction(value) / Fraction(params["scale"]) * 2**32 + Fraction(1, 2))
        for value in cosine_and_sine(params["degrees"])
    )
    height, width = picture.shape[:2]
    y, x = np.mgrid[0:height, 0:width]
    right, below = 2 * x - width + 1, 2 * y - height + 1
    from_x = (cosine * right + sine * below + (width - 1) * 2**32 + 2**27) // 2**28
    from_y = (cosine * below - sine * right + (height - 1) * 2**32 + 2**27) // 2**28
    return sampled(picture, from_x, from_y, params)


def invertible(values: dict[str, Any]) -> dict[str, Any]:
    """Any numbers of warp_affine as a matrix that moves the picture about where it is; for the strategies."""
    matrix = [value / (10_000 if k % 3 == 2 else 500_000) if abs(value) > 2 else value
              for k, value in enumerate(values["matrix"])]  # fmt: skip
    if abs(matrix[0] * matrix[4] - matrix[1] * matrix[3]) < 1e-3:
        matrix = [0.7, -0.3, matrix[2], 0.45, 1.1, matrix[5]]
    return {**values, "matrix": matrix}


GATHER_REPAIRS: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "warp_affine": invertible,
}

GATHER_ORACLES: dict[str, Callable[[Pixels, dict[str, Any]], Pixels]] = {
    "crop": crop,
    "letterbox": letterbox,
    "rotate": rotate,
    "rotate_angle": rotate_angle,
    "warp_affine": warp_affine,
}
