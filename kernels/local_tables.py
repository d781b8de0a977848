"""Counting values on the CPU, in a whole picture and in regions of it, and tables of regions with what lies between.

A region's table holds at its middle. Between the middles of four a pixel gets what their tables make of it, by shares
in 1/256 across and in 1/32768 down, which is what 16 and 32 bits hold: the same as in kernels/cuda/local.cuh.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt

from kernels.image import Pixels

MAX_GRID = 16  # regions across and down
_SHARES = (256, 32768)  # across, down
_BAND_PX = 1 << 15  # times 14 bytes of intermediates: a band stays in the L2 cache

Counts = npt.NDArray[np.int64]
MakeArray = Callable[[str, tuple[int, ...], npt.DTypeLike], npt.NDArray[Any]]


def histogram(picture: Pixels) -> Counts:
    """(C, 256): how often each value comes in each channel of (H, W) or (H, W, 3)."""
    channels = 1 if picture.ndim == 2 else picture.shape[2]
    counts = np.zeros((channels, 256), np.int64)
    # OpenCV counts in 32-bit floats, which hold every whole number up to 2^24.
    rows = max(1, (1 << 24) // picture.shape[1])
    for top in range(0, picture.shape[0], rows):
        for channel in range(channels):
            found = cv2.calcHist([picture[top : top + rows]], [channel], None, [256], [0, 256])
            counts[channel] += found.ravel().astype(np.int64)  # (256, 1), or (256,) from OpenCV 5 on
    return counts


class Regions:
    """A grid of equal regions over a picture, row by row.

    Where both sides are multiples of the grid's they are cut evenly. Else regions are a pixel wider and higher than the
    whole part, and reach beyond the picture, where its reflection (101) is counted: as ``cv2.createCLAHE`` has it.
    """

    def __init__(self, width: int, height: int, across: int, down: int) -> None:
        more = width % across != 0 or height % down != 0
        self.size = width, height
        self.grid = across, down
        self.region_size = width // across + more, height // down + more

    def histograms(self, brightness: Pixels) -> Counts:
        """(R, 256) of an (H, W) picture."""
        columns, rows = (self._parts(axis) for axis in (0, 1))
        return np.array([_counted(brightness, *row, *column) for row, column in product(rows, columns)])

    def _parts(self, axis: int) -> list[tuple[slice, npt.NDArray[np.intp]]]:
        """For each region along an axis: where it lies in the picture, and what is reflected into it."""
        length, part = self.size[axis], self.region_size[axis]
        found = []
        for number in range(self.grid[axis]):
            first, end = number * part, (number + 1) * part
            outside = np.arange(max(first, length), end) % max(2 * (length - 1), 1)
            found.append((slice(min(first, length), min(end, length)), np.minimum(outside, 2 * (length - 1) - outside)))
        return found

    def cells(self, axis: int) -> Iterator[tuple[slice, int, int, npt.NDArray[np.uint32]]]:
        """Along an axis: pixels between the same two middles, the two regions, and the second's share."""
        length, part = self.size[axis], self.region_size[axis]
        from_first = (
            2 * np.arange(length, dtype=np.int64) + part
        )  # in half pixels, from half a region before the picture
        below, rest = from_first // (2 * part), from_first % (2 * part)
        shares = ((_SHARES[axis] * rest + part) // (2 * part)).astype(np.uint32)
        for number in range(int(below[0]), int(below[-1]) + 1):
            first, end = np.searchsorted(below, [number, number + 1])
            most = self.grid[axis] - 1
            yield slice(int(first), int(end)), max(number - 1, 0), min(number, most), shares[first:end]


def _counted(
    picture: Pixels, rows: slice, other_rows: npt.NDArray[np.intp], columns: slice, other_columns: npt.NDArray[np.intp]
) -> Counts:
    parts = [picture[rows, columns], picture[rows][:, other_columns], picture[other_rows][:, columns]]
    parts.append(picture[np.ix_(other_rows, other_columns)])
    counts: Counts = sum((histogram(part)[0] for part in parts if part.size), np.zeros(256, np.int64))
    return counts


def look_up_between(
    regions: Regions, src: Pixels, brightness: Pixels, tables: Pixels, dst: Pixels, make_array: MakeArray
) -> None:
    """``src`` with each pixel's brightness looked up in the (R, 256) tables around it, in ``dst``.

    (H, W), which is its own brightness, or (H, W, 3), whose channels are all moved as far as the brightness.
    """
    across = regions.grid[0]
    wide = tables.astype(np.uint32)
    columns = list(regions.cells(0))
    for rows, upper, lower, down_shares in regions.cells(1):
        # Of two tables below each other: the lower one's values in the upper half of a word.
        pairs = wide[upper * across : (upper + 1) * across] | wide[lower * across : (lower + 1) * across] << 16
        for column, left, right, shares in columns:
            more = pairs[right] - pairs[left]  # wraps around, as does what it is added to
            band_rows = max(1, _BAND_PX // len(shares))
            for top in range(rows.start, rows.stop, band_rows):
                band = slice(top, min(top + band_rows, rows.stop))
                down = down_shares[top - rows.start : band.stop - rows.start, None]
                seen = brightness[band, column]
                made = _between(seen, pairs[left], more, shares, down, make_array)
                if src.ndim == 2:
                    dst[band, column] = made
                else:
                    _move(src[band, column], seen, made, dst[band, column], make_array)


def _between(
    seen: Pixels,
    pairs: npt.NDArray[np.uint32],
    more: npt.NDArray[np.uint32],
    across: npt.NDArray[np.uint32],
    down: npt.NDArray[np.uint32],
    make_array: MakeArray,
) -> Pixels:
    """One band of one cell, in scratch memory: a·(256 − share) + b·share is 256·a + (b − a)·share, modulo 2^32.

    Rows likewise.
    """
    both, other = (make_array(name, seen.shape, np.int32) for name in ("both", "other"))
    # What rounds in the end, half a unit, is 128/256 in each of both halves here.
    cv2.LUT(seen, (256 * pairs + (128 << 16 | 128)).view(np.int32)[None], dst=both)
    cv2.LUT(seen, more.view(np.int32)[None], dst=other)
    both, other = both.view(np.uint32), other.view(np.uint32)
    np.multiply(other, across, out=other)
    np.add(both, other, out=both)
    np.right_shift(both, 16, out=other)
    np.bitwise_and(both, 0xFFFF, out=both)
    np.subtract(other, both, out=other)
    np.multiply(other, down, out=other)
    np.left_shift(both, 15, out=both)
    np.add(both, other, out=both)
    np.right_shift(both, 23, out=both)
    made = make_array("made", seen.shape, np.uint8)
    np.copyto(made, both, casting="unsafe")
    return made


def _move(src: Pixels, before: Pixels, after: Pixels, dst: Pixels, make_array: MakeArray) -> None:
    """Add to all channels what brightness has gained, saturating."""
    by = make_array("by", before.shape, np.uint8)
    by_all = make_array("by all", src.shape, np.uint8)
    cv2.cvtColor(cv2.subtract(after, before, dst=by), cv2.COLOR_GRAY2BGR, dst=by_all)
    moved = cv2.add(src, by_all, dst=make_array("moved", src.shape, np.uint8))
    cv2.cvtColor(cv2.subtract(before, after, dst=by), cv2.COLOR_GRAY2BGR, dst=by_all)
    dst[...] = cv2.subtract(moved, by_all, dst=moved)
