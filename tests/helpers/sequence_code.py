"""Reads the sequence code of a test card out of a decoded picture: the tests' own reading of the issue's text."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

PREFIX = (1, 0, 1, 1, 0, 0, 1, 0)
COLUMNS = 20
SQUARE_PX = 16
MIN_CONTRAST = 48.0  # levels between a 0 and a 1 square, on average


def read_codes(
    picture: npt.NDArray[Any], scale: float = 1.0, *, source_height: int | None = None
) -> tuple[int | None, int | None]:
    """The (top, bottom) sequence numbers in a picture; None for one that is not clearly there.

    ``picture`` is (H, W) or (H, W, 3) uint8, as decoded from a JPEG or a video. ``scale`` is its width over the card's
    (``width=640`` of a 1280 px card: 0.5); ``source_height`` the card's height where H / scale does not round to it.
    A code is there if the inner half of each of its squares is uniformly dark or bright and the prefix is right.
    """
    grey = picture.astype(np.float64)
    if grey.ndim == 3:
        grey = grey.mean(axis=2)
    height = source_height or round(grey.shape[0] / scale)
    y_scale = grey.shape[0] / height
    return _read(grey, 16, scale, y_scale), _read(grey, height - 48, scale, y_scale)


def _read(grey: npt.NDArray[np.float64], top: int, x_scale: float, y_scale: float) -> int | None:
    means, spreads = [], []
    for row in range(2):
        for column in range(COLUMNS):
            x, y = 16 + SQUARE_PX * column, top + SQUARE_PX * row
            inner = _inner(grey, y, y_scale, x, x_scale)
            if inner is None:
                return None
            means.append(float(inner.mean()))
            spreads.append(float(inner.max() - inner.min()))
    # The prefix has both values in it: they are the levels of black and white after whatever the chain did.
    dark = [m for m, bit in zip(means, PREFIX, strict=False) if bit == 0]
    bright = [m for m, bit in zip(means, PREFIX, strict=False) if bit == 1]
    contrast = min(bright) - max(dark)
    if contrast < MIN_CONTRAST or max(spreads) > contrast * 0.75:
        return None
    low, high = sum(dark) / len(dark), sum(bright) / len(bright)
    value = 0
    for mean in means[len(PREFIX) :]:
        level = (mean - low) / (high - low)
        if 0.3 < level < 0.7:
            return None
        value = value << 1 | (level >= 0.5)
    return value


def _inner(
    grey: npt.NDArray[np.float64], y: int, y_scale: float, x: int, x_scale: float
) -> npt.NDArray[np.float64] | None:
    """The middle half of a square at card position (x, y); None where the picture does not reach."""
    rows, columns = _middle(y, y_scale), _middle(x, x_scale)
    if rows.start < 0 or rows.stop > grey.shape[0] or columns.stop > grey.shape[1]:
        return None
    return grey[rows, columns]


def _middle(start: int, scale: float) -> slice:
    first = round((start + SQUARE_PX / 4) * scale)
    return slice(first, max(round((start + SQUARE_PX * 3 / 4) * scale), first + 1))
