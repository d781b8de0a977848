"""Pictures of bars: as long as what they stand for, nothing outside, in SVG as in PNG."""

from __future__ import annotations

from xml.etree import ElementTree

import cv2
import numpy as np
import numpy.typing as npt
import pytest

from service.bar_matrix import BAR_WIDTH, FILLS, PNG_SCALE, Cell, Panel, draw, to_png, to_svg

PANEL = Panel(
    "in <&>",
    ("1 MB", "10 MB"),
    (50.0, 200.0),
    (
        ("pageable", (Cell(10.0, "10 GB/s", "baseline"), Cell(100.0, "100 µs"))),
        ("a long name of a way → out", (Cell(25.0, "25 GB/s, 60 %", "best"), Cell(900.0, "4.50× as long"))),
        ("none", (None, Cell(0.0, "0"))),
    ),
)
PICTURE = draw("Title <b>", [PANEL, PANEL], ["a note"])
SVG = "{http://www.w3.org/2000/svg}"


def png() -> npt.NDArray[np.uint8]:
    pixels = cv2.imdecode(np.frombuffer(to_png(PICTURE), np.uint8), cv2.IMREAD_COLOR)
    assert pixels is not None
    return pixels.astype(np.uint8)


def bars(role: str) -> list[float]:
    root = ElementTree.fromstring(to_svg(PICTURE))
    return [float(one.attrib["width"]) for one in root.findall(f"{SVG}rect") if one.attrib["class"] == role]


def test_bars_are_as_long_as_what_they_stand_for_and_cut_at_the_scale() -> None:
    assert bars("baseline") == pytest.approx([0.2 * BAR_WIDTH] * 2)
    assert bars("best") == [0.5 * BAR_WIDTH] * 2
    assert bars("bar") == [0.5 * BAR_WIDTH, BAR_WIDTH, 1.0] * 2, "a value past the scale fills the bar, none is a line"
    assert bars("track") == [BAR_WIDTH] * 10, "no bar where there is no figure"


def test_texts_are_escaped_and_all_there() -> None:
    root = ElementTree.fromstring(to_svg(PICTURE))
    texts = [one.text for one in root.findall(f"{SVG}text")]
    for text in ("Title <b>", "a note", "in <&>", "10 MB", "a long name of a way → out", "25 GB/s, 60 %", "100 µs"):
        assert text in texts
    assert ElementTree.fromstring(to_svg(draw("", []))) is not None


def test_nothing_lies_outside_or_over_a_neighbour() -> None:
    for one in PICTURE.shapes:
        width = one.width or 8 * len(one.text)
        assert one.x >= 0
        assert one.x + width <= PICTURE.width
        assert 0 <= one.y <= PICTURE.height
    texts = [one for one in PICTURE.shapes if one.text]
    for one in texts:
        for other in texts:
            if other is not one and abs(one.y - other.y) < 16 and other.x >= one.x:
                assert one.x + 8 * len(one.text) <= other.x, (one.text, other.text)


def test_the_png_shows_the_same_bars_at_twice_the_size() -> None:
    pixels = png()
    assert pixels.shape == (PICTURE.height * PNG_SCALE, PICTURE.width * PNG_SCALE, 3)
    for role in ("baseline", "best"):
        color = np.array(list(bytes.fromhex(FILLS[role][1:])[::-1]), np.uint8)
        rows = (pixels == color).all(axis=2).sum(axis=1)
        (length,) = {int(n) for n in rows if n}
        assert length == round(bars(role)[0] * PNG_SCALE)


def test_every_text_leaves_ink_in_the_png() -> None:
    pixels = png()
    for one in PICTURE.shapes:
        if one.text:
            x, y = round(one.x * PNG_SCALE), round(one.y * PNG_SCALE)
            assert pixels[y - 24 : y, x : x + 16 * len(one.text)].min() < 0x80, one.text
