from __future__ import annotations

import cv2
import numpy as np
import numpy.typing as npt
import pytest

from tests.helpers.sequence_code import read_codes

Pixels = npt.NDArray[np.uint8]
SEQUENCES = [0, 1, 0xFFFFFFFF, 0xAAAAAAAA, 0x55555555, 123456789]


def paint_code(picture: Pixels, top: int, sequence: int) -> None:
    """The issue's text, square by square."""
    bits = f"{0b10110010:08b}{sequence:032b}"
    for i in range(20):
        for row in range(2):
            y, x = top + 16 * row, 16 + 16 * i
            picture[y : y + 16, x : x + 16] = 255 * int(bits[20 * row + i])


def card(width: int = 352, height: int = 128, top: int = 7, bottom: int = 7) -> Pixels:
    picture = np.full((height, width, 3), (40, 160, 90), np.uint8)
    paint_code(picture, 16, top)
    paint_code(picture, height - 48, bottom)
    return picture


def through_jpeg(picture: Pixels, quality: int) -> Pixels:
    data = cv2.imencode(".jpg", picture, [cv2.IMWRITE_JPEG_QUALITY, quality])[1]
    decoded = cv2.imdecode(data, cv2.IMREAD_COLOR)
    assert decoded is not None
    return decoded.astype(np.uint8)


@pytest.mark.parametrize("sequence", SEQUENCES)
@pytest.mark.parametrize("size", [(352, 128), (641, 479), (1280, 720)])
def test_reads_what_was_painted(sequence: int, size: tuple[int, int]) -> None:
    picture = card(*size, sequence, sequence)
    assert read_codes(picture) == (sequence, sequence)
    assert read_codes(picture[:, :, 0]) == (sequence, sequence)
    assert read_codes(through_jpeg(picture, 50)) == (sequence, sequence)


@pytest.mark.parametrize("width", [1280, 640, 427, 320])
def test_reads_pictures_scaled_down(width: int) -> None:
    small = cv2.resize(card(1280, 720, 77, 77), (width, round(720 * width / 1280)), interpolation=cv2.INTER_AREA)
    assert read_codes(through_jpeg(small.astype(np.uint8), 70), width / 1280, source_height=720) == (77, 77)


def test_torn_frame_shows_two_numbers() -> None:
    assert read_codes(card(1280, 720, 41, 42)) == (41, 42)


def test_frame_torn_inside_a_code_shows_none_or_the_mixed_number() -> None:
    old, new = card(top=0x00000000, bottom=0x00000000), card(top=0x000FFFFF, bottom=0x000FFFFF)
    mixed = old.copy()
    mixed[24:40] = new[24:40]  # the tear goes through squares of both rows
    assert read_codes(mixed) == (None, 0)


def test_noise_and_plain_pictures_have_no_code() -> None:
    noise = np.random.default_rng(1).integers(0, 256, (128, 352, 3), np.uint8)
    assert read_codes(noise) == (None, None)
    for level in (0, 128, 255):
        assert read_codes(np.full((128, 352), level, np.uint8)) == (None, None)


def test_wrong_prefix_has_no_code() -> None:
    picture = card()
    picture[16:32, 16:32] = 0  # the first bit of the prefix
    assert read_codes(picture) == (None, 7)


@pytest.mark.parametrize("square", [8, 19, 20, 39])
def test_one_unclear_square_has_no_code(square: int) -> None:
    picture = card()
    y, x = 16 + 16 * (square // 20), 16 + 16 * (square % 20)
    picture[y : y + 16, x : x + 16] = 128
    assert read_codes(picture) == (None, 7)
    picture[y : y + 8, x : x + 16], picture[y + 8 : y + 16, x : x + 16] = 0, 255
    assert read_codes(picture) == (None, 7)


def test_low_contrast_has_no_code() -> None:
    assert read_codes(np.asarray(card() // 8 + 100, np.uint8)) == (None, None)


def test_picture_shifted_by_half_a_square_has_no_code() -> None:
    assert read_codes(np.roll(card(top=0x55555555, bottom=0x55555555), 8, axis=1)) == (None, None)


def test_picture_too_small_has_no_code() -> None:
    assert read_codes(np.zeros((20, 20), np.uint8)) == (None, None)
    assert read_codes(card()[:, :200]) == (None, None)


def test_blur_and_tone_curves_leave_the_code_readable() -> None:
    picture = cv2.GaussianBlur(card(1280, 720, 99, 99), (7, 7), 0)
    toned = cv2.LUT(picture, np.clip(np.arange(256) * 0.6 + 40, 0, 255).astype(np.uint8))
    assert read_codes(toned.astype(np.uint8)) == (99, 99)
