"""The picture that stands where a camera has none: plainly not a camera's, and saying why."""

from __future__ import annotations

import textwrap

import cv2
import numpy as np

from kernels.image import Pixels

DEFAULT_SIZE = (640, 360)
MIN_TEXT_WIDTH_PX = 96  # below that a text is no longer legible, and only the hatching says it

_FONT = cv2.FONT_HERSHEY_SIMPLEX
_BACK, _HATCH, _TEXT, _HEAD = (40, 36, 32), (58, 52, 46), (215, 215, 215), (80, 170, 255)
_STALE = (60, 80, 230)


def draw_placeholder(camera: str, reason: str, size: tuple[int, int]) -> Pixels:
    """A hatched picture of ``size`` (width, height) that says NO PICTURE, which camera and why: (H, W, 3) BGR."""
    width, height = size
    picture = np.empty((height, width, 3), np.uint8)
    picture[:] = _BACK
    step = max(16, width // 24)
    for x in range(-height, width, step):
        cv2.line(picture, (x, height), (x + height, 0), _HATCH, max(1, step // 6), cv2.LINE_AA)
    if width < MIN_TEXT_WIDTH_PX:
        return picture
    scale = max(0.3, min(width / 800, height / 360))
    letter_px = 19 * scale  # about the mean advance of the font at scale 1
    lines = [("NO PICTURE", _HEAD), (camera, _TEXT)]
    columns = max(8, int(width * 0.9 / letter_px))
    lines += [(line, _TEXT) for line in textwrap.wrap(printable(reason), columns)[:6]]
    line_px = int(42 * scale) + 2
    y = max(line_px, (height - line_px * (len(lines) - 1)) // 2)
    for text, colour in lines:
        cv2.putText(picture, text, (int(width * 0.05), y), _FONT, scale, colour, max(1, round(2 * scale)), cv2.LINE_AA)
        y += line_px
    return picture


def mark_stale(data: bytes, reason: str) -> bytes:
    """The JPEG ``data`` with a band across its lower edge that says it is not live; as it is where it is tiny."""
    picture = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR)
    if picture is None or picture.shape[1] < MIN_TEXT_WIDTH_PX:
        return data
    draw_stale(np.asarray(picture, np.uint8), reason)
    marked: bytes = cv2.imencode(".jpg", picture, (cv2.IMWRITE_JPEG_QUALITY, 90))[1].tobytes()
    return marked


def draw_stale(picture: Pixels, reason: str) -> None:
    """Draw that band on ``picture``, (H, W, 3) BGR; nothing where it is tiny."""
    height, width = picture.shape[:2]
    if width < MIN_TEXT_WIDTH_PX:
        return
    text = f"NOT LIVE: {printable(reason)}"
    (text_px, letter_px), _ = cv2.getTextSize(text, _FONT, 1.0, 1)
    scale = min(1.5, 0.9 * width / text_px)
    line_px = int(letter_px * scale)
    cv2.rectangle(picture, (0, height - 2 * line_px - 2), (width, height), _STALE, cv2.FILLED)
    place = (int(width * 0.05), height - line_px // 2 - 2)
    cv2.putText(picture, text, place, _FONT, scale, _BACK, max(1, round(2 * scale)), cv2.LINE_AA)


def printable(text: str, limit: int = 300) -> str:
    """``text`` on one line in printable ASCII, as a header field and OpenCV's letters can carry it."""
    line = " ".join(text.split())
    return "".join(c if " " <= c <= "~" else "?" for c in line)[:limit]
