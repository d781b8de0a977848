"""What ops that write text must yield, by a formula for the whole picture; the text itself by ``datetime``."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import datetime
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from kernels.fonts import glyphs
from kernels.image import NO_STAMP, Pixels, Stamp
from tests.kernels.oracles_point import Oracle

Ints = npt.NDArray[np.int64]
TextOracle = Callable[[Pixels, dict[str, Any], Stamp], Pixels]

HALF = Fraction(1, 2)


def line_of(params: dict[str, Any], stamp: Stamp) -> str:
    taken = datetime.fromtimestamp(stamp.wall_ns // 10**9)
    values = {
        "camera": stamp.camera,
        "time": taken.strftime(params["time_format"]),
        "sequence": str(stamp.sequence),
        "ms": str(stamp.wall_ns // 10**6 % 1000).zfill(3),
    }
    line = params["text"].replace("{{", "\0")
    for mark, name in enumerate(values, 0x1000):
        line = line.replace(f"{{{name}}}", chr(mark))
    line = line.replace("}}", "}").replace("\0", "{")
    for mark, value in enumerate(values.values(), 0x1000):
        line = line.replace(chr(mark), value)
    return "".join(sign if 32 <= ord(sign) <= 126 else "?" for sign in line)[:96]


@lru_cache(maxsize=64)
def enlarging(size: int, scale: int) -> Ints:
    """Weights in 1/(2·scale): rows are pixels of the enlarged glyph, columns those of the font's, twice too large."""
    weights = np.zeros((size * scale // 2, size + 2), np.int64)
    for place in range(len(weights)):
        centre = (place + HALF) * Fraction(2, scale) - HALF
        first = math.floor(centre)
        second = int((centre - first) * 2 * scale)
        weights[place, first + 1] += 2 * scale - second
        weights[place, first + 2] += second
    return weights[:, 1:-1]  # beyond a glyph nothing is covered


@lru_cache(maxsize=512)
def enlarged(sign: str, scale: int) -> Ints:
    """How much of each pixel is covered, 0 to 128."""
    sums = enlarging(32, scale) @ glyphs()[ord(sign) - 32].astype(np.int64) @ enlarging(16, scale).T
    steep, whole = max(Fraction(scale, 2), Fraction(1)), 3 * (2 * scale) ** 2
    # 64 + steep * (128 * share - 64), rounded half up.
    covers = [
        [math.floor(64 + steep * (Fraction(128 * value, whole) - 64) + HALF) for value in row] for row in sums.tolist()
    ]
    clipped: Ints = np.array(covers, np.int64).clip(0, 128)
    return clipped


def overlay_text(picture: Pixels, params: dict[str, Any], stamp: Stamp) -> Pixels:
    line = line_of(params, stamp)
    if not line:
        return picture
    height, width = picture.shape[:2]
    pad = 2 * params["scale"]
    box = np.pad(np.hstack([enlarged(sign, params["scale"]) for sign in line]), pad)
    left, top = params["x"], params["y"]
    if params["position"] != "xy":
        vertical, horizontal = params["position"].split("_")
        margin = params["margin"]
        left = margin if horizontal == "left" else width - margin - box.shape[1]
        top = margin if vertical == "top" else height - margin - box.shape[0]
    rows, columns = np.arange(height) - top, np.arange(width) - left
    in_rows, in_columns = (rows >= 0) & (rows < box.shape[0]), (columns >= 0) & (columns < box.shape[1])
    inside = in_rows[:, None] & in_columns
    cover = np.where(inside, box[rows.clip(0, box.shape[0] - 1)][:, columns.clip(0, box.shape[1] - 1)], 0)
    dark = np.where(inside, math.floor(256 * Fraction(params["box"]) + HALF), 0)
    red, green, blue = (int(params["color"][at : at + 2], 16) for at in (1, 3, 5))
    color: Any = np.array([blue, green, red])
    if picture.ndim == 2:
        color = (3735 * blue + 19235 * green + 9798 * red + 16384) // 32768
    else:
        cover, dark = cover[:, :, None], dark[:, :, None]
    below = (picture.astype(np.int64) * (256 - dark) + 128) // 256
    mixed: Pixels = ((below * (128 - cover) + color * cover + 64) // 128).astype(np.uint8)
    return mixed


TEXT_ORACLES: dict[str, TextOracle] = {"overlay_text": overlay_text}


def without_stamp(oracle: TextOracle) -> Oracle:
    """The same for a frame of which nothing is known."""
    return lambda picture, params: oracle(picture, params, NO_STAMP)


UNSTAMPED_ORACLES = {name: without_stamp(oracle) for name, oracle in TEXT_ORACLES.items()}
