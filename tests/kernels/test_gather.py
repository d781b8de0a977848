"""What the ops that move pixels promise beyond what every op does."""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np
import pytest

from kernels import sampling
from kernels.chain import Step, parse_chain
from kernels.errors import InputError
from kernels.image import MAX_SIDE_PX, Pixels, Shape
from kernels.op import Scratch
from kernels.ops.letterbox import placement
from kernels.ops.undistort import UndistortParams, arc_tangent, bent
from tests.kernels.oracles import oracle_op
from tests.kernels.oracles_gather import FARTHEST_STEPS, USUAL_STEPS


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


@pytest.mark.parametrize("text", USUAL_STEPS)
@pytest.mark.parametrize("channels", [1, 3])
def test_points_between_pixels_are_exact(channels: int, text: str) -> None:
    step = step_of(text)
    for size in ((48, 64), (17, 131), (1, 1)):
        picture = noise(*size, channels)
        expected = oracle_op(step.op.name, picture, step.params.model_dump())
        np.testing.assert_array_equal(run(picture, text), expected)


@pytest.mark.parametrize("text", FARTHEST_STEPS)
def test_the_farthest_points_of_the_longest_sides_do_not_overflow(text: str) -> None:
    step = step_of(text)
    for size in ((16384, 2), (2, 16384)):
        picture = noise(*size, 1)
        expected = oracle_op(step.op.name, picture, step.params.model_dump())
        np.testing.assert_array_equal(run(picture, text), expected)


