from __future__ import annotations

import threading
from fractions import Fraction

import cv2
import numpy as np
import pytest
from pydantic import ValidationError

from kernels.errors import InputError
from kernels.formats import BGR8, BGR16, FORMATS, GRAY8, GRAY16, NV12, YUYV, PixelFormat
from kernels.image import ImageSpec, ImageView, Pixels
from kernels.plan import slot_source_spec
from pipeline.frame import Capture
from pipeline.sources._card import Card, clock_text, code_bits
from pipeline.sources.base import SourceError
from pipeline.sources.testcard import Testcard, TestcardConfig
from tests.helpers.fake_time import START_NS, FakeTime
from tests.helpers.sequence_code import read_codes
from tests.kernels.oracles import bytes_of, oracle_working

SIZES = [(352, 128), (353, 129), (641, 479), (1280, 720), (1366, 768)]
NOON_NS = 12 * 3600 * 1_000_000_000


def make_view(spec: ImageSpec, poison: int = 0xAA) -> ImageView:
    return ImageView(spec, np.full(spec.nbytes, poison, np.uint8))


def draw(format: PixelFormat, size: tuple[int, int], sequence: int, clock_ns: int = NOON_NS) -> ImageView:
    spec = slot_source_spec(ImageSpec.make(format, *size))
    view = make_view(spec)
    Card(spec).draw(view, sequence, clock_ns)
    return view


def picture_bytes(view: ImageView) -> list[Pixels]:
    return [bytes_of(view, i).copy() for i in range(len(view.spec.format.planes))]


def luma(view: ImageView) -> Pixels:
    """One byte a pixel where black and white of the code stand, from the format's definition; of 16 bits v / 257."""
    first = bytes_of(view, 0)
    if view.spec.format.depth == 16:
        pairs = first.reshape(len(first), -1, 2)
        assert (pairs[..., 0] == pairs[..., 1]).all(), "multiples of 257"
        return pairs[..., 0] if view.spec.format.channels == 1 else pairs[:, 1::3, 0]
    where = {"BGR8": slice(1, None, 3), "RGB8": slice(1, None, 3), "YUYV": slice(0, None, 2), "UYVY": slice(1, None, 2)}
    return first[:, where.get(view.spec.format.name, slice(None))]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("format", FORMATS.values(), ids=str)
@pytest.mark.parametrize("sequence", [0, 1, 0xDEADBEEF, 0xFFFFFFFF])
def test_code_is_where_and_what_the_issue_says(format: PixelFormat, size: tuple[int, int], sequence: int) -> None:
    grey = luma(draw(format, size, sequence))
    black, white = (16, 235) if format.is_yuv else (0, 255)
    bits = "10110010" + f"{sequence:032b}"
    for top in (16, size[1] - 48):
        for i in range(20):
            for row in range(2):
                x, y = 16 + 16 * i, top + 16 * row
                expected = white if bits[20 * row + i] == "1" else black
                assert (grey[y : y + 16, x : x + 16] == expected).all(), (top, row, i)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("format", [f for f in FORMATS.values() if f.is_yuv], ids=str)
def test_yuv_cards_show_the_colours_of_the_bgr_card(format: PixelFormat, size: tuple[int, int]) -> None:
    expected = oracle_working(draw(BGR8, size, 1234)).astype(int)
    shown = oracle_working(draw(format, size, 1234)).astype(int)
    assert np.abs(shown - expected).max() <= 2


@pytest.mark.parametrize(("wide", "narrow"), [(GRAY16, GRAY8), (BGR16, BGR8)], ids=str)
def test_a_card_of_16_bits_is_that_of_8_bits_times_257(wide: PixelFormat, narrow: PixelFormat) -> None:
    made, expected = (oracle_working(draw(format, (641, 479), 99)) for format in (wide, narrow))
    np.testing.assert_array_equal(made, expected.astype(np.int64) * 257)


def test_grey_card_is_the_luma_of_the_bgr_card() -> None:
    expected = cv2.cvtColor(oracle_working(draw(BGR8, (641, 479), 5)), cv2.COLOR_BGR2GRAY)
    assert np.abs(luma(draw(GRAY8, (641, 479), 5)).astype(int) - expected.astype(int)).max() <= 1


