"""Oracles of the ops that follow from a whole picture's values, value by value in whole numbers and exact fractions."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable
from fractions import Fraction
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt

from kernels.image import Pixels
from tests.kernels.oracles_point import Oracle

HALF = Fraction(1, 2)
Values = list[int]
# What becomes of the first picture by what is to be seen in the second.
Seen = Callable[[Pixels, Pixels, dict[str, Any]], Pixels]


def by_values(curve: Callable[[Values, dict[str, Any]], Callable[[int], Fraction | int]]) -> Seen:
    """An op whose curve follows from all sorted values of a channel, or of all channels together."""

    def apply(picture: Pixels, seen: Pixels, params: dict[str, Any]) -> Pixels:
        planes, counted = (p[None] if p.ndim == 2 else np.moveaxis(p, -1, 0) for p in (picture, seen))
        together = params.get("channels") == "together"
        groups = [(planes, counted)] if together else [(p[None], s) for p, s in zip(planes, counted, strict=True)]
        made = np.concatenate([looked_up(p, curve(sorted(s.ravel().tolist()), params)) for p, s in groups])
        return made[0] if picture.ndim == 2 else np.moveaxis(made, 0, -1)

    return apply


class Counting:
    """An op at its place in a chain, frame by frame; another grid starts anew."""

    def __init__(self, seen: Seen) -> None:
        self.seen, self.before = seen, np.empty(0, np.uint8)
        self.grid: list[Any] = []

    def __call__(self, picture: Pixels, params: dict[str, Any]) -> Pixels:
        before, self.before = self.before, picture.copy()
        grid, self.grid = self.grid, [params.get(side) for side in ("tiles_x", "tiles_y")]
        own = params["statistic"] == "frame" or before.size == 0 or grid != self.grid
        return self.seen(picture, picture if own else before, params)


def on_its_own(seen: Seen) -> Oracle:
    """The first frame."""
    return lambda picture, params: Counting(seen)(picture, params)


def looked_up(planes: Pixels, curve: Callable[[int], Fraction | int]) -> Pixels:
    table = np.zeros(256, np.uint8)
    for value in set(planes.ravel().tolist()):
        table[value] = min(max(math.floor(curve(value) + HALF), 0), 255)
    return table[planes]


def equalized(values: Values, params: dict[str, Any]) -> Callable[[int], Fraction | int]:
    n, least = len(values), values.count(values[0])
    if n == least:
        return lambda value: value
    return lambda value: Fraction(255 * max(bisect_right(values, value) - least, 0), n - least)


def stretched(values: Values, params: dict[str, Any]) -> Callable[[int], Fraction | int]:
    n = len(values)
    dark, bright = (
        math.floor(n * Fraction(math.floor(10_000 * params[end] + 0.5), 10**6)) for end in ("dark", "bright")
    )
    low, high = values[dark], values[n - 1 - bright]
    return (lambda value: value) if low == high else (lambda value: Fraction(255 * (value - low), high - low))


def parted(values: Values, params: dict[str, Any]) -> Callable[[int], Fraction | int]:
    """By Otsu's own formula: the shares of the classes, and the distance of their means."""
    best, threshold = Fraction(0), 0
    n, total, dark, sum_dark = len(values), sum(values), 0, 0
    for value in sorted(set(values))[:-1]:
        count = values.count(value)
        dark += count
        sum_dark += count * value
        distance = Fraction(total - sum_dark, n - dark) - Fraction(sum_dark, dark)
        variance = Fraction(dark, n) * Fraction(n - dark, n) * distance**2
        if variance > best:
            best, threshold = variance, value
    return lambda value: params["max_value"] if (value > threshold) != params["inverted"] else 0


def grey_world(picture: Pixels, seen: Pixels, params: dict[str, Any]) -> Pixels:
    if picture.ndim == 2:
        return picture
    means = [Fraction(int(plane.sum(dtype=np.int64)), plane.size) for plane in np.moveaxis(seen, -1, 0)]
    result = np.empty_like(picture)
    for channel, mean in enumerate(means):
        most = math.floor(1024 * Fraction(params["max_gain"]) + HALF)
        gain = min(math.floor(1024 * sum(means) / 3 / mean + HALF), most) if mean else most
        scaled = (picture[:, :, channel].astype(np.int64) * gain + 512) // 1024
        result[:, :, channel] = np.minimum(scaled, 255)
    return result


