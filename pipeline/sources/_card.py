"""Draws the test card: pixels from (sequence, wall clock) alone, straight into native planes. No pacing here.

From top to bottom: EBU bars (white at 100 %, then yellow, cyan, green, magenta, red, blue and black at 75 %) over the
whole picture; a square that bounces between the two codes; the wall clock (UTC) in the middle; and the sequence code
near the top and again near the bottom, so that a torn frame shows two numbers.

The code is 40 bits: 10110010, then the sequence number as 32 bits, most significant first; black 0, white 1; two rows
of 20 squares of 16x16 px, bit i of the first row at x = 16 + 16 i, y = 16, the second row at y = 32; the same two rows
again at y = height − 48 and height − 32.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kernels.errors import InputError
from kernels.formats import BGR8, BGR16, GRAY8, LEVEL, NV12, RGB8, UYVY, YUYV, Matrix, Range
from kernels.image import MAX_SIDE_PX, VALUE_TYPES, ImageSpec, ImageView, Pixels, Values

MIN_WIDTH_PX, MIN_HEIGHT_PX = 352, 128
CODE_PREFIX = 0b10110010
CODE_COLUMNS, CODE_ROWS = 20, 2
SQUARE_PX = 16
CODE_X = CODE_Y = 16

_MARGIN_PX = 4  # black around the codes; even, so that chroma samples are never shared with the bars
_STRIP_TOP = CODE_Y + CODE_ROWS * SQUARE_PX + _MARGIN_PX
_FREE_ROWS = 2 * _STRIP_TOP

_WHITE, _BLACK, _ORANGE = (255, 255, 255), (0, 0, 0), (0, 120, 255)
_BARS = (_WHITE, (0, 191, 191), (191, 191, 0), (0, 191, 0), (191, 0, 191), (0, 0, 191), (191, 0, 0), _BLACK)  # BGR

# A 5x7 font, one number a row, the leftmost pixel in bit 4.
_FONT = {
    "0": (14, 17, 19, 21, 25, 17, 14), "1": (4, 12, 4, 4, 4, 4, 14), "2": (14, 17, 1, 2, 4, 8, 31),
    "3": (31, 2, 4, 2, 1, 17, 14), "4": (2, 6, 10, 18, 31, 2, 2), "5": (31, 16, 30, 1, 1, 17, 14),
    "6": (6, 8, 16, 30, 17, 17, 14), "7": (31, 1, 2, 4, 8, 8, 8), "8": (14, 17, 17, 14, 17, 17, 14),
    "9": (14, 17, 17, 15, 1, 2, 12), ":": (0, 12, 12, 0, 12, 12, 0), ".": (0, 0, 0, 0, 0, 12, 12),
    " ": (0, 0, 0, 0, 0, 0, 0), "U": (17, 17, 17, 17, 17, 17, 14), "T": (31, 4, 4, 4, 4, 4, 4),
    "C": (14, 17, 16, 16, 16, 17, 14),
}  # fmt: skip
_GLYPH_ROWS, _GLYPH_COLUMNS = 7, 6  # the sixth column is the gap
_GLYPHS: dict[str, Pixels] = {
    char: np.array([[row >> (4 - x) & 1 if x < 5 else 0 for x in range(_GLYPH_COLUMNS)] for row in rows], np.uint8)
    for char, rows in _FONT.items()
}
_CLOCK_CHARS = len("HH:MM:SS.mmm UTC")


@dataclass(frozen=True, slots=True)
class _Rect:
    x: int
    y: int
    width: int
    height: int


class Card:
    """The test card of one format and size. Keeps only small buffers; one thread at a time.

    Raises:
        InputError: smaller than 352x128.
    """

    def __init__(self, spec: ImageSpec) -> None:
        if spec.width < MIN_WIDTH_PX or spec.height < MIN_HEIGHT_PX:
            raise InputError("size", f"{spec.width}x{spec.height} cannot hold the sequence codes", ALLOWED_SIZES)
        self.spec = spec
        grey_limits = (16, 235) if spec.format.is_yuv and spec.range is Range.LIMITED else (0, 255)
        self._kind, level = VALUE_TYPES[spec.format.depth], LEVEL[spec.format.depth]
        self._levels = np.array([limit * level for limit in grey_limits], self._kind)  # black, white as luma
        self._bars = self._bar_rows()
        self._black, self._white, self._orange = (self._groups(c) for c in (_BLACK, _WHITE, _ORANGE))
        width, height = spec.width, spec.height
        self._code_patch = np.empty((CODE_ROWS, SQUARE_PX, CODE_COLUMNS, SQUARE_PX), self._kind)
        code_width = CODE_COLUMNS * SQUARE_PX + 2 * _MARGIN_PX
        code_height = CODE_ROWS * SQUARE_PX + 2 * _MARGIN_PX
        bottom = height - SQUARE_PX - CODE_ROWS * SQUARE_PX
        self._code_tops = (CODE_Y, bottom)
        self._code_boxes = [
            _Rect(CODE_X - _MARGIN_PX, _even(top - _MARGIN_PX), code_width, code_height + top % 2 * 2)
            for top in self._code_tops
        ]
        scale = min(max(2, min(width // 192, (height - _FREE_ROWS) // 11)), 64)
        self._clock_patch = np.empty((_GLYPH_ROWS, scale, _GLYPH_COLUMNS * _CLOCK_CHARS, scale), self._kind)
        text_width, text_height = _GLYPH_COLUMNS * _CLOCK_CHARS * scale, _GLYPH_ROWS * scale
        box_width, box_height = _even(text_width + 2 * scale + 1), _even(text_height + 2 * scale + 1)
        self._clock_box = _Rect(
            _even((width - box_width) // 2), _even((height - box_height) // 2), box_width, box_height
        )
        self._clock_at = (
            self._clock_box.x + (box_width - text_width) // 2, self._clock_box.y + (box_height - text_height) // 2,
        )  # fmt: skip
        # As high as the gap of the smallest card, so that it shows above and below the clock.
        self._square = _even(max(24, min(width, height) // 8))

    def draw(self, view: ImageView, sequence: int, clock_ns: int = 0) -> None:
        """Write every pixel of ``view`` (its padding left alone); the same arguments always give the same bytes.

        ``clock_ns`` is the instant the clock shows, nanoseconds since 1970. Strides may differ from ``spec``'s.
        """
        for plane, rows in zip(view.planes, self._bars, strict=True):
            np.copyto(plane, rows)
        self._draw_square(view, sequence)
        self._draw_clock(view, clock_ns)
        self._draw_codes(view, sequence)

    def _draw_square(self, view: ImageView, sequence: int) -> None:
        side = self._square
        x_range = _even(self.spec.width - side)
        y_range = _even(self.spec.height - _FREE_ROWS - side)
        x = _bounce(sequence * _even(max(2, self.spec.width // 128)), x_range)
        y = _STRIP_TOP + _bounce(sequence * _even(max(2, self.spec.height // 180)), y_range)
        rim = _even(max(2, side // 8))
        self._fill(view, _Rect(x, y, side, side), self._white)
        self._fill(view, _Rect(x + rim, y + rim, side - 2 * rim, side - 2 * rim), self._orange)

    def _draw_clock(self, view: ImageView, clock_ns: int) -> None:
        self._fill(view, self._clock_box, self._black)
        bits = np.concatenate([_GLYPHS[char] for char in clock_text(clock_ns)], axis=1)
        self._clock_patch[...] = self._levels[bits][:, None, :, None]
        self._grey(view, self._clock_at, self._clock_patch)

    def _draw_codes(self, view: ImageView, sequence: int) -> None:
        self._code_patch[...] = self._levels[code_bits(sequence)][:, None, :, None]
        for box, top in zip(self._code_boxes, self._code_tops, strict=True):
            self._fill(view, box, self._black)
            self._grey(view, (CODE_X, top), self._code_patch)

    def _grey(self, view: ImageView, at: tuple[int, int], patch: Values) -> None:
        """Put luma where the chroma already is neutral; ``patch`` is (rows, scale, columns, scale)."""
        values = patch.reshape(patch.shape[0] * patch.shape[1], -1)
        rows, columns = slice(at[1], at[1] + values.shape[0]), slice(at[0], at[0] + values.shape[1])
        plane = view.plane(0)
        if self.spec.format in (BGR8, RGB8, BGR16):
            plane[rows, columns] = values[:, :, None]
        elif self.spec.format in (YUYV, UYVY):
            first_luma = 0 if self.spec.format is YUYV else 1
            plane.reshape(plane.shape[0], -1)[rows, first_luma::2][:, columns] = values
        else:
            plane[rows, columns] = values

    def _fill(self, view: ImageView, rect: _Rect, groups: list[Values]) -> None:
        """Fill a rectangle with even corners, clipped to the picture, with one colour's groups, plane by plane."""
        layouts = self.spec.format.planes
        for layout, plane, group in zip(layouts, view.planes, groups, strict=True):
            y, x = rect.y // layout.y_step, rect.x // layout.x_step
            plane[y : y + rect.height // layout.y_step, x : x + rect.width // layout.x_step] = group

    def _bar_rows(self) -> list[Values]:
        """One row of bars for each plane, which serves every row: small enough to stay in the cache."""
        edges = [_even(self.spec.width * i // len(_BARS)) for i in range(len(_BARS))] + [self.spec.width]
        rows = []
        for index, layout in enumerate(self.spec.format.planes):
            row = np.empty((1, *self.spec.plane_shape(index)[1:]), self._kind)
            for left, right, colour in zip(edges[:-1], edges[1:], _BARS, strict=True):
                row[:, left // layout.x_step : layout.groups(right)] = self._groups(colour)[index]
            rows.append(row)
        return rows

    def _groups(self, bgr: tuple[int, int, int]) -> list[Values]:
        """A colour as one group for each plane (a single value as a 0-d array)."""
        format = self.spec.format
        if format.depth == 16:
            eight = np.array(bgr if format is BGR16 else yuv_of(bgr, Matrix.BT601, Range.FULL)[0], np.uint16)
            return [eight * np.uint16(LEVEL[16])]
        if format is BGR8:
            return [np.array(bgr, np.uint8)]
        if format is RGB8:
            return [np.array(bgr[::-1], np.uint8)]
        if format is GRAY8:
            return [np.array(yuv_of(bgr, Matrix.BT601, Range.FULL)[0], np.uint8)]
        y, u, v = yuv_of(bgr, self.spec.matrix, self.spec.range)
        if format is YUYV:
            return [np.array((y, u, y, v), np.uint8)]
        if format is UYVY:
            return [np.array((u, y, v, y), np.uint8)]
        chroma = [np.array((u, v), np.uint8)] if format is NV12 else [np.array(u, np.uint8), np.array(v, np.uint8)]
        return [np.array(y, np.uint8), *chroma]


ALLOWED_SIZES = f"{MIN_WIDTH_PX}x{MIN_HEIGHT_PX} to {MAX_SIDE_PX}x{MAX_SIDE_PX} px"


def code_bits(sequence: int) -> Pixels:
    """(2, 20) uint8 of 0 and 1: the prefix and the low 32 bits of ``sequence``, most significant first."""
    word = CODE_PREFIX << 32 | sequence & 0xFFFFFFFF
    bits = np.unpackbits(np.frombuffer(word.to_bytes(5, "big"), np.uint8))
    return bits.reshape(CODE_ROWS, CODE_COLUMNS)


def clock_text(clock_ns: int) -> str:
    """``HH:MM:SS.mmm UTC`` of nanoseconds since 1970, milliseconds rounded down."""
    seconds, ns = divmod(clock_ns, 1_000_000_000)
    return f"{seconds // 3600 % 24:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}.{ns // 1_000_000:03d} UTC"


def yuv_of(bgr: tuple[int, int, int], matrix: Matrix, value_range: Range) -> tuple[int, int, int]:
    """Y, U, V of a colour, rounded to codes (ITU-R BT.601-7, BT.709-6)."""
    blue, green, red = (c / 255 for c in bgr)
    kr, kb = {Matrix.BT601: (0.299, 0.114), Matrix.BT709: (0.2126, 0.0722)}[matrix]
    luma = kr * red + (1 - kr - kb) * green + kb * blue
    u, v = (blue - luma) / (2 * (1 - kb)), (red - luma) / (2 * (1 - kr))
    offset, y_span, c_span = (16, 219, 224) if value_range is Range.LIMITED else (0, 255, 255)
    return round(offset + y_span * luma), min(round(128 + c_span * u), 255), min(round(128 + c_span * v), 255)


def _even(value: int) -> int:
    return value & ~1


def _bounce(distance: int, span: int) -> int:
    """A position that moves to and fro in 0..span (even) as ``distance`` (even) grows."""
    if span <= 0:
        return 0
    position = distance % (2 * span)
    return position if position <= span else 2 * span - position
