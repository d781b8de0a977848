from __future__ import annotations

import math
import re
import time
from functools import lru_cache
from string import Formatter
from typing import Annotated, Literal

import cv2
import numpy as np
import numpy.typing as npt
from pydantic import AfterValidator, Field

from kernels.fonts import CELL_HEIGHT, CELL_WIDTH, FIRST, FULL, glyph_rows, glyphs
from kernels.image import MAX_SIDE_PX, Pixels, Stamp
from kernels.op import MAX_TEXT_BYTES, OpParams, Scratch, TextOp
from kernels.params import Color, bgr, fill_of, grey

PLACEHOLDERS = ("camera", "time", "sequence", "ms")
TIME_LETTERS = "aAbBcCdDeFgGhHIjmMprRSTuUVwWxXyYzZ%"

_BAND_PIXELS = 1 << 14  # times up to 13 bytes of intermediates: a band stays in the cache
_PAD = 2  # of the box around the text, times the scale

# More than a launch's parameters hold, so it lies in the module.
_FONT = "__device__ const uint32 overlay_text_font[] = {{{}}};\n".format(
    ",\n".join(", ".join(f"0x{row:08x}" for row in rows) for rows in glyph_rows())
)


def _checked_template(value: str) -> str:
    allowed = ", ".join(f"{{{name}}}" for name in PLACEHOLDERS)
    try:
        parts = list(Formatter().parse(value))
    except ValueError as error:
        raise ValueError(f"{error}; placeholders are {allowed}, and braces are written {{{{ and }}}}") from None
    for _, name, form, conversion in parts:
        if name is not None and (name not in PLACEHOLDERS or form or conversion):
            shown = name + (f"!{conversion}" if conversion else "") + (f":{form}" if form else "")
            raise ValueError(f"{{{shown}}} is no placeholder; there are {allowed}")
    return value


def _checked_time_format(value: str) -> str:
    for sign in re.findall("%.?", value, re.DOTALL):
        if sign[1:] not in TIME_LETTERS or len(sign) == 1:
            letters = " ".join(f"%{letter}" for letter in TIME_LETTERS)
            raise ValueError(f"{sign!r} is no part of a time; there are {letters}")
    if not (value.isascii() and value.isprintable()):
        raise ValueError("holds more than printable ASCII")
    return value


class OverlayTextParams(OpParams):
    text: Annotated[str, AfterValidator(_checked_template)] = Field(
        default="{camera}  {time}  #{sequence}", max_length=256,
        description="{camera} is the camera's name, {time} when the frame was taken, {ms} the milliseconds of that,"
        " {sequence} the frame's number. Up to 96 characters are shown, ? for what is no printable ASCII.",
        examples=["", "{{{sequence}}} {ms}", "{time}.{ms} gr\u00fcn ~" + 90 * "x"],
    )  # fmt: skip
    time_format: Annotated[str, AfterValidator(_checked_time_format)] = Field(
        default="%Y-%m-%d %H:%M:%S", max_length=64,
        description="How {time} is written, as strftime has it, in the machine's time zone.",
        examples=["%d.%m.%y %H.%M", "%j"],
    )  # fmt: skip
    position: Literal["top_left", "top_right", "bottom_left", "bottom_right", "xy"] = Field(
        default="top_left", description="The corner that the text lies in, margin away from both edges; or xy."
    )
    x: int = Field(
        default=0, ge=0, le=MAX_SIDE_PX, description="For position xy: where its left edge lies.",
        json_schema_extra={"x-unit": "px", "x-step": 1},
    )  # fmt: skip
    y: int = Field(
        default=0, ge=0, le=MAX_SIDE_PX, description="For position xy: where its upper edge lies.",
        json_schema_extra={"x-unit": "px", "x-step": 1},
    )  # fmt: skip
    margin: int = Field(
        default=8, ge=0, le=1024, description="For corners: from the box to the edges of the picture.",
        json_schema_extra={"x-unit": "px", "x-step": 1},
    )  # fmt: skip
    scale: int = Field(
        default=2, ge=1, le=8, description="A character is 8 pixels wide and 16 high, times this.",
        json_schema_extra={"x-unit": "", "x-step": 1},
    )  # fmt: skip
    color: Color = Field(default="#ffffff", description="Of the text; grey pictures show its luma.")
    box: float = Field(
        default=0.5, ge=0.0, le=1.0, description="How opaque the black box behind the text is: 0 is none.",
        json_schema_extra={"x-unit": "", "x-step": 0.05},
    )  # fmt: skip