@pytest.mark.parametrize("format", FORMATS.values(), ids=str)
def test_every_pixel_is_written_and_no_padding(format: PixelFormat) -> None:
    packed = ImageSpec.make(format, 641, 479)
    spec = ImageSpec.make(format, 641, 479, row_alignment=512, plane_alignment=4096)
    low, high = make_view(spec, 0x00), make_view(spec, 0xFF)
    card = Card(packed)
    card.draw(low, 77, NOON_NS)
    card.draw(high, 77, NOON_NS)
    inside = np.zeros(spec.nbytes, bool)
    for index, plane in enumerate(picture_bytes(low)):
        np.testing.assert_array_equal(plane, bytes_of(high, index))
        rows = np.arange(plane.shape[0])[:, None] * spec.strides[index] + spec.offsets[index]
        inside[rows + np.arange(plane.shape[1])] = True
    assert not inside.all()
    assert (low.buffer[~inside] == 0x00).all()
    assert (high.buffer[~inside] == 0xFF).all()


@pytest.mark.parametrize("format", FORMATS.values(), ids=str)
def test_drawing_depends_on_sequence_and_clock_alone(format: PixelFormat) -> None:
    spec = ImageSpec.make(format, 641, 479)
    used, fresh = make_view(spec), make_view(spec)
    card = Card(spec)
    for sequence in range(50):
        card.draw(used, sequence, sequence * 40_000_000)
    Card(spec).draw(fresh, 49, 49 * 40_000_000)
    np.testing.assert_array_equal(used.buffer, fresh.buffer)


@pytest.mark.parametrize("size", SIZES)
def test_something_moves_from_each_frame_to_the_next(size: tuple[int, int]) -> None:
    spec = ImageSpec.make(GRAY8, *size)
    card, view, last = Card(spec), make_view(spec), make_view(spec)
    card.draw(last, 0, NOON_NS)
    moved = 0
    for sequence in range(1, 201):
        card.draw(view, sequence, NOON_NS)
        moved += bool((view.plane(0)[52:-53] != last.plane(0)[52:-53]).any())
        view, last = last, view
    assert moved >= 195  # it may seem to stand still for one frame where it turns round


@pytest.mark.parametrize(
    ("clock_ns", "text"),
    [
        (0, "00:00:00.000 UTC"),
        (NOON_NS + 999_999, "12:00:00.000 UTC"),
        (1_796_083_199_999_999_999, "23:59:59.999 UTC"),
        (1_796_083_200_000_000_000, "00:00:00.000 UTC"),
    ],
)
def test_clock_text(clock_ns: int, text: str) -> None:
    assert clock_text(clock_ns) == text


@pytest.mark.parametrize("size", SIZES)
def test_clock_is_drawn_in_the_middle_and_changes(size: tuple[int, int]) -> None:
    width, height = size
    first, second = (luma(draw(NV12, size, 0, NOON_NS + step)) for step in (0, 1_000_000))
    rows, columns = np.nonzero(first != second)
    assert len(rows) > 20
    assert rows.min() >= 52
    assert rows.max() < height - 52
    assert abs((rows.min() + rows.max()) / 2 - height / 2) <= max(4, height / 100)
    assert columns.max() - columns.min() < width / 10  # one digit
    assert set(np.unique(first[rows, columns])) == {16, 235}


