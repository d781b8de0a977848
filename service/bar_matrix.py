"""A table of bars as a picture, SVG or PNG: a row for each way, a column for each size, in each cell a bar and figures.

Laid out once, in CSS pixels, for a font of eight pixels a character; both writers draw the same shapes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal
from xml.sax.saxutils import escape

import cv2
import numpy as np

from kernels.fonts import CELL_HEIGHT, CELL_WIDTH, FIRST, FULL, LAST, glyphs
from kernels.image import Pixels

Role = Literal["track", "bar", "baseline", "best", "title", "head", "label", "value", "note"]

CHARACTER, LINE, BAR, BAR_WIDTH, GAP = 8, 22, 12, 96, 8  # CSS pixels
PNG_SCALE = 2
FILLS: dict[str, str] = {"track": "#e8ecf1", "bar": "#8bb8ec", "baseline": "#e08a2e", "best": "#3b8f3e"}
DARK_FILLS: dict[str, str] = {"track": "#333a42", "bar": "#4f7fb8", "baseline": "#c9792a", "best": "#5cb860"}
# What the font of the PNG has no glyph for.
_ASCII = str.maketrans({"µ": "u", "→": "->", "−": "-", "×": "x", "…": "...", "–": "-", "’": "'", "·": "|"})


@dataclass(frozen=True, slots=True)
class Cell:
    """``value`` is the bar's length in the column's unit, ``text`` what stands beside it."""

    value: float
    text: str
    role: Role = "bar"


@dataclass(frozen=True, slots=True)
class Panel:
    """Rows that are compared. ``scales``: for each column the value of a full bar; longer ones are cut."""

    title: str
    columns: tuple[str, ...]
    scales: tuple[float, ...]
    rows: tuple[tuple[str, tuple[Cell | None, ...]], ...]


@dataclass(frozen=True, slots=True)
class Shape:
    """A rectangle (``text`` ""), or a text whose baseline starts at (x, y)."""

    role: Role
    x: float
    y: float
    width: float = 0.0
    height: float = 0.0
    text: str = ""


@dataclass(frozen=True, slots=True)
class Picture:
    width: int
    height: int
    shapes: tuple[Shape, ...]


def draw(title: str, panels: Sequence[Panel], notes: Sequence[str] = ()) -> Picture:
    """Panels one below the other, columns in line."""
    rows = [row for panel in panels for row in panel.rows]
    labels = CHARACTER * max([len(label) for label, _ in rows] + [10]) + 3 * GAP
    texts = [len(cell.text) for _, cells in rows for cell in cells if cell is not None]
    cell_width = BAR_WIDTH + CHARACTER * max([*texts, 8]) + 4 * GAP
    columns = max((len(panel.columns) for panel in panels), default=1)
    longest = max([len(text) for text in (title, *notes, *(panel.title for panel in panels))])
    width = max(labels + columns * cell_width, CHARACTER * longest + 4 * GAP)
    shapes = [Shape("title", GAP, 26, text=title)]
    y = 26 + LINE
    for note in notes:
        shapes.append(Shape("note", GAP, y, text=note))
        y += LINE
    for panel in panels:
        y += LINE // 2
        shapes.append(Shape("head", GAP, y, text=panel.title))
        shapes += [
            Shape("head", labels + i * cell_width, y + LINE, text=column) for i, column in enumerate(panel.columns)
        ]
        y += 2 * LINE
        for label, cells in panel.rows:
            shapes.append(Shape("label", 2 * GAP, y, text=label))
            for i, cell in enumerate(cells):
                if cell is not None:
                    shapes += _cell(cell, labels + i * cell_width, y, panel.scales[i])
            y += LINE
    return Picture(width, y + GAP, tuple(shapes))


def _cell(cell: Cell, x: int, y: int, scale: float) -> Iterator[Shape]:
    share = min(cell.value / scale, 1.0) if scale > 0 else 0.0
    yield Shape("track", x, y - BAR + 2, BAR_WIDTH, BAR)
    yield Shape(cell.role, x, y - BAR + 2, max(share * BAR_WIDTH, 1.0), BAR)
    yield Shape("value", x + BAR_WIDTH + GAP, y, text=cell.text)


def to_svg(picture: Picture) -> str:
    """Text that needs nothing else, for light and dark pages."""
    parts = []
    for one in picture.shapes:
        if one.text:
            parts.append(f'<text class="{one.role}" x="{one.x:g}" y="{one.y:g}">{escape(one.text)}</text>')
        else:
            place = f'x="{one.x:g}" y="{one.y:g}" width="{one.width:.1f}" height="{one.height:g}"'
            parts.append(f'<rect class="{one.role}" {place}/>')
    size = f'width="{picture.width}" height="{picture.height}" viewBox="0 0 {picture.width} {picture.height}"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size}>\n<style>'
        "svg{background:#fff}text{font:13px sans-serif;fill:#222}.title{font-size:17px;font-weight:bold}"
        ".head{font-weight:bold}.note{fill:#666}"
        f"{_fills(FILLS)}@media(prefers-color-scheme:dark){{svg{{background:#181818}}text{{fill:#ddd}}"
        f".note{{fill:#aaa}}{_fills(DARK_FILLS)}}}</style>\n" + "\n".join(parts) + "\n</svg>\n"
    )


def _fills(fills: dict[str, str]) -> str:
    return "".join(f"rect.{role}{{fill:{color}}}" for role, color in fills.items())


def to_png(picture: Picture) -> bytes:
    """The same at twice the size, on white."""
    pixels = np.full((picture.height * PNG_SCALE, picture.width * PNG_SCALE, 3), 255, np.uint8)
    for one in picture.shapes:
        x, y = round(one.x * PNG_SCALE), round(one.y * PNG_SCALE)
        if one.text:
            _write(pixels, one.text, x, y, (0x66 if one.role == "note" else 0x22))
        else:
            right, bottom = x + max(round(one.width * PNG_SCALE), 1), y + round(one.height * PNG_SCALE)
            pixels[y:bottom, x:right] = tuple(bytes.fromhex(FILLS[one.role][1:])[::-1])
    return bytes(cv2.imencode(".png", pixels)[1])


def _write(pixels: Pixels, text: str, x: int, y: int, ink: int) -> None:
    """``text`` with its baseline at ``y``; what the font does not have is a question mark."""
    codes = [ord(c) if FIRST <= ord(c) <= LAST else ord("?") for c in text.translate(_ASCII)]
    cover = np.concatenate([glyphs()[code - FIRST] for code in codes], axis=1)[:, :, None].astype(np.uint16)
    top = y - CELL_HEIGHT * 3 // 4
    below = pixels[top : top + CELL_HEIGHT, x : x + len(codes) * CELL_WIDTH]
    cover = cover[: below.shape[0], : below.shape[1]]
    below[:] = (below * (FULL - cover) + ink * cover) // FULL