def brightness_of(picture: Pixels) -> Pixels:
    if picture.ndim == 2:
        return picture
    blue, green, red = np.moveaxis(picture.astype(np.int64), -1, 0)
    brightness: Pixels = ((3735 * blue + 19235 * green + 9798 * red + 16384) // 32768).astype(np.uint8)
    return brightness


def clipped_table(values: Pixels, clip_limit: float) -> list[int]:
    """As OpenCV's loops do it, with exact numbers."""
    n = values.size
    counts = np.bincount(values.ravel(), minlength=256).tolist()
    if clip_limit > 0:
        most = max(math.floor(Fraction(math.floor(clip_limit * 10**6 + 0.5), 10**6) * n / 256), 1)
        cut = sum(max(count - most, 0) for count in counts)
        counts = [min(count, most) + cut // 256 for count in counts]
        rest, level = cut % 256, 0
        step = 256 // rest if rest else 0
        while rest:
            counts[level] += 1
            level, rest = level + step, rest - 1
    assert sum(counts) == n
    return [(2 * 255 * below + n) // (2 * n) for below in accumulate(counts)]


def evened_out(picture: Pixels, seen: Pixels, params: dict[str, Any]) -> Pixels:
    """Every pixel on its own, from the tables of a padded picture."""
    across, down = params["tiles_x"], params["tiles_y"]
    height, width = picture.shape[:2]
    counted = brightness_of(seen)
    if width % across or height % down:
        counted = np.pad(counted, ((0, down - height % down), (0, across - width % across)), mode="reflect")
    high, wide = counted.shape[0] // down, counted.shape[1] // across
    tables = [
        [clipped_table(counted[r * high : (r + 1) * high, c * wide : (c + 1) * wide], params["clip_limit"])
         for c in range(across)]
        for r in range(down)
    ]  # fmt: skip

    def sides(place: int, size: int, parts: int, unit: int) -> list[tuple[int, int]]:
        at = Fraction(place, size) - HALF  # pixels start at their number, as with OpenCV
        second = math.floor(unit * (at - math.floor(at)) + HALF)
        ends = (max(math.floor(at), 0), unit - second), (min(math.floor(at) + 1, parts - 1), second)
        return list(ends)

    before = brightness_of(picture)
    lookup = np.array(tables)
    columns = np.array([sides(x, wide, across, 256) for x in range(width)])
    after = np.empty((height, width), np.int64)
    for y in range(height):
        parts = [
            lookup[r, columns[:, side, 0], before[y]] * of_row * columns[:, side, 1]
            for r, of_row in sides(y, high, down, 32768)
            for side in (0, 1)
        ]
        after[y] = (sum(parts) + 2**22) // 2**23
    moved = after - before
    made: Pixels = np.clip(picture + (moved if picture.ndim == 2 else moved[:, :, None]), 0, 255).astype(np.uint8)
    return made


def edges(picture: Pixels, params: dict[str, Any]) -> Pixels:
    """Canny's: gradients of a picture that goes on with its edge, the greatest across each, and what hangs together."""
    squares = params["norm"] == "l2"
    low, high = (limit**2 if squares else limit for limit in sorted((params["low"], params["high"])))
    height, width = picture.shape[:2]
    gradients = []
    for plane in picture[None] if picture.ndim == 2 else np.moveaxis(picture, -1, 0):
        values = np.pad(plane.astype(np.int64), 1, mode="edge")
        columns = values[:-2] + 2 * values[1:-1] + values[2:]
        rows = values[:, :-2] + 2 * values[:, 1:-1] + values[:, 2:]
        gradients.append((columns[:, 2:] - columns[:, :-2], rows[2:] - rows[:-2]))
    gx, gy = np.array(gradients).swapaxes(0, 1)
    strengths = gx**2 + gy**2 if squares else abs(gx) + abs(gy)
    chosen = strengths.argmax(axis=0)[None]  # the first of several
    gx, gy, strength = (np.take_along_axis(values, chosen, axis=0)[0] for values in (gx, gy, strengths))
    around = np.pad(strength, 1)
    ways = np.zeros((height, width), np.int64)  # how often a neighbour in the gradient's direction is not less
    for y, x in np.ndindex(height, width):
        across, down, here = abs(int(gx[y, x])), abs(int(gy[y, x])), around[y + 1, x + 1]
        # tan 22.5° as OpenCV has it; 67.5° is its inverse, 2 more.
        if down * 2**15 < across * 13573:
            ways[y, x] = (around[y + 1, x] >= here) + (around[y + 1, x + 2] > here)
        elif down * 2**15 > across * (13573 + 2**16):
            ways[y, x] = (around[y, x + 1] >= here) + (around[y + 2, x + 1] > here)
        else:
            side = -1 if (gx[y, x] < 0) != (gy[y, x] < 0) else 1
            ways[y, x] = (around[y, x + 1 - side] >= here) + (around[y + 2, x + 1 + side] >= here)
    perhaps = (ways == 0) & (strength > low)
    result = np.where(perhaps & (strength > high), 255, 0).astype(np.uint8)
    return hanging_together(result, perhaps)


def hanging_together(result: Pixels, perhaps: npt.NDArray[np.bool_]) -> Pixels:
    """``result`` with all of ``perhaps`` that is reached from its 255s over eight neighbours, one after the other."""
    todo = list(zip(*np.nonzero(result), strict=True))
    while todo:
        y, x = todo.pop()
        rows, columns = slice(max(y - 1, 0), y + 2), slice(max(x - 1, 0), x + 2)
        for down, across in np.argwhere(perhaps[rows, columns] & (result[rows, columns] == 0)):
            place = rows.start + down, columns.start + across
            result[place] = 255
            todo.append(place)
    return result


STATISTIC_ORACLES: dict[str, Seen] = {
    "auto_contrast": by_values(stretched),
    "auto_white_balance": grey_world,
    "clahe": evened_out,
    "equalize_histogram": by_values(equalized),
    "otsu_threshold": by_values(parted),
}
GLOBAL_ORACLES: dict[str, Oracle] = {
    **{name: on_its_own(seen) for name, seen in STATISTIC_ORACLES.items()},
    "canny": edges,
}
