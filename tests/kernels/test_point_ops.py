"""What is said of the point ops on colours and places beyond their oracles: neutral values, second opinions."""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels import regions
from kernels.chain import Step, make_chain
from kernels.errors import InputError
from kernels.image import Pixels
from kernels.matrix import MatrixOp
from kernels.ops import colormap as colormap_module
from kernels.registry import all_ops
from tests.kernels.strategies import op_params
from tests.kernels.test_ops import check, noise, run, step_of

MATRIX_OPS = {name: op for name, op in all_ops().items() if isinstance(op, MatrixOp)}


def colour(text: str, *bgr: int) -> list[int]:
    """What the op makes of a colour."""
    pixel: list[int] = run(step_of(text), np.array([[bgr]], np.uint8))[0, 0].tolist()
    return pixel


@pytest.mark.parametrize(
    "text", ["levels", "white_balance", "saturation", "saturation(factor=1)", "hue", "hue(degrees=0)", "color_matrix"]
)
def test_neutral_values_change_nothing(text: str) -> None:
    picture = noise(31, 47, 3)
    np.testing.assert_array_equal(run(step_of(text), picture), picture)


@given(st.sampled_from(["saturation", "hue"]), st.data())
def test_grey_stays_grey(name: str, data: st.DataObject) -> None:
    greys = np.repeat(np.arange(256, dtype=np.uint8).reshape(16, 16, 1), 3, axis=2)
    step = Step(all_ops()[name], data.draw(op_params(all_ops()[name])))
    np.testing.assert_array_equal(run(step, greys), greys, str(step))


def test_grey_stays_grey_where_rows_of_a_matrix_add_up_to_one() -> None:
    greys = np.repeat(np.arange(256, dtype=np.uint8).reshape(16, 16, 1), 3, axis=2)
    for row in ([1 / 3, 1 / 3, 1 / 3], [0.0004, 0.0004, 0.9992], [-7.7, 8, 0.7], [0.1, 0.2, 0.7]):
        np.testing.assert_array_equal(run(step_of(f"color_matrix(matrix={row * 3})"), greys), greys)


@pytest.mark.parametrize("name", MATRIX_OPS)
def test_grey_pictures_pass_unchanged(name: str) -> None:
    op = MATRIX_OPS[name]
    picture = noise(9, 14, 1)
    np.testing.assert_array_equal(run(Step(op, op.Params()), picture), picture)


@given(st.sampled_from(sorted(MATRIX_OPS)), st.data())
def test_factors_and_offsets_stay_in_what_opencv_counts_in(name: str, data: st.DataObject) -> None:
    op = MATRIX_OPS[name]
    rows = op.rows(data.draw(op_params(op)))
    assert rows.shape == (3, 4)
    assert rows.dtype == np.int32
    assert np.abs(rows[:, :3]).max() < 16 * 1024
    assert np.abs(rows[:, 3]).max() <= 255 * 1024
    assert (rows[:, 3] % 1024 == 0).all()