@pytest.mark.parametrize("rows", [1, 50, 1000])
def test_bands_of_points_do_not_show(monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    picture = noise(48, 64)
    expected = [run(picture, text) for text in USUAL_STEPS]
    monkeypatch.setattr(sampling, "_BAND_POINTS", rows)
    for text, result in zip(USUAL_STEPS, expected, strict=True):
        np.testing.assert_array_equal(run(picture, text), result)


SINGULAR = ("[1, 2, 0, 2, 4, 0]", "[0, 0, 0, 0, 0, 0]", "[1e-6, 0, 0, 0, 1e-6, 0]", "[1e-5, 0, 1e6, 0, 1, 0]")


@pytest.mark.parametrize("matrix", SINGULAR)
def test_a_matrix_without_a_way_back_is_refused(matrix: str) -> None:
    with pytest.raises(InputError, match="singular") as caught:
        parse_chain(f"warp_affine(matrix={matrix})")
    assert caught.value.field == "chain[0].params.matrix"


@pytest.mark.parametrize(
    ("text", "field", "why"),
    [
        ("warp_perspective(matrix=[1, 2, 3, 4, 5, 6, 7, 8, 9])", "matrix", "singular"),
        ("warp_perspective(matrix=[0, 0, 0, 0, 0, 0, 0, 0, 0])", "matrix", "singular"),
        ("warp_perspective(matrix=[1, 2, 3])", "matrix", "at least 9 items"),
        ("warp_perspective(corners=[0, 0, 9, 0, 9, 9])", "corners", "eight numbers, not 6"),
        ("warp_perspective(corners=[0, 0, 9, 9, 9, 0, 0, 9])", "corners", "convex"),  # a bow tie
        ("warp_perspective(corners=[0, 0, 9, 0, 2, 2, 0, 9])", "corners", "convex"),  # an arrowhead
        ("warp_perspective(corners=[0, 0, 5, 0, 9, 0, 0, 9])", "corners", "convex"),  # three on a line
        ("warp_perspective(corners=[1, 1, 1, 1, 1, 1, 1, 1])", "corners", "convex"),
        (
            "warp_perspective(corners=[0, 0, 9, 0, 9, 9, 0, 9], matrix=[2, 0, 0, 0, 1, 0, 0, 0, 1])",
            "matrix", "exclude each other",
        ),
        ("undistort(camera=[0, 100, 50, 50])", "camera", "fx and fy must be at least 1 px"),
        ("undistort(coefficients=[0, 0, 0, 0, 0, 0])", "coefficients", "4 or 5 or 8 or 12 coefficients, not 6"),
        ("undistort(model='fisheye', coefficients=[0, 0, 0, 0, 0])", "coefficients", "4 coefficients, not 5"),
    ],
)  # fmt: skip
def test_what_leads_nowhere_is_refused_with_what_is_wrong(text: str, field: str, why: str) -> None:
    with pytest.raises(InputError, match=why) as caught:
        parse_chain(text)
    assert caught.value.field == f"chain[0].params.{field}"


def test_moving_by_whole_pixels_is_a_copy() -> None:
    picture = noise(20, 30)
    moved = run(picture, "warp_affine(matrix=[1, 0, 10, 0, 1, -5], fill='#010203')")
    np.testing.assert_array_equal(moved[:15, 10:], picture[5:, :20])
    assert (moved[15:] == (3, 2, 1)).all()
    assert (moved[:, :10] == (3, 2, 1)).all()


@pytest.mark.parametrize("interpolation", ["nearest", "linear"])
@pytest.mark.parametrize("channels", [1, 3])
def test_quarter_turns_of_a_square_by_an_angle_are_quarter_turns(channels: int, interpolation: str) -> None:
    for side in (1, 8, 31):
        picture = noise(side, side, channels)
        for degrees in (-360, -90, 0, 90, 180, 270):
            turned = run(picture, f"rotate_angle(degrees={degrees}, interpolation={interpolation!r})")
            np.testing.assert_array_equal(turned, run(picture, f"rotate(degrees={degrees % 360})"))


SMOOTH: Pixels = cv2.GaussianBlur(noise(90, 130), (0, 0), 4).astype(np.uint8)


def near(result: Pixels, expected: Any) -> None:
    """Apart from borders, where methods differ: one level for weights of another precision."""
    difference = cv2.absdiff(result, expected)
    assert np.quantile(difference, 0.97) <= 1
    assert difference.mean() < 0.6


def test_warps_are_opencvs() -> None:
    """A second opinion on directions and centres, with OpenCV's own precision."""
    matrix = [0.9, 0.3, 4.5, -0.25, 1.1, 7.25]
    opencv = np.array(matrix).reshape(2, 3)
    for border, code in (("constant", cv2.BORDER_CONSTANT), ("reflect_101", cv2.BORDER_REFLECT_101)):
        result = run(SMOOTH, f"warp_affine(matrix={matrix}, border={border!r})")
        near(result, cv2.warpAffine(SMOOTH, opencv, (130, 90), flags=cv2.INTER_LINEAR, borderMode=code))
        assert run(SMOOTH, f"warp_affine(matrix={matrix}, width=50, height=200)").shape == (200, 50, 3)
        turn = cv2.getRotationMatrix2D((64.5, 44.5), -17.5, 1.25)
        result = run(SMOOTH, f"rotate_angle(degrees=17.5, scale=1.25, border={border!r})")
        near(result, cv2.warpAffine(SMOOTH, turn, (130, 90), flags=cv2.INTER_LINEAR, borderMode=code))


def test_a_perspective_is_opencvs() -> None:
    matrix = np.array([[1.1, 0.2, -6.0], [-0.1, 0.9, 8.0], [0.001, -0.0005, 1.0]])
    text = f"warp_perspective(matrix={matrix.ravel().tolist()})"
    near(run(SMOOTH, text), cv2.warpPerspective(SMOOTH, matrix, (130, 90)))
    corners = np.array([[10, 8], [100, 20], [90, 80], [5, 70]], np.float32)
    to = np.array([[0, 0], [69, 0], [69, 49], [0, 49]], np.float32)
    expected = cv2.warpPerspective(SMOOTH, cv2.getPerspectiveTransform(corners, to), (70, 50))
    text = f"warp_perspective(corners={corners.ravel().tolist()}, width=70, height=50)"
    near(run(SMOOTH, text), expected)


@pytest.mark.parametrize("size", [(1, 1), (1, 9), (48, 64), (480, 641)])
def test_the_pictures_own_corners_and_a_lens_that_bends_nothing_are_copies(size: tuple[int, int]) -> None:
    picture = noise(*size)
    right, bottom = size[1] - 1, size[0] - 1
    if right and bottom:
        corners = [0, 0, right, 0, right, bottom, 0, bottom]
        np.testing.assert_array_equal(run(picture, f"warp_perspective(corners={corners})"), picture)
        corners = [right, 0, 0, 0, 0, bottom, right, bottom]
        np.testing.assert_array_equal(run(picture, f"warp_perspective(corners={corners})"), picture[:, ::-1])
    np.testing.assert_array_equal(run(picture, "warp_perspective(matrix=[-2, 0, 0, 0, -2, 0, 0, 0, -2])"), picture)
    np.testing.assert_array_equal(run(picture, "undistort(coefficients=[0, 0, 0, 0])"), picture)


LENSES = {
    "pinhole of 4": ("pinhole", (-0.28, 0.07, 0.0003, -0.0002)),
    "pinhole of 5": ("pinhole", (-0.35, 0.15, 0.0003, -0.0002, -0.03)),
    "pinhole of 8": ("pinhole", (2.5, 1.5, 0.0001, 0.0002, 0.1, 2.8, 2.1, 0.4)),
    "pinhole of 12": ("pinhole", (-0.3, 0.1, 0.001, -0.002, 0.03, 0.1, 0.05, -0.01, 0.002, -0.0003, 0.001, 0.0002)),
    "fisheye": ("fisheye", (-0.012, 0.004, -0.003, 0.0006)),
}


@pytest.mark.parametrize("lens", LENSES)
@pytest.mark.parametrize(("width", "height"), [(1920, 1080), (3840, 2160)])
def test_points_of_a_lens_are_opencvs_to_a_32nd_of_a_pixel(lens: str, width: int, height: int) -> None:
    """A calibration at 1920x1080, for pictures of that size and of twice that; OpenCV computes in 64-bit floats."""
    model, coefficients = LENSES[lens]
    focal, centre, times = (1010.0, 1005.5), (948.25, 551.5), width / 1920
    params = UndistortParams.model_validate({"model": model, "camera": (*focal, *centre), "coefficients": coefficients})
    camera = np.array([
        [focal[0] * times, 0, (centre[0] + 0.5) * times - 0.5], [0, focal[1] * times, (centre[1] + 0.5) * times - 0.5],
        [0, 0, 1],
    ])  # fmt: skip
    maps: Any = cv2.fisheye if model == "fisheye" else cv2
    of_opencv = maps.initUndistortRectifyMap(
        camera, np.array(coefficients), np.eye(3), camera, (width, height), cv2.CV_32FC1
    )
    for first in (0, height // 2, height - 40):
        for ours, expected in zip(bent(params, width, height, first, first + 40), of_opencv, strict=True):
            assert np.abs(ours / 32 - expected[first : first + 40]).max() < 1 / 64 + 1 / 256


@pytest.mark.parametrize("zoom", [0.5, 1.0, 2.0])
def test_zoom_scales_about_the_principal_point(zoom: float) -> None:
    params = UndistortParams(
        camera=(50, 50, 20, 10), coefficients=(0,) * 4, calibrated_width=0, calibrated_height=0, zoom=zoom
    )
    x, y = bent(params, 41, 21, 0, 21)
    assert (x[10, 20], y[10, 20]) == (20 * 32, 10 * 32)
    assert abs(x[0, 40] - (20 + 20 / zoom) * 32) <= 1
    assert abs(y[0, 40] - (10 - 10 / zoom) * 32) <= 1


def test_the_arc_tangent_is_one() -> None:
    r = np.concatenate([np.linspace(0, 4, 10_001), np.logspace(0.5, 8, 1000)]).astype(np.float32)
    np.testing.assert_allclose(
        arc_tangent(r + np.float32(1e-30)), np.arctan(r.astype(np.float64)), rtol=3e-7, atol=1e-20
    )


FAR = ("[1, 0, 1e6, 0, 1, -1e6]", "[4e-5, 0, 0, 0, 4e-5, 0]", "[1e6, 0, 0, 0, 1e6, 0]", "[1, 1e4, 0, 1e4, 1, 5e5]")


@pytest.mark.parametrize("border", ["constant", "replicate", "reflect_101"])
@pytest.mark.parametrize("size", [(1, 1), (1, 7), (2, 2), (40, 3)])
def test_points_however_far_away_are_what_the_border_says(size: tuple[int, int], border: str) -> None:
    for matrix in FAR:
        for interpolation in ("nearest", "linear"):
            step = step_of(f"warp_affine(matrix={matrix}, border={border!r}, interpolation={interpolation!r})")
            for channels in (1, 3):
                picture = noise(*size, channels)
                expected = oracle_op("warp_affine", picture, step.params.model_dump())
                np.testing.assert_array_equal(run(picture, str(step)), expected)


def test_the_map_is_made_once_and_again_when_anything_it_depends_on_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    made = 0
    fill_map = sampling._fill_map

    def counted(*args: Any) -> None:
        nonlocal made
        made += 1
        fill_map(*args)

    monkeypatch.setattr(sampling, "_fill_map", counted)
    scratch = Scratch()
    texts = [
        "rotate_angle(degrees=10)", "rotate_angle(degrees=20)", "rotate_angle(degrees=20, scale=2)",
        "rotate_angle(degrees=20, interpolation='nearest')", "rotate_angle(degrees=20, border='reflect_101')",
        "warp_affine(matrix=[1, 0.5, 0, 0, 1, 0])", "warp_affine(matrix=[1, 0.5, 0, 0, 1, 0], height=17)",
    ]  # fmt: skip
    for number, text in enumerate([*texts, *texts], start=1):
        for picture in (noise(31, 47), noise(31, 47, 1)):  # of the same size: one map
            step = step_of(text)
            expected = oracle_op(step.op.name, picture, step.params.model_dump())
            np.testing.assert_array_equal(run(picture, text, scratch), expected)
        assert made == min(number, 12)  # the warps' two maps were still there
    run(noise(32, 47), texts[0], scratch)
    assert made == 13
    run(noise(31, 47), f"{texts[0][:-1]}, fill='#ffffff')", Scratch())
    assert made == 14  # nothing is shared between executors


def test_a_moving_slider_keeps_two_maps_and_no_more() -> None:
    scratch, picture = Scratch(), noise(64, 48)
    for degrees in range(5):
        run(picture, f"rotate_angle(degrees={degrees})", scratch)
    assert len([name for name in scratch._buffers if name.endswith(".pixels")]) == 2
