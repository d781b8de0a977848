"""Oracles of the ops that read a window around each pixel, in plain integers, written from their definitions."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from kernels.image import Pixels
from tests.kernels.oracles_depth import level, saturated

Ints = npt.NDArray[np.int64]
Oracle = Callable[[Pixels, dict[str, Any]], Pixels]


def mirrored(place: int, size: int) -> int:
    """Reflect-101 step by step: one reflection after the other until the place is in the picture."""
    while size > 1 and not 0 <= place < size:
        place = -place if place < 0 else 2 * (size - 1) - place
    return place if size > 1 else 0


def window(picture: npt.NDArray[Any], across: int, down: int) -> Iterator[tuple[int, int, Ints]]:
    """(dx, dy, the values at (x + dx, y + dy) for every pixel) of a window of odd sides, row by row."""
    height, width = picture.shape[:2]
    columns = [[mirrored(x + dx, width) for x in range(width)] for dx in range(-(across // 2), across // 2 + 1)]
    for dy in range(-(down // 2), down // 2 + 1):
        rows = picture[[mirrored(y + dy, height) for y in range(height)]].astype(np.int64)
        for dx, column in enumerate(columns, -(across // 2)):
            yield dx, dy, rows[:, column]


def weighed(picture: npt.NDArray[Any], weights: Sequence[Sequence[int]]) -> Ints:
    """Σ weight · value; the first weight belongs to the upper left neighbour."""
    down, across = len(weights), len(weights[0])
    total = np.zeros(picture.shape, np.int64)
    for dx, dy, values in window(picture, across, down):
        total += weights[dy + down // 2][dx + across // 2] * values
    return total


def weighed_both_ways(picture: Pixels, weights: Sequence[int]) -> Ints:
    return weighed(weighed(picture, [weights]), [[weight] for weight in weights])


def scharr(picture: Pixels, params: dict[str, Any]) -> Pixels:
    gx = weighed(picture, [[-3, 0, 3], [-10, 0, 10], [-3, 0, 3]])
    gy = weighed(picture, [[-3, -10, -3], [0, 0, 0], [3, 10, 3]])
    return saturated(abs(gx) + abs(gy), picture)


def laplacian(picture: Pixels, params: dict[str, Any]) -> Pixels:
    weights = {1: [[0, 1, 0], [1, -4, 1], [0, 1, 0]], 3: [[2, 0, 2], [0, -8, 0], [2, 0, 2]]}
    return saturated(abs(weighed(picture, weights[params["ksize"]])), picture)


def filter2d(picture: Pixels, params: dict[str, Any]) -> Pixels:
    """In exact fractions; the units of the weights as the definition says."""
    real = [[Fraction(weight) for weight in row] for row in params["weights"]]
    whole = sum(map(sum, real), Fraction(0))
    if params["normalize"] and whole:
        real = [[weight / whole for weight in row] for row in real]
        whole = Fraction(1)
    for k in range(14, -1, -1):
        units = [[rounded(weight * 2**k) for weight in row] for row in real]
        units[len(units) // 2][len(units[0]) // 2] += rounded(whole * 2**k) - sum(map(sum, units))
        if 510 * (sum(abs(weight) for row in units for weight in row) + 2**k) < 2**24:
            break
    total = weighed(picture, units) + params["offset"] * level(picture) * 2**k
    return saturated((2 * total + 2**k) // 2 ** (k + 1), picture)


def rounded(value: Fraction) -> int:
    return math.floor(value + Fraction(1, 2))


def median(picture: Pixels, params: dict[str, Any]) -> Pixels:
    side = params["ksize"]
    values = np.stack([values for _, _, values in window(picture, side, side)])
    return saturated(np.sort(values, axis=0)[side * side // 2], picture)


def box_blur(picture: Pixels, params: dict[str, Any]) -> Pixels:
    side = params["ksize"]
    total = weighed_both_ways(picture, [1] * side)
    return saturated((2 * total + side**2) // (2 * side**2), picture)


def gaussian(picture: Pixels, ksize: int, sigma: float) -> Ints:
    """What gaussian_blur makes."""
    return (weighed_both_ways(picture, gaussian_taps(ksize, sigma)) + 2**15) // 2**16


# OpenCV's small windows without a sigma, in 1/256 (imgproc/src/smooth.dispatch.cpp, small_gaussian_tab).
SMALL_TAPS = {
    1: [256],
    3: [64, 128, 64],
    5: [16, 64, 96, 64, 16],
    7: [8, 28, 56, 72, 56, 28, 8],
    9: [4, 13, 30, 51, 60, 51, 30, 13, 4],
}


def gaussian_taps(ksize: int, sigma: float) -> list[int]:
    """Integer taps of sum 256, the rounding error carried from the ends to the middle."""
    if sigma == 0 and ksize in SMALL_TAPS:
        return SMALL_TAPS[ksize]
    half = ksize // 2
    width = sigma if sigma > 0 else 0.3 * ((ksize - 1) * 0.5 - 1) + 0.8
    # Beyond 100 standard deviations a weight is 0 in any arithmetic; a sigma near 0 leaves only the middle.
    weights = [math.exp(-(min(abs(i - half) / width, 100.0) ** 2) / 2) for i in range(ksize)]
    whole = math.fsum(weights)
    taps, error = [], 0.0
    for weight in weights[:half]:
        exact = 256 * weight / whole + error
        taps.append(round(exact))
        error = exact - taps[-1]
    return [*taps, 256 - 2 * sum(taps), *reversed(taps)]


def unsharp_mask(picture: Pixels, params: dict[str, Any]) -> Pixels:
    values = picture.astype(np.int64)
    difference = values - gaussian(picture, params["ksize"], params["sigma"])
    amount = rounded(Fraction(params["amount"]) * 256)
    sharper = values + (amount * difference + 128) // 256
    return saturated(np.where(abs(difference) > params["threshold"] * level(picture), sharper, values), picture)


def adaptive_threshold(picture: Pixels, params: dict[str, Any]) -> Pixels:
    if params["method"] == "mean":
        mean = box_blur(picture, params).astype(np.int64)
    else:
        mean = gaussian(picture, params["ksize"], 0.0)
    above = (picture > mean - params["offset"] * level(picture)) != params["inverted"]
    return saturated(np.where(above, params["max_value"] * level(picture), 0), picture)


def morphology(*steps: Callable[..., Any]) -> Oracle:
    """One extremum of a square window after the other."""

    def apply(picture: Pixels, params: dict[str, Any]) -> Pixels:
        for extremum in steps:
            values = [values for _, _, values in window(picture, params["ksize"], 1)]
            values = [values for _, _, values in window(extremum(values, axis=0), 1, params["ksize"])]
            picture = saturated(extremum(values, axis=0), picture)
        return picture

    return apply


def bilateral_real(picture: Pixels, params: dict[str, Any]) -> npt.NDArray[np.float64]:
    """In 64-bit floats, not rounded."""
    values = picture.astype(np.float64)
    whole, total = np.zeros(picture.shape[:2]), np.zeros(picture.shape)
    for dx, dy, there in window(picture, params["ksize"], params["ksize"]):
        if math.hypot(dx, dy) <= params["ksize"] // 2:
            apart = abs(there - values).reshape(*whole.shape, -1).sum(axis=2)
            weight = np.exp(
                -(dx**2 + dy**2) / (2 * params["sigma_space"] ** 2) - apart**2 / (2 * params["sigma_color"] ** 2)
            )
            whole += weight
            total += (weight if picture.ndim == 2 else weight[:, :, None]) * there
    mean: npt.NDArray[np.float64] = total / (whole if picture.ndim == 2 else whole[:, :, None])
    return mean


def bilateral(picture: Pixels, params: dict[str, Any]) -> Pixels:
    return np.floor(bilateral_real(picture, params) + 0.5).astype(np.uint8)


# Ops that are computed in floats, and how many levels they may be from their oracles.
LEVELS_APART = {"bilateral": 1}

STENCIL_ORACLES: dict[str, Oracle] = {
    "adaptive_threshold": adaptive_threshold,
    "bilateral": bilateral,
    "box_blur": box_blur,
    "close": morphology(np.max, np.min),
    "dilate": morphology(np.max),
    "erode": morphology(np.min),
    "filter2d": filter2d,
    "laplacian": laplacian,
    "median": median,
    "open": morphology(np.min, np.max),
    "scharr": scharr,
    "unsharp_mask": unsharp_mask,
}


def fit_weights(values: dict[str, Any]) -> dict[str, Any]:
    """Rows of the same, odd length; magnitudes that are allowed, as they are and, if asked for, by their sum."""
    rows = [list(row) for row in values["weights"]]
    side = min(map(len, rows))
    rows = [row[: side - 1 + side % 2] for row in rows[: len(rows) - 1 + len(rows) % 2]]
    magnitude, whole = sum(abs(weight) for row in rows for weight in row), abs(sum(map(sum, rows)))
    if magnitude > 16000:
        rows = [[weight * 16000 / magnitude for weight in row] for row in rows]
    return values | {"weights": rows, "normalize": values["normalize"] and whole * 16000 > magnitude}


STENCIL_REPAIRS: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {"filter2d": fit_weights}
