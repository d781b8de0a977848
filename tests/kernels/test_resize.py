"""What the resize op and its helper promise beyond what every op does."""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels import resample_cpu
from kernels.chain import Step, parse_chain
from kernels.image import MAX_SIDE_PX, Pixels, Shape
from kernels.op import Scratch
from kernels.ops import resize as resize_module
from kernels.ops.resize import Resize, ResizeParams, area, cubic, linear, nearest, opencv_agrees, opencv_has_means
from kernels.resample_cpu import Taps
from tests.kernels.oracles import (
    WEIGHTS,
    area_weights,
    cubic_weights,
    linear_weights,
    nearest_weights,
    oracle_op,
    resized,
)

sides = st.one_of(st.integers(1, 60), st.integers(1, 3000))


def step(width: int, height: int, how: str = "linear") -> Step:
    return parse_chain(f"resize(width={width}, height={height}, interpolation={how!r})").steps[0]


def run(picture: Pixels, one: Step) -> Pixels:
    made = one.op.output(Shape(picture.shape[1], picture.shape[0], 1 if picture.ndim == 2 else 3), one.params)
    result = np.full((made.height, made.width, *picture.shape[2:]), 0x55, np.uint8)
    one.op.run_cpu(picture, result, one.params, Scratch())
    return result


def check(picture: Pixels, one: Step) -> None:
    np.testing.assert_array_equal(run(picture, one), oracle_op("resize", picture, one.params.model_dump()), str(one))


def noise(height: int, width: int, channels: int = 3) -> Pixels:
    random = np.random.default_rng((height, width, channels))
    return random.integers(0, 256, (height, width) if channels == 1 else (height, width, channels), np.uint8)


def dense(taps: Taps, size: int) -> np.ndarray[Any, Any]:
    """The weights as a matrix: rows are places of the result."""
    matrix = np.zeros((taps.index.shape[1], size), np.int64)
    for index, weight in zip(taps.index, taps.weight, strict=True):
        np.add.at(matrix, (np.arange(len(index)), index), weight.astype(np.int64))
    return matrix


@settings(deadline=None)
@given(st.integers(1, 200), st.integers(1, 200))
def test_places_and_weights_are_the_definitions(source: int, to: int) -> None:
    assert (nearest(source, to) == nearest_weights(source, to).argmax(axis=1)).all()
    for ours, expected in (
        (linear(source, to), linear_weights(source, to)),
        (area(source, to), area_weights(source, to)),
        (cubic(source, to), cubic_weights(source, to)),
    ):
        np.testing.assert_array_equal(dense(ours, source), expected)
        assert (ours.weight.sum(axis=0) == ours.total).all()
        assert ours.index.min() >= 0
        assert ours.index.max() < source


@settings(deadline=None)
@given(sides, sides, st.integers(0, 4000), st.integers(0, 4000))
def test_a_side_that_is_not_given_keeps_the_aspect(width: int, height: int, to_width: int, to_height: int) -> None:
    params = ResizeParams(width=to_width, height=to_height)
    made = Resize().output(Shape(width, height, 3), params)
    assert (made.width, made.height) == resized(width, height, params.model_dump())
    assert made.channels == 3


def test_the_aspect_never_leads_out_of_what_a_picture_can_be() -> None:
    made = Resize().output(Shape(1, MAX_SIDE_PX, 1), ResizeParams(width=MAX_SIDE_PX))
    assert (made.width, made.height) == (MAX_SIDE_PX, MAX_SIDE_PX)
    made = Resize().output(Shape(MAX_SIDE_PX, 1, 1), ResizeParams(width=1))
    assert (made.width, made.height) == (1, 1)


@pytest.mark.parametrize(
    ("source", "to"), [(1280, 640), (1920, 1280), (720, 224), (480, 500), (1080, 720), (640, 1920)]
)
def test_usual_sizes_are_resized_by_opencv(source: int, to: int) -> None:
    assert opencv_agrees(source, to)


def test_where_opencv_rounds_a_tie_otherwise_it_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sizes' ties are there, and asking OpenCV would show."""
    picture = np.tile(np.array([0, 255], np.uint8), (4, 510))
    assert not opencv_agrees(1020, 1024)
    check(picture, step(1024, 4))
    monkeypatch.setattr(resize_module, "opencv_agrees", lambda *sides: True)
    with pytest.raises(AssertionError):
        check(picture, step(1024, 4))


@settings(deadline=None)
@given(st.integers(1, 1100), st.integers(1, 1100))
def test_agreeing_with_opencv_means_the_same_pixels(source: int, to: int) -> None:
    """Steps of each height show each weight; a wrong weight anywhere shows in some column."""
    picture = np.where(np.arange(source) % 2 == 0, 0, 255).astype(np.uint8)[None].repeat(2, axis=0)
    by_opencv = cv2.resize(picture, (to, 2), interpolation=cv2.INTER_LINEAR_EXACT)
    ours = oracle_op("resize", picture, {"width": to, "height": 2, "interpolation": "linear"})
    if opencv_agrees(source, to):
        np.testing.assert_array_equal(by_opencv, ours)
    else:
        assert np.abs(by_opencv.astype(int) - ours).max() <= 1


