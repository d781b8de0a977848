"""What the ops that move pixels promise beyond what every op does."""

from __future__ import annotations

import cv2
import numpy as np
import pytest

from kernels.chain import Step, parse_chain
from kernels.image import MAX_SIDE_PX, Pixels, Shape
from kernels.op import Scratch
from kernels.ops.letterbox import placement


def step_of(text: str) -> Step:
    return parse_chain(text).steps[0]


def shape_of(picture: Pixels) -> Shape:
    return Shape(picture.shape[1], picture.shape[0], 1 if picture.ndim == 2 else 3)


def run(picture: Pixels, text: str, scratch: Scratch | None = None) -> Pixels:
    step = step_of(text)
    made = step.op.output(shape_of(picture), step.params)
    result = np.full((made.height, made.width, *picture.shape[2:]), 0x55, np.uint8)
    step.op.run_cpu(picture, result, step.params, scratch or Scratch())
    return result


def noise(height: int, width: int, channels: int = 3) -> Pixels:
    random = np.random.default_rng((height, width, channels))
    return random.integers(0, 256, (height, width) if channels == 1 else (height, width, channels), np.uint8)


NUMBERED = np.arange(24, dtype=np.uint8).reshape(4, 6)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("crop", NUMBERED),
        ("crop(x=2, y=1, width=3, height=2)", NUMBERED[1:3, 2:5]),
        ("crop(x=2, y=1)", NUMBERED[1:, 2:]),
        ("crop(x=4, y=3, width=3, height=2)", NUMBERED[3:, 4:]),  # cut to the picture
        ("crop(x=6, y=4, width=3, height=2)", NUMBERED[3:, 5:]),  # beyond it: the last pixel
        ("crop(x=16384, y=16384)", NUMBERED[3:, 5:]),
        ("crop(width=16384, height=1)", NUMBERED[:1]),
        ("rotate(degrees=0)", NUMBERED),
        ("rotate", np.rot90(NUMBERED, -1)),
        ("rotate(degrees=180)", np.rot90(NUMBERED, 2)),
        ("rotate(degrees=270)", np.rot90(NUMBERED)),
    ],
)  # fmt: skip
def test_rectangles_and_quarter_turns(text: str, expected: Pixels) -> None:
    np.testing.assert_array_equal(run(NUMBERED, text), expected)


def test_b124_a_turned_picture_is_upright_whatever_its_shape() -> None:
    """Clockwise, as the rotation of a camera's mount is given; checked against OpenCV and by turning back."""
    for picture in (noise(5, 9), noise(1, 7), noise(64, 48, 1)):
        for degrees, code in (
            (90, cv2.ROTATE_90_CLOCKWISE),
            (180, cv2.ROTATE_180),
            (270, cv2.ROTATE_90_COUNTERCLOCKWISE),
        ):
            turned = run(picture, f"rotate(degrees={degrees})")
            np.testing.assert_array_equal(turned, cv2.rotate(picture, code))
            np.testing.assert_array_equal(run(turned, f"rotate(degrees={360 - degrees})"), picture)


@pytest.mark.parametrize("side", [1, 2, 17, 320, 639, 640, 1280, MAX_SIDE_PX])
@pytest.mark.parametrize(
    ("width", "height"),
    [(1, 1), (3775, 1571), (1600, 2128), (427, 640), (581, 640), (1, MAX_SIDE_PX), (MAX_SIDE_PX, 1)],
)
def test_b82_a_letterbox_touches_two_sides_and_its_placement_leads_back(width: int, height: int, side: int) -> None:
    """The op and whoever takes coordinates back have the same placement; a way there and back is off by < 0.5 px."""
    place = placement(width, height, side, side)
    assert (place.width == side and place.left == 0) or (place.height == side and place.top == 0)
    assert 0 <= side - place.width - 2 * place.left <= 1
    assert 0 <= side - place.height - 2 * place.top <= 1
    assert min(place.width, place.height) >= 1
    scale = min(side / width, side / height)
    for x, y in ((0, 0), (width, height), (width / 3, height / 7)):
        there = place.left + x * scale, place.top + y * scale
        back = (there[0] - place.left) * width / place.width, (there[1] - place.top) * height / place.height
        # Sides are whole pixels: half a pixel of the result at most, so half of what it covers of the source.
        assert abs(back[0] - x) <= max(0.5, 0.5 / scale)
        assert abs(back[1] - y) <= max(0.5, 0.5 / scale)


def test_b27_a_smaller_picture_leaves_nothing_of_the_one_before() -> None:
    """The same buffers for both: all of the result is new."""
    scratch, step = Scratch(), step_of("letterbox(width=80, height=60, fill='#102030')")
    result = np.full((60, 80, 3), 0x55, np.uint8)
    step.op.run_cpu(np.full((60, 80, 3), 255, np.uint8), result, step.params, scratch)
    assert (result == 255).all()
    step.op.run_cpu(np.zeros((30, 20, 3), np.uint8), result, step.params, scratch)
    assert (result[:, 20:60] == 0).all()
    assert (result[:, :20] == (0x30, 0x20, 0x10)).all()
    assert (result[:, 60:] == (0x30, 0x20, 0x10)).all()