@pytest.mark.parametrize("width", [1, 2, 3, 5, 15, 16, 17, 31, 33, 65, 129])
def test_b91_opencvs_vectors_and_what_is_left_of_a_row_round_alike(width: int) -> None:
    """Halves in every direction: where the definition's half up, and OpenCV's half to even, could part."""
    picture = noise(40, width, 3, seed=1)
    for half in (0.5, -0.5, 1.5, 2.5):
        step = step_of(f"color_matrix(matrix=[{half}, 0, 0, 0, {half}, 0, 0, 0, {half}], offsets=[7, -3, 100])")
        exact = picture.astype(np.int64) * int(2 * half) + 2 * np.array([7, -3, 100])
        np.testing.assert_array_equal(run(step, picture), np.clip((exact + 1) // 2, 0, 255).astype(np.uint8))


def test_levels_stretch_saturate_and_step() -> None:
    ramp = np.array([[0, 49, 50, 100, 149, 150, 151, 255]], np.uint8)
    assert run(step_of("levels(black=50, white=150)"), ramp)[0].tolist() == [0, 0, 0, 128, 252, 255, 255, 255]
    for text in ("levels(black=150, white=150)", "levels(black=150, white=0)"):
        assert run(step_of(text), ramp)[0].tolist() == [0, 0, 0, 0, 0, 0, 255, 255]
    assert run(step_of("levels(black=255, white=255)"), ramp)[0].tolist() == [0] * 8


def test_gains_are_those_of_the_colours_they_are_named_after() -> None:
    assert colour("white_balance(red=2)", 10, 20, 30) == [10, 20, 60]
    assert colour("white_balance(green=0.5)", 10, 21, 30) == [10, 11, 30]
    assert colour("white_balance(blue=8)", 100, 20, 30) == [255, 20, 30]
    assert colour("white_balance(red=0, green=0, blue=0)", 10, 20, 30) == [0, 0, 0]


def test_no_saturation_is_luma_and_more_goes_away_from_it() -> None:
    assert colour("saturation(factor=0)", 0, 0, 255) == [76, 76, 76]
    picture = noise(31, 47, 3)
    grey = cv2.cvtColor(picture, cv2.COLOR_BGR2GRAY).astype(int)[:, :, None]
    assert np.abs(run(step_of("saturation(factor=0)"), picture) - grey).max() <= 1
    assert colour("saturation(factor=2)", 100, 120, 140) == [76, 116, 156]


def hue_of(bgr: list[int]) -> float:
    """The H of HSV in degrees."""
    return float(cv2.cvtColor(np.array([[bgr]], np.float32) / 255, cv2.COLOR_BGR2HSV)[0, 0, 0])


@pytest.mark.parametrize(
    ("bgr", "towards"), [((0, 0, 200), 60), ((0, 200, 0), 180), ((200, 0, 0), 300)], ids=["red", "green", "blue"]
)
def test_positive_degrees_turn_colours_as_hsv_counts(bgr: tuple[int, int, int], towards: int) -> None:
    pale = [60 + value // 2 for value in bgr]
    turned = hue_of(colour("hue(degrees=20)", *pale))
    assert abs(turned - towards) < abs(hue_of(pale) - towards)
    assert colour("hue(degrees=-180)", *pale) == colour("hue(degrees=180)", *pale)


def test_a_turn_keeps_luma_and_a_turn_back_the_colour() -> None:
    pale: Pixels = 96 + noise(31, 47, 3) // 4
    for degrees in (1, 45, -90, 137):
        turned = run(step_of(f"hue(degrees={degrees})"), pale)
        luma = [cv2.cvtColor(picture, cv2.COLOR_BGR2GRAY).astype(int) for picture in (pale, turned)]
        assert np.abs(luma[1] - luma[0]).max() <= 1
        back = run(step_of(f"hue(degrees={-degrees})"), turned)
        assert np.abs(back.astype(int) - pale).max() <= 2


def test_a_matrix_is_in_the_order_of_the_channels() -> None:
    assert colour("color_matrix(matrix=[0,0,1, 1,0,0, 0,1,0], offsets=[1,2,3])", 10, 20, 30) == [31, 12, 23]
    picture = noise(31, 47, 3)
    swapped = run(step_of("color_matrix(matrix=[0, 0, 1, 0, 1, 0, 1, 0, 0])"), picture)
    np.testing.assert_array_equal(swapped, picture[:, :, ::-1])


def test_every_map_of_opencv_is_there_and_is_opencvs() -> None:
    names = {name.removeprefix("COLORMAP_").lower() for name in dir(cv2) if name.startswith("COLORMAP_")}
    choices = all_ops()["colormap"].Params.model_json_schema()["properties"]["map"]["enum"]
    assert set(choices) == names
    picture = noise(31, 47, 3)
    grey = run(step_of("grayscale"), picture)
    for name in choices:
        expected = cv2.applyColorMap(grey, getattr(cv2, f"COLORMAP_{name.upper()}"))
        for given_picture in (picture, grey):
            np.testing.assert_array_equal(run(step_of(f"colormap(map={name!r})"), given_picture), expected)


@pytest.mark.parametrize("height", [1, 2, 3, 5])
def test_bands_of_a_colormap_do_not_show(monkeypatch: pytest.MonkeyPatch, height: int) -> None:
    monkeypatch.setattr(colormap_module, "_BAND_PIXELS", 2 * 29)
    for channels in (1, 3):
        check(step_of("colormap(map='jet')"), noise(height, 29, channels))


def test_a_grid_written_out() -> None:
    step = step_of("overlay_grid(spacing=4, thickness=1, color='#ff0000', opacity=0.5)")
    picture = np.full((6, 7, 3), 100, np.uint8)
    drawn = run(step, picture)
    line = np.zeros((6, 7), bool)
    line[[0, 4]] = True
    line[:, [0, 4]] = True
    assert (drawn[line] == [50, 50, 178]).all(), "a crossing is drawn once"
    assert (drawn[~line] == 100).all()
    assert (run(step, picture[:, :, 0])[line] == (100 + 76) // 2).all()


def test_opacity_from_nothing_to_all() -> None:
    picture = noise(31, 47, 3)
    for text in ("overlay_grid(opacity=0)", "overlay_grid(opacity=0, spacing=4, thickness=64)"):
        np.testing.assert_array_equal(run(step_of(text), picture), picture)
    covered = run(step_of("overlay_grid(opacity=1, spacing=4, thickness=4, color='#010203')"), picture)
    assert (covered == [3, 2, 1]).all()


def mask(text: str, height: int, width: int) -> list[str]:
    """Which pixels of a picture a mask fills, as a drawing."""
    drawn = run(step_of(f"privacy_mask({text}, color='#ffffff')"), np.zeros((height, width), np.uint8))
    return ["".join("#" if value else "." for value in line) for line in drawn]


def test_masks_written_out() -> None:
    assert mask("rectangles=[[0.25, 0, 0.5, 0.5]]", 4, 8) == ["..####..", "..####..", "........", "........"]
    # A pixel whose centre is on the left edge is hidden, on the right edge it is not.
    assert mask("unit='px', rectangles=[[1.5, 1.51, 2, 16384]]", 4, 5) == [".....", ".....", ".##..", ".##.."]
    triangle = "unit='px', rectangles=[], polygons=[[[0, 0], [6, 0], [0, 6]]]"
    assert mask(triangle, 6, 6) == ["#####.", "####..", "###...", "##....", "#.....", "......"]
    # Around twice is outside, by the even-odd rule; but two regions over each other stay hidden.
    assert mask("rectangles=[], polygons=[[[0,0],[1,0],[1,1],[0,1],[0,0],[1,0],[1,1],[0,1]]]", 2, 2) == ["..", ".."]
    square = "[[0,0],[1,0],[1,1],[0,1]]"
    assert mask(f"rectangles=[[0,0,0.5,1]], polygons=[{square}, {square}]", 2, 2) == ["##", "##"]
    assert mask("rectangles=[]", 2, 2) == ["..", ".."]


def test_fractions_follow_the_size_and_cover_to_the_last_pixel() -> None:
    for height, width in ((1, 1), (3, 7), (101, 64)):
        assert set("".join(mask("rectangles=[[0, 0, 1, 1]]", height, width))) == {"#"}
        assert set("".join(mask("rectangles=[], polygons=[[[0,0],[1,0],[1,1],[0,1]]]", height, width))) == {"#"}


def test_blocks_hold_one_colour_each_and_are_near_their_mean() -> None:
    rows, columns = np.mgrid[0:50, 0:70]
    smooth = np.stack([rows * 2, columns * 3, rows + columns], axis=2).astype(np.uint8)
    made = run(step_of("privacy_mask(mode='pixelate', rectangles=[[0, 0, 1, 1]], block=16)"), smooth)
    for top in range(0, 50, 16):
        for left in range(0, 70, 16):
            part = made[top : top + 16, left : left + 16]
            assert (part == part[0, 0]).all()
            assert np.abs(part[0, 0] - smooth[top : top + 16, left : left + 16].mean(axis=(0, 1))).max() <= 2


@pytest.mark.parametrize("channels", [1, 3])
def test_random_regions_are_exact(channels: int) -> None:
    random = np.random.default_rng(7)
    for height, width in ((1, 1), (33, 57), (64, 20)):
        for mode in ("fill", "pixelate"):
            for unit, most in (("fraction", 1.0), ("px", 80.0)):
                # Some on centres and corners of pixels, where comparisons are equal.
                polygons = [(random.random((points, 2)) * most).round(digits).tolist() for points, digits in
                            ((3, 9), (16, 1), (5, 0))]  # fmt: skip
                rectangles = (random.random((2, 4)) * most).round(1).tolist()
                text = (
                    f"privacy_mask(unit={unit!r}, mode={mode!r}, block=11, rectangles={rectangles}, "
                    f"polygons={polygons}, color='#20a0f0')"
                )
                check(step_of(text), noise(height, width, channels))


@pytest.mark.parametrize("name", ["rectangles", "polygons"])
def test_places_beyond_the_picture_are_refused_where_they_would_silently_mask_nothing(name: str) -> None:
    value: Any = [[100, 100, 300, 200]] if name == "rectangles" else [[[0, 0], [100, 1], [1, 300]]]
    with pytest.raises(InputError) as caught:
        make_chain([{"op": "privacy_mask", "params": {name: value}}])
    assert caught.value.field == f"ops[0].params.{name}"
    assert 'unit="px"' in caught.value.reason
    make_chain([{"op": "privacy_mask", "params": {"unit": "px", name: value}}])


def test_the_largest_pictures_do_not_overflow() -> None:
    rectangles, polygon = ((0.0, 0.0, 1.0, 1.0),), ((0.0, 0.0), (1.0, 0.0), (1.0, 1.0))
    for width, height in ((16384, 3), (3, 16384)):
        assert regions.boxes(rectangles, (), "fraction", width, height, height) == ((0, height, 0, width),)
        covered = sum(
            (box.bottom - box.top) * (box.right - box.left)
            for box in regions.boxes((), (polygon,), "fraction", width, height, height)
        )
        assert abs(covered / (width * height) - 0.5) < 0.01