@pytest.mark.parametrize("how", list(WEIGHTS))
@pytest.mark.parametrize("values", [1, 7, 64, 1000])
def test_bands_do_not_show(monkeypatch: pytest.MonkeyPatch, how: str, values: int) -> None:
    monkeypatch.setattr(resample_cpu, "_BAND_VALUES", values)
    monkeypatch.setattr(resize_module, "opencv_agrees", lambda *sides: False)
    for size in ((1, 1), (5, 31), (40, 23)):
        for to in ((1, 1), (7, 50), (33, 9)):
            check(noise(*size), step(*to, how))
            check(noise(*size, 1), step(*to, how))


@pytest.mark.parametrize("how", list(WEIGHTS))
def test_the_longest_sides_and_the_largest_sums_are_exact(how: str) -> None:
    for size, to in (((3, MAX_SIDE_PX), (301, 2)), ((MAX_SIDE_PX, 3), (2, 301)), ((2, 301), (MAX_SIDE_PX, 1))):
        check(noise(*size, 1), step(*to, how))
    white = np.full((2048, MAX_SIDE_PX), 255, np.uint8)
    white[0, 0] = 254
    assert run(white, step(1, 1, how)).tolist() == [[255]]


def test_an_area_is_the_mean_rounded_half_up() -> None:
    picture = np.array([[0, 1, 10, 20], [0, 1, 30, 41]], np.uint8)
    assert run(picture, step(2, 1, "area")).tolist() == [[1, 25]]  # 0.5 and 25.25
    assert run(picture[:, :3], step(2, 2, "area")).tolist() == [[0, 7], [0, 20]]  # (2·0 + 1) / 3, (1 + 2·10) / 3, …


def test_half_the_size_by_area_is_opencvs() -> None:
    picture = noise(46, 62)
    expected = cv2.resize(picture, (31, 23), interpolation=cv2.INTER_AREA)
    np.testing.assert_array_equal(run(picture, step(31, 23, "area")), expected)


@pytest.mark.parametrize("to", [(31, 23), (62, 46), (90, 70), (131, 20)])
def test_cubic_is_opencvs_to_a_level(to: tuple[int, int]) -> None:
    """Which has weights of its own precision, and rounds ties otherwise."""
    picture = cv2.GaussianBlur(noise(46, 62), (3, 3), 0).astype(np.uint8)
    expected = cv2.resize(picture, to, interpolation=cv2.INTER_CUBIC)
    assert cv2.absdiff(run(picture, step(*to, "cubic")), expected).max() <= 1


def test_cubic_swings_over_at_an_edge_and_saturates() -> None:
    edge = np.tile(np.repeat(np.array([20, 230], np.uint8), 8), (1, 1))
    wide = run(edge, step(64, 1, "cubic"))
    assert wide.min() < 20
    assert wide.max() > 230
    full = run(np.where(edge > 100, np.uint8(255), np.uint8(0)), step(64, 1, "cubic"))
    assert (full.min(), full.max()) == (0, 255)
    assert (np.diff(full[0].astype(int)) >= 0).all()  # nothing wraps


@pytest.mark.parametrize("how", ["area", "linear", "nearest"])
@pytest.mark.parametrize(
    ("size", "to"),
    [((96, 54), (64, 36)), ((96, 54), (48, 27)), ((96, 54), (32, 18)), ((96, 54), (24, 27)), ((45, 42), (27, 14)),
     ((64, 60), (48, 30)), ((50, 9), (50, 3)), ((45, 42), (15, 14)), ((33, 40), (99, 20))],
)  # fmt: skip
def test_whatever_call_of_opencvs_a_ratio_takes_ties_round_up(
    size: tuple[int, int], to: tuple[int, int], how: str
) -> None:
    """Values of two neighbouring levels alone: means are at a half as often as they can be."""
    for shape in ((size[1], size[0]), (size[1], size[0], 3)):
        picture = np.random.default_rng(sum(size)).integers(0, 2, shape, np.uint8) + np.uint8(100)
        expected = oracle_op("resize", picture, {"width": to[0], "height": to[1], "interpolation": how})
        np.testing.assert_array_equal(run(picture, step(*to, how)), expected)


def test_opencvs_area_is_taken_only_where_it_cannot_round_otherwise() -> None:
    assert opencv_has_means(1920, 1280, 1080, 720), "ninths"
    assert opencv_has_means(1920, 960, 1080, 540), "halves, in whole numbers"
    assert not opencv_has_means(1920, 480, 1080, 270), "sixteenths: ties"
    assert not opencv_has_means(1920, 1919, 1080, 1079), "floats are too coarse"
    assert not opencv_has_means(99, 33, 11, 33), "larger: linear"
