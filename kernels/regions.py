"""Rectangles and polygons over a picture, in whole numbers: which pixels they cover, the same on CPU and GPU.

Places are in 1/65536: of the picture's sides (``fraction``), or of a pixel (``px``). A pixel is covered where its
centre is: in a rectangle from its left and top edge to before its right and bottom one, in a polygon by the even-odd
rule.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from kernels.image import MAX_SIDE_PX

ONE = 65536
MAX_RECTANGLES = 8
MAX_POLYGONS = 6
MAX_POINTS = 16

Unit = Literal["fraction", "px"]
Rectangle = tuple[float, ...]  # left, top, width, height
Polygon = tuple[tuple[float, ...], ...]  # points: x, y

# What ``constants`` has the layout of, and ``covers`` answers from.
CUDA = """
struct NAME_regions {
  int of_size;  // 1: places are fractions of the sides, 0: pixels; in 1/65536
  int rectangles;
  int rectangle[8][4];  // left, top, right, bottom
  int points[6];  // of each polygon; 0: none
  int point[6][16][2];
};

__device__ __forceinline__ bool NAME_covers(const NAME_regions& r, int column, int row, int width, int height) {
  const long long x = column * 65536LL + 32768, y = row * 65536LL + 32768;
  const int across = r.of_size ? width : 1, down = r.of_size ? height : 1;
  for (int i = 0; i < r.rectangles; ++i) {
    const int* at = r.rectangle[i];
    if (x >= (long long)at[0] * across && x < (long long)at[2] * across && y >= (long long)at[1] * down &&
        y < (long long)at[3] * down)
      return true;
  }
  for (int i = 0; i < 6; ++i) {
    const int points = r.points[i];
    bool inside = false;
    for (int k = 0; k < points; ++k) {
      const int* a = r.point[i][k];
      const int* b = r.point[i][k + 1 < points ? k + 1 : 0];
      if (a[1] > b[1]) {
        const int* upper = b;
        b = a;
        a = upper;
      }
      const long long top = (long long)a[1] * down, bottom = (long long)b[1] * down;
      if (y < top || y >= bottom) continue;
      const long long left = (long long)a[0] * across, slope = (long long)b[0] * across - left;
      // Below 2^61: places are at most 2^30.
      if ((y - top) * slope <= (x - left) * (bottom - top)) inside = !inside;
    }
    if (inside) return true;
  }
  return false;
}
"""


class Box(NamedTuple):
    """Pixels from ``left`` to before ``right``, rows from ``top`` to before ``bottom``."""

    top: int
    bottom: int
    left: int
    right: int


def constants(rectangles: Sequence[Rectangle], polygons: Sequence[Polygon], unit: Unit) -> npt.NDArray[np.int32]:
    """The regions as ``NAME_regions`` has them."""
    corners = np.zeros((MAX_RECTANGLES, 4), np.int32)
    counts = np.zeros(MAX_POLYGONS, np.int32)
    points = np.zeros((MAX_POLYGONS, MAX_POINTS, 2), np.int32)
    for i, rectangle in enumerate(rectangles):
        corners[i] = _corners(rectangle, unit)
    for i, polygon in enumerate(polygons):
        counts[i] = len(polygon)
        points[i, : len(polygon)] = [[_fixed(x), _fixed(y)] for x, y in polygon]
    head = np.array([unit == "fraction", len(rectangles)], np.int32)
    return np.concatenate([head, corners.ravel(), counts, points.ravel()])


def boxes(
    rectangles: Sequence[Rectangle], polygons: Sequence[Polygon], unit: Unit, width: int, height: int, rows: int
) -> tuple[Box, ...]:
    """The covered pixels as boxes that do not overlap, from top to bottom, none across a multiple of ``rows``."""
    across, down = (width, height) if unit == "fraction" else (1, 1)
    spans: list[list[tuple[int, int]]] = [[] for _ in range(height)]
    for rectangle in rectangles:
        left, top, right, bottom = _corners(rectangle, unit)
        span = (_first(left * across, width), _first(right * across, width))
        for y in range(_first(top * down, height), _first(bottom * down, height)):
            spans[y].append(span)
    for polygon in polygons:
        placed = [(_fixed(x) * across, _fixed(y) * down) for x, y in polygon]
        for y, crossings in _crossings(placed, width, height):
            spans[y] += zip(crossings[::2], crossings[1::2], strict=True)
    return tuple(_merged(spans, rows))


def _fixed(place: float) -> int:
    return math.floor(place * ONE + 0.5)


def _corners(rectangle: Rectangle, unit: Unit) -> tuple[int, int, int, int]:
    left, top, width, height = map(_fixed, rectangle)
    most = ONE if unit == "fraction" else MAX_SIDE_PX * ONE  # what lies beyond is outside of any picture
    return left, top, min(left + width, most), min(top + height, most)


def _first(place: int, size: int) -> int:
    """The first of ``size`` pixels whose centre is at or behind a place in 1/65536 px."""
    return min(max(-((ONE // 2 - place) // ONE), 0), size)


def _crossings(points: Sequence[tuple[int, int]], width: int, height: int) -> Iterator[tuple[int, list[int]]]:
    """For each row that a polygon crosses: the pixels from which on one is inside, outside, inside …, in order."""
    found: dict[int, list[int]] = {}
    for a, b in zip(points, (*points[1:], points[0]), strict=True):
        (left, top), (end, bottom) = sorted((a, b), key=lambda point: point[1])
        rows = np.arange(_first(top, height), _first(bottom, height), dtype=np.int64)
        if len(rows) == 0:
            continue
        tall = bottom - top
        # The first centre at or behind left + (y − top)·(end − left) / tall: whole numbers below 2^62.
        behind = (left - ONE // 2) * tall + (rows * ONE + ONE // 2 - top) * (end - left)
        columns = np.clip(-(-behind // (ONE * tall)), 0, width)
        for y, x in zip(rows.tolist(), columns.tolist(), strict=True):
            found.setdefault(y, []).append(x)
    for y, crossings in found.items():
        yield y, sorted(crossings)


def _merged(spans: Sequence[list[tuple[int, int]]], rows: int) -> Iterator[Box]:
    """Unions of each row's spans; rows that are alike become one box."""
    top, before = 0, [(0, 0)][:0]
    for y in range(len(spans) + 1):
        union: list[tuple[int, int]] = []
        for left, right in sorted(spans[y]) if y < len(spans) else ():
            if union and left <= union[-1][1]:
                union[-1] = union[-1][0], max(union[-1][1], right)
            elif left < right:
                union.append((left, right))
        if union != before or y % rows == 0 or y == len(spans):
            yield from (Box(top, y, left, right) for left, right in before)
            top, before = y, union
