"""What is written into a picture: the frame's own name, time and number, in a font that can be read."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import numpy as np
import pytest

from kernels.chain import parse_chain
from kernels.codegen import generate
from kernels.device import HostDevice
from kernels.errors import InputError
from kernels.fonts import glyph_rows, glyphs
from kernels.formats import BGR8, GRAY8, NV12, PixelFormat
from kernels.image import NO_STAMP, ImageSpec, Pixels, Stamp
from kernels.op import MAX_TEXT_BYTES, OpParams, Scratch, TextOp
from kernels.ops import overlay_text
from kernels.plan import make_plan
from tests.kernels.cases import SourceCase, check_exact, stamp_of

STAMP = Stamp("north gate", 1234, 1_767_225_599_042_999_999)  # the last second of 2025, UTC


@pytest.fixture
def zone() -> Iterator[None]:
    """The machine's time zone can be set through TZ; afterwards it is as it was, and no second is known."""
    before = os.environ.get("TZ")
    overlay_text._clock.cache_clear()
    yield
    os.environ.pop("TZ", None)
    if before is not None:
        os.environ["TZ"] = before
    time.tzset()
    overlay_text._clock.cache_clear()


def step_of(**values: object) -> tuple[TextOp[OpParams], OpParams]:
    step = parse_chain(f"overlay_text({', '.join(f'{name}={value!r}' for name, value in values.items())})").steps[0]
    assert isinstance(step.op, TextOp)
    return step.op, step.params


def text_of(stamp: Stamp = STAMP, **values: object) -> str:
    op, params = step_of(**values)
    return op.text(params, stamp).decode("ascii")


def drawn(picture: Pixels, stamp: Stamp = STAMP, **values: object) -> Pixels:
    op, params = step_of(**values)
    scratch, result = Scratch(), np.empty_like(picture)
    scratch.stamp = stamp
    op.run_cpu(picture, result, params, scratch)
    return result


def test_the_clock_is_that_of_the_frame_in_the_machines_time_zone(zone: None) -> None:
    # Seconds apart: what was written for one zone is kept for that second.
    for second, (name, expected) in enumerate(
        [("UTC0", "2025-12-31 23:59:59"), ("EST5", "2025-12-31 19:00:00"), ("NPT-5:45", "2026-01-01 05:45:01")],
        start=-1,
    ):
        os.environ["TZ"] = name
        time.tzset()
        stamp = Stamp("north gate", 1234, STAMP.wall_ns + (second + 1) * 10**9)
        assert text_of(stamp) == f"north gate  {expected}  #1234"


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("", ""),
        ("{sequence}/{ms}", "1234/042"),
        ("{{{camera}}} {{time}}", "{north gate} {time}"),
        ("100 % of {camera}", "100 % of north gate"),
        ("T\u00fcr \U0001f6aa\n\t\x7f~", "T?r ????~"),
        ("x" * 95 + "{sequence}", "x" * 95 + "1"),
    ],
)
def test_placeholders_become_values_and_what_has_no_glyph_a_question_mark(template: str, expected: str) -> None:
    assert text_of(text=template) == expected
    assert text_of(text=template, position="bottom_right") == expected[::-1], "as the corner sees it"


def test_a_name_is_taken_as_it_is_and_whatever_its_length_96_characters_are_shown() -> None:
    assert text_of(Stamp("{ms} %H {{", 0, 0), text="{camera}") == "{ms} %H {{"
    assert text_of(Stamp("y" * 500, 0, 0), text="{camera}") == "y" * MAX_TEXT_BYTES


@pytest.mark.parametrize(
    "template",
    [
        "{name}",
        "{}",
        "{0}",
        "{time!r}",
        "{sequence:09999999}",
        "{camera.__class__}",
        "{camera[0]}",
        "{ms:{ms}}",
        "{",
        "a}",
        "{time",
    ],
)
def test_unknown_placeholders_are_refused_with_those_that_there_are(template: str) -> None:
    with pytest.raises(InputError, match=r"\{camera\}, \{time\}, \{sequence\}, \{ms\}") as caught:
        step_of(text=template)
    assert caught.value.field == "chain[0].params.text"


@pytest.mark.parametrize("time_format", ["%", "%H:%", "%f", "%Q", "%-d", "%10Y", "%Ey", "%\n", "%%%", "%\u00fc"])
def test_broken_time_formats_are_refused_with_what_there_is(time_format: str) -> None:
    with pytest.raises(InputError, match=r"%H .*%Y") as caught:
        step_of(time_format=time_format)
    assert caught.value.field == "chain[0].params.time_format"