class OverlayText(TextOp[OverlayTextParams]):
    """Writes the camera's name, the time and the frame's number into the picture, on a darkened box.

    The box makes v = (in·(256 − a) + 128) >> 8 with a = ⌊256·box + ½⌋; on it out = (v·(128 − c) + color·c + 64) >> 7,
    where c is how much of a pixel the glyph covers, in 1/128: the font's pixels (two bits each, DejaVu Sans Mono Bold)
    interpolated linearly, around one half as much steeper as they are enlarged, so that edges stay one pixel wide. Each
    is the operator "over" of Porter and Duff (Compositing digital images, 1984). What does not fit is cut off at the
    side away from the corner.
    """

    name = "overlay_text"
    Params = OverlayTextParams
    cuda_source = (
        _FONT
        + """
struct overlay_text_params {
  int x, y;  // from the edges of the corner to the box
  int right, bottom;
  int scale;
  int share;     // of the picture behind the box, in 1/256
  int color[4];  // blue, green, red and grey
};

constexpr int OVERLAY_TEXT_BYTES = 96;

// How much of pixel (x, y) of an enlarged glyph is covered, 0 to 128.
__device__ __forceinline__ int overlay_text_cover(int glyph, int x, int y, int scale) {
  const int unit = 2 * scale;  // of the font's pixels
  const int across = 2 * (2 * x + 1) + scale, down = 2 * (2 * y + 1) + scale;
  const int left = across / unit - 1, top = down / unit - 1;
  int sum = 0;
  for (int j = 0; j < 2; ++j) {
    if (top + j < 0 || top + j >= 32) continue;
    const uint32 row = overlay_text_font[32 * glyph + top + j];
    for (int i = 0; i < 2; ++i) {
      const int level = left + i < 0 || left + i >= 16 ? 0 : row >> 2 * (left + i) & 3;
      sum += level * (i ? across % unit : unit - across % unit) * (j ? down % unit : unit - down % unit);
    }
  }
  const int whole = 3 * unit * unit, steep = max(scale, 2);
  return clamp_to((128 * sum * steep - 64 * whole * (steep - 2) + whole) / (2 * whole), 0, 128);
}

template <int CHANNELS>
__device__ __forceinline__ void overlay_text(const Picture<CHANNELS>& in, int x, int y, Size size,
                                             const overlay_text_params& p, const uint8* text, uint8* out) {
  const uint8* from = in.at(x, y);
#pragma unroll
  for (int c = 0; c < CHANNELS; ++c) out[c] = from[c];
  const int width = 8 * p.scale, height = 16 * p.scale, pad = 2 * p.scale;
  const int row = (p.bottom ? size.height - 1 - y : y) - p.y, column = (p.right ? size.width - 1 - x : x) - p.x;
  if (row < 0 || row >= height + 2 * pad || column < 0) return;
  // The text comes from the corner on: on the right from its end.
  const int inside = max(column - 2 * pad, 0) / width;
  if (inside >= OVERLAY_TEXT_BYTES || text[inside] == 0) return;
  int cover = 0;
  const int place = column < pad ? OVERLAY_TEXT_BYTES : (column - pad) / width;
  if (place < OVERLAY_TEXT_BYTES && text[place] != 0 && row >= pad && row < height + pad) {
    const int across = (column - pad) % width, down = row - pad;
    cover = overlay_text_cover(text[place] - 32, p.right ? width - 1 - across : across,
                               p.bottom ? height - 1 - down : down, p.scale);
  }
#pragma unroll
  for (int c = 0; c < CHANNELS; ++c)
    out[c] = (((out[c] * p.share + 128) >> 8) * (128 - cover) + p.color[CHANNELS == 1 ? 3 : c] * cover + 64) >> 7;
}
"""
    )

    def text(self, params: OverlayTextParams, stamp: Stamp) -> bytes:
        line = _line(params, stamp)
        return line[::-1] if _is_right(params) else line

    def constants(self, params: OverlayTextParams) -> bytes:
        corner = params.position != "xy"
        x, y = (params.margin, params.margin) if corner else (params.x, params.y)
        color = (*bgr(params.color), grey(params.color))
        values = [x, y, _is_right(params), _is_bottom(params), params.scale, 256 - _opaque(params), *color]
        return np.array(values, np.int32).tobytes()

    def run_cpu(self, src: Pixels, dst: Pixels, params: OverlayTextParams, scratch: Scratch) -> None:
        np.copyto(dst, src)
        line = np.frombuffer(_line(params, scratch.stamp), np.uint8)
        if not len(line):
            return
        height, width = src.shape[:2]
        glyph_width, glyph_height, pad = 8 * params.scale, 16 * params.scale, _PAD * params.scale
        box_width, box_height = glyph_width * len(line) + 2 * pad, glyph_height + 2 * pad
        left, top = (params.x, params.y) if params.position == "xy" else (params.margin, params.margin)
        left = width - left - box_width if _is_right(params) else left
        top = height - top - box_height if _is_bottom(params) else top
        seen = dst[max(top, 0) : max(top + box_height, 0), max(left, 0) : max(left + box_width, 0)]
        if not seen.size:
            return
        cv2.LUT(seen, ((np.arange(256) * (256 - _opaque(params)) + 128) >> 8).astype(np.uint8), dst=seen)
        left, top = left + pad, top + pad
        first, end = max(-left, 0), min(width - left, glyph_width * len(line))
        if end <= first:
            return
        covers, color = _covers(params.scale), np.array(fill_of(params.color, src), np.uint16)
        added = (np.arange(256, dtype=np.uint16)[:, None] * color + 64)[None]
        band = max(1, _BAND_PIXELS // (end - first))
        bottom = min(height - top, glyph_height)
        for row in range(max(-top, 0), bottom, band):
            rows = slice(row, min(row + band, bottom))
            cover = covers[line - FIRST, rows].swapaxes(0, 1).reshape(rows.stop - row, -1)[:, first:end]
            below = dst[top + row : top + rows.stop, left + first : left + end]
            _blend(below, np.ascontiguousarray(cover), added)


def _blend(below: Pixels, cover: Pixels, added: npt.NDArray[np.uint16]) -> None:
    """``added`` is what a colour adds by each cover: (1, 256, C). All sums stay below 2^16."""
    if below.ndim == 3:
        cover = cv2.cvtColor(cover, cv2.COLOR_GRAY2BGR).astype(np.uint8, copy=False)
    total = below * (128 - cover).astype(np.uint16)
    total += cv2.LUT(cover, added).astype(np.uint16, copy=False)
    total >>= 7
    np.copyto(below, total, casting="unsafe")


def _line(params: OverlayTextParams, stamp: Stamp) -> bytes:
    second, rest = divmod(stamp.wall_ns, 1_000_000_000)
    clock = _clock(params.time_format, second)
    line = params.text.format(camera=stamp.camera, time=clock, sequence=stamp.sequence, ms=f"{rest // 1_000_000:03}")
    return re.sub("[^ -~]", "?", line[:MAX_TEXT_BYTES]).encode("ascii")


@lru_cache(maxsize=256)
def _clock(time_format: str, second: int) -> str:
    return time.strftime(time_format, time.localtime(second))


@lru_cache(maxsize=8)
def _covers(scale: int) -> Pixels:
    """(95, 16·scale, 8·scale) uint8: how much of each pixel of each glyph is covered, 0 to 128."""
    levels = np.pad(glyphs().astype(np.int64), ((0, 0), (1, 1), (1, 1)))
    unit, steep = 2 * scale, max(scale, 2)
    for axis, size in ((1, CELL_HEIGHT), (2, CELL_WIDTH)):
        place, second = np.divmod(2 * (2 * np.arange(size * scale // 2) + 1) + scale, unit)
        second = second[:, None] if axis == 1 else second
        levels = levels.take(place, axis) * (unit - second) + levels.take(place + 1, axis) * second
    whole = FULL * unit * unit
    covers = (128 * levels * steep - 64 * whole * (steep - 2) + whole) // (2 * whole)
    return covers.clip(0, 128).astype(np.uint8)


def _is_right(params: OverlayTextParams) -> bool:
    return params.position.endswith("_right")


def _is_bottom(params: OverlayTextParams) -> bool:
    return params.position.startswith("bottom_")


def _opaque(params: OverlayTextParams) -> int:
    return math.floor(256 * params.box + 0.5)