@pytest.mark.parametrize("format", FORMATS.values(), ids=str)
@pytest.mark.parametrize("size", [(352, 128), (641, 479)])
def test_code_survives_jpeg_quality_50(format: PixelFormat, size: tuple[int, int]) -> None:
    picture = oracle_working(draw(format, size, 31337))
    if picture.dtype == np.uint16:
        picture = (picture // 257).astype(np.uint8)
    decoded = cv2.imdecode(cv2.imencode(".jpg", picture, [cv2.IMWRITE_JPEG_QUALITY, 50])[1], cv2.IMREAD_COLOR)
    assert decoded is not None
    assert read_codes(decoded) == (31337, 31337)


def test_code_counts_modulo_32_bits() -> None:
    np.testing.assert_array_equal(code_bits(2**32 + 5), code_bits(5))


@pytest.mark.parametrize("size", [(351, 128), (352, 127), (1, 1)])
def test_card_refuses_what_cannot_hold_the_codes(size: tuple[int, int]) -> None:
    with pytest.raises(InputError, match="352x128 to 16384x16384"):
        Card(ImageSpec.make(YUYV, *size))
    with pytest.raises(ValidationError):
        TestcardConfig(size=size)


def make_card(**settings: object) -> Testcard:
    return Testcard("testcard://", TestcardConfig.model_validate({"size": "352x128", "format": "GRAY8", **settings}))


def read_frame(source: Testcard) -> tuple[int | None, Capture]:
    view = make_view(ImageSpec.make(GRAY8, 352, 128))
    capture = source.fill(view)
    top, bottom = read_codes(view.plane(0))
    assert top == bottom
    return top, capture


@pytest.mark.parametrize("fps", ["1", "30", "30000/1001", "29.97", "1000"])
def test_paced_by_an_absolute_schedule_without_drift(fps: str, monkeypatch: pytest.MonkeyPatch) -> None:
    source = make_card(fps=fps)
    time = FakeTime(source, monkeypatch)
    source.open()
    for number in range(300):
        time.now_ns += 400_000  # drawing and publishing take their time
        assert read_frame(source)[0] == number
    period_ns = Fraction(1_000_000_000) / Fraction(fps)
    assert time.waited_for == [START_NS + int(n * period_ns) for n in range(300)]
    source.close()


def test_late_card_skips_whole_frame_times_and_does_not_burst(monkeypatch: pytest.MonkeyPatch) -> None:
    source = make_card(fps=100)
    time = FakeTime(source, monkeypatch)
    source.open()
    assert read_frame(source)[0] == 0
    time.now_ns = START_NS + 57_000_000  # between the frame times 5 and 6
    numbers = [read_frame(source)[0] for _ in range(3)]
    assert numbers == [1, 2, 3]  # the number counts drawn frames, so that it stays the camera's sequence
    assert time.waited_for[1:] == [START_NS + n * 10_000_000 for n in (5, 6, 7)]
    source.close()


def test_skip_takes_a_frame_time_and_no_number(monkeypatch: pytest.MonkeyPatch) -> None:
    source = make_card(fps=100)
    time = FakeTime(source, monkeypatch)
    source.open()
    assert read_frame(source)[0] == 0
    source.skip()
    assert read_frame(source)[0] == 1
    assert time.waited_for == [START_NS, START_NS + 10_000_000, START_NS + 20_000_000]
    source.close()


def test_clock_shows_the_scheduled_time_of_the_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    source = make_card(fps=10)
    FakeTime(source, monkeypatch)
    monkeypatch.setattr("pipeline.sources.testcard.time.time_ns", lambda: NOON_NS)
    source.open()
    view, expected = (make_view(ImageSpec.make(GRAY8, 352, 128)) for _ in range(2))
    for _ in range(2):
        source.fill(view)
    source.skip()
    source.fill(view)
    Card(view.spec).draw(expected, 2, NOON_NS + 300_000_000)
    np.testing.assert_array_equal(view.buffer, expected.buffer)
    source.close()


def test_number_goes_on_after_a_reopen(monkeypatch: pytest.MonkeyPatch) -> None:
    source = make_card()
    FakeTime(source, monkeypatch)
    source.open()
    assert read_frame(source)[0] == 0
    source.close()
    source.open()
    assert read_frame(source)[0] == 1
    source.close()


def test_b110_stamps_are_on_the_monotonic_clock_and_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    source = make_card()
    time = FakeTime(source, monkeypatch)
    monkeypatch.setattr("pipeline.sources.testcard.time.time_ns", lambda: NOON_NS)
    source.open()
    capture = read_frame(source)[1]
    assert capture == Capture(captured_ns=time.now_ns, wall_ns=NOON_NS, clock="host", copied_bytes=0, pts_s=None)
    source.close()


def test_format_is_what_was_asked_for() -> None:
    source = Testcard(
        "testcard://", TestcardConfig.model_validate({"size": "641x479", "fps": "25/2", "format": "YUYV"})
    )
    format = source.open()
    assert (format.image, format.fps, format.live) == (ImageSpec.make(YUYV, 641, 479), 12.5, True)
    source.close()


def test_interrupt_wakes_a_waiting_card() -> None:
    source = make_card(fps=1)
    source.open()
    read_frame(source)
    waker = threading.Timer(0.05, source.interrupt)
    waker.start()
    with pytest.raises(SourceError, match="interrupted"):
        read_frame(source)
    waker.join()
    source.close()
    source.open()  # an interrupted card can be opened again
    read_frame(source)
    source.close()
    source.close()
    with pytest.raises(SourceError, match="closed"):
        read_frame(source)