@pytest.mark.parametrize("time_format", ["%H\0", "%H\n", "\u00fc %H", "\ud800"])
def test_time_formats_are_printable_ascii(time_format: str) -> None:
    with pytest.raises(InputError):
        step_of(time_format=time_format)


def test_every_letter_that_is_allowed_is_written_as_a_time() -> None:
    for letter in overlay_text.TIME_LETTERS:
        assert text_of(text="{time}", time_format=f"%{letter}") != f"%{letter}"


def test_at_scale_2_the_picture_holds_the_fonts_own_pixels() -> None:
    picture = drawn(np.zeros((60, 400), np.uint8), text="{sequence}", margin=6, box=1)
    levels = np.hstack([glyphs()[ord(sign) - 32] for sign in "1234"]).astype(int)
    covers = (128 * levels + 1) // 3
    np.testing.assert_array_equal(picture[10:42, 10:74], (255 * covers + 64) >> 7)
    picture[10:42, 10:74] = 0
    assert not picture.any()


def test_glyphs_are_all_there_and_all_different() -> None:
    seen = {glyph.tobytes() for glyph in glyphs()}
    assert len(seen) == 95
    assert [chr(32 + code) for code, glyph in enumerate(glyphs()) if not glyph.any()] == [" "]
    assert all(glyph.max() == 3 for glyph in glyphs()[1:])
    # An L lies on the left and below, a 7 above and on the right.
    ell, seven = glyphs()[ord("L") - 32], glyphs()[ord("7") - 32]
    assert ell[:, :8].sum() > ell[:, 8:].sum()
    assert ell[16:].sum() > ell[:16].sum()
    assert seven[:16].sum() > seven[16:].sum()
    assert seven[:16, 8:].sum() > seven[16:, 8:].sum()


def test_the_cuda_text_holds_the_same_font() -> None:
    source = generate(make_plan(parse_chain("overlay_text | sobel | overlay_text"), ImageSpec.make(NV12, 64, 48)))
    assert source.count("overlay_text_font[] =") == 1
    words = source.split("overlay_text_font[] = {")[1].split("}")[0].split(",")
    assert [int(word, 16) for word in words] == [word for rows in glyph_rows() for word in rows]


@pytest.mark.parametrize("corner", ["top_left", "top_right", "bottom_left", "bottom_right"])
def test_text_lies_in_its_corner_and_what_does_not_fit_goes_over_the_other_side(corner: str) -> None:
    white = np.full((80, 300, 3), 255, np.uint8)
    there = drawn(white, text="ab", position=corner, margin=5, box=1, color="#0000ff") != white
    rows, columns = np.nonzero(there.any(axis=2))
    assert np.ptp(rows) + 1 == 2 * 16 + 8
    assert np.ptp(columns) + 1 == 2 * 16 + 8
    assert (rows.min() == 5) if corner.startswith("top") else (rows.max() == 80 - 6)
    assert (columns.min() == 5) if corner.endswith("left") else (columns.max() == 300 - 6)
    # Of many characters the corner's own stay whole.
    dots = "." * 40
    many, near = ("xy" + dots, slice(0, 41)) if corner.endswith("left") else (dots + "xy", slice(259, 300))
    cut, whole = (drawn(white, text=text, position=corner, margin=5, box=0.0, color="#000000") for text in (many, "xy"))
    np.testing.assert_array_equal(cut[:, near], whole[:, near])
    assert (cut != whole).any()


def test_without_a_box_the_picture_shows_between_the_letters() -> None:
    picture = np.full((60, 200), 100, np.uint8)
    result = drawn(picture, text="#{sequence}", box=0)
    assert set(result.ravel()) > {100, 255}
    assert (result >= 100).all()
    assert (drawn(picture, text="#{sequence}", box=0.5) < 100).any()
    np.testing.assert_array_equal(drawn(picture, text="", box=1), picture)


@pytest.mark.parametrize("format", [BGR8, GRAY8, NV12], ids=str)
def test_each_frame_shows_its_own_text(format: PixelFormat) -> None:
    """Over a sequence of frames, on one executor, among other ops and twice in a chain."""
    for chain in (
        "overlay_text",
        "sobel | overlay_text(position='bottom_right', scale=1) | gaussian_blur | overlay_text(text='{ms}', y=9)",
        "overlay_text(text='{sequence}') | grayscale | flip | overlay_text(position='top_right')",
    ):
        check_exact(HostDevice(), SourceCase(format, 320, 70).spec(), chain, frames=2)
    assert text_of(stamp_of(0)) != text_of(stamp_of(1)) != text_of(NO_STAMP)
