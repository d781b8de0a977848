"""The font of what is written into pictures: ASCII in cells of 16x32 pixels and four levels of grey.

It comes from DejaVu Sans Mono Bold (see ``LICENSE`` beside this file), by :mod:`kernels.fonts.make`.
"""

from __future__ import annotations

from functools import cache
from importlib import resources

import numpy as np

from kernels.image import Pixels

FIRST, LAST = 32, 126  # the codes that have a glyph: space to tilde
CELL_WIDTH, CELL_HEIGHT = 16, 32
FULL = 3  # the level of a pixel that a glyph covers


@cache
def glyphs() -> Pixels:
    """(95, 32, 16) uint8, read-only: the level of each pixel of each glyph, 0 to ``FULL``."""
    words = glyph_rows()
    levels = np.array([[[word >> 2 * x & 3 for x in range(CELL_WIDTH)] for word in rows] for rows in words], np.uint8)
    levels.flags.writeable = False
    return levels


@cache
def glyph_rows() -> tuple[tuple[int, ...], ...]:
    """The rows of each glyph as 32-bit words, two bits a pixel, the leftmost in the lowest."""
    lines = resources.files(__name__).joinpath("mono_16x32.txt").read_text(encoding="ascii").splitlines()
    return tuple(tuple(int(line[i : i + 8], 16) for i in range(0, 8 * CELL_HEIGHT, 8)) for line in lines)
