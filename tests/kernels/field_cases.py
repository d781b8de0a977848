"""The field cases that every executor must pass: a test class takes them over and gives its ``device`` as a fixture.

Each result is compared with the integer oracle and, beyond that, with what the case says in so many words.
"""

from __future__ import annotations

from dataclasses import replace

import cv2
import numpy as np
import pytest

from kernels.chain import Chain
from kernels.device import Device
from kernels.formats import BGR8, FORMATS, GRAY8, I420, NV12, RGB8, UYVY, YUYV, Matrix, PixelFormat, Range
from kernels.image import ImageSpec, ImageView, Pixels
from tests.kernels.cases import (
    TINY_SIZES,
    SourceCase,
    check_exact,
    paint_bars,
    paint_constant,
    paint_random,
)
from tests.kernels.oracles import LUMA_WEIGHTS
from tests.kernels.oracles_depth import level
from tests.kernels.oracles_gather import USUAL_STEPS
from tests.kernels.strategies import DRAWING_OPS, steps_for

ANY_FORMAT = pytest.mark.parametrize("format", FORMATS.values(), ids=str)
YUV_FORMAT = pytest.mark.parametrize("format", [f for f in FORMATS.values() if f.is_yuv], ids=str)

# Ops that leave a picture of one value as it is, whatever their parameters.
KEEP_CONSTANTS = {
    "auto_contrast", "auto_white_balance", "bilateral", "box_blur", "close", "crop", "dilate", "equalize_histogram",
    "erode", "flip", "gaussian_blur", "median", "open", "resize", "rotate", "sharpen", "temporal_denoise",
    "unsharp_mask",
}  # fmt: skip

# Blue, green, red.
PATCHES = {"red": (0, 0, 255), "green": (0, 255, 0), "blue": (255, 0, 0), "yellow": (0, 255, 255),
           "cyan": (255, 255, 0), "magenta": (255, 0, 255), "white": (255, 255, 255), "black": (0, 0, 0)}  # fmt: skip


def with_strides(spec: ImageSpec, *strides: int) -> ImageSpec:
    """The same picture with these strides in bytes, planes one behind the other."""
    offsets, end = [], 0
    for layout, stride in zip(spec.format.planes, strides, strict=True):
        offsets.append(end)
        end += stride * layout.rows(spec.height)
    return replace(spec, offsets=tuple(offsets), strides=strides)


def encode(bgr: tuple[int, int, int], matrix: Matrix, value_range: Range) -> tuple[int, ...]:
    """Y, U and V of a colour by the standard's own formula, rounded."""
    kr, kg, kb = (float(k) for k in LUMA_WEIGHTS[matrix])
    blue, green, red = (value / 255 for value in bgr)
    luma = kr * red + kg * green + kb * blue
    u, v = (blue - luma) / (2 * (1 - kb)), (red - luma) / (2 * (1 - kr))
    full = value_range is Range.FULL
    codes = (255 * luma, 128 + 255 * u, 128 + 255 * v) if full else (16 + 219 * luma, 128 + 224 * u, 128 + 224 * v)
    return tuple(min(max(round(code), 0), 255) for code in codes)


def check_bars(device: Device, spec: ImageSpec) -> None:
    """Vertical bars stay vertical, in the right place and colour."""
    result = check_exact(device, spec, "", paint_bars)
    black, white = (0, 255) if spec.format.is_yuv else (16, 235)
    row = np.where(np.arange(spec.width) // 8 % 2 == 0, black, white)
    assert (result == (row[:, None] if result.ndim == 3 else row)).all()


def first_pixel(device: Device, spec: ImageSpec, chain: str, *codes: int) -> list[int]:
    """The colour of a picture of one colour, after a chain; all its pixels are the same."""
    result = check_exact(device, spec, chain, paint_constant(*codes))
    assert (result == result[0, 0]).all()
    return [int(value) for value in np.atleast_1d(result[0, 0])]


class FieldCases:
    @pytest.mark.parametrize(("width", "height", "stride"), [(424, 240, 424), (424, 240, 432), (1366, 768, 1408)])
    def test_b58_nv12_of_any_width_keeps_its_rows_upright(
        self, device: Device, width: int, height: int, stride: int
    ) -> None:
        spec = with_strides(ImageSpec.make(NV12, width, height), stride, stride)
        check_bars(device, spec)
        check_exact(device, spec, "")

    @pytest.mark.parametrize(
        ("format", "width", "height", "strides"),
        [
            (YUYV, 720, 576, (1440,)),
            (YUYV, 720, 576, (1472,)),
            (UYVY, 720, 576, (1472,)),
            (RGB8, 721, 57, (2176,)),
            (I420, 1280, 720, (1344, 672)),
            (I420, 1280, 720, (1280, 704, 768)),
            (NV12, 1280, 72, (1344, 1280)),
            (GRAY8, 1280, 72, (1344,)),
            (BGR8, 720, 57, (2161,)),
        ],
        ids=str,
    )
    def test_b59_strides_are_those_given_and_padding_never_shows(
        self, device: Device, format: PixelFormat, width: int, height: int, strides: tuple[int, ...]
    ) -> None:
        strides += strides[-1:] * (len(format.planes) - len(strides))
        spec = with_strides(ImageSpec.make(format, width, height), *strides)
        check_bars(device, spec)
        for chain in ("", "gaussian_blur(ksize=9)"):
            check_exact(device, spec, chain)

    @ANY_FORMAT
    @pytest.mark.parametrize("size", [(641, 479), (1, 1), (3, 1), (1, 3), (5, 5), (2, 3), (3, 2)], ids=str)
    def test_b60_odd_sizes_have_whole_chroma(self, device: Device, format: PixelFormat, size: tuple[int, int]) -> None:
        for alignment, offset in ((1, 0), (1, 1), (128, 0)):
            check_exact(device, SourceCase(format, *size, alignment, offset).spec(), "")
            check_exact(device, SourceCase(format, *size, alignment, offset).spec(), "sobel")
        check_exact(device, SourceCase(format, *size).spec(), "flip | sharpen | resize(width=9)")

    @pytest.mark.parametrize(
        ("format", "width", "height", "stride"),
        [(BGR8, 638, 480, 1916), (GRAY8, 723, 480, 724), (BGR8, 1, 9, 4), (GRAY8, 1, 9, 4)],
        ids=str,
    )
    def test_b61_rows_aligned_to_4_bytes_are_not_skewed(
        self, device: Device, format: PixelFormat, width: int, height: int, stride: int
    ) -> None:
        spec = ImageSpec.make(format, width, height, row_alignment=4)
        assert spec.strides == (stride,)
        check_bars(device, spec)
        check_exact(device, spec, "gamma(gamma=2)")

    @ANY_FORMAT
    def test_b71_a_picture_may_start_at_any_byte(self, device: Device, format: PixelFormat) -> None:
        for offset in (1, 2, 3, 5, 7, 8, 15):
            for width in (10, 11):
                for chain in ("", "sobel", "gaussian_blur(ksize=3)", "grayscale | flip(direction='both')"):
                    check_exact(device, SourceCase(format, width, 7, 1, offset).spec(), chain)

    @pytest.mark.parametrize("format", [GRAY8, BGR8], ids=str)
    def test_b89_and_b91_results_saturate_and_never_wrap(self, device: Device, format: PixelFormat) -> None:
        spec = ImageSpec.make(format, 37, 5)
        for value, chain, expected in (
            (255, "gaussian_blur(ksize=3)", 255),
            (255, "gaussian_blur(ksize=31, sigma=50)", 255),
            (250, "gain_offset(offset=50)", 255),
            (200, "gain_offset(offset=100)", 255),
            (255, "gain_offset(gain=1.1)", 255),
            (128, "gain_offset(gain=2)", 255),
            (255, "gain_offset(gain=16, offset=255)", 255),
            (255, "gamma(gamma=0.5)", 255),
            (0, "gain_offset(offset=-255)", 0),
            (255, "gain_offset(gain=0, offset=-1)", 0),
            (255, "sharpen", 255),
            (0, "invert", 255),
            (255, "invert", 0),
            (128, "threshold(threshold=127, max_value=250)", 250),
            (127, "threshold(threshold=127, max_value=250)", 0),
            (255, "resize(width=90, height=70)", 255),
            (255, "resize(width=7, height=3, interpolation='area')", 255),
        ):
            assert set(first_pixel(device, spec, chain, *[value] * format.channels)) == {expected}, (value, chain)

        def paint_checks(view: ImageView) -> None:
            view.plane(0)[...] = 0
            view.plane(0)[:, 18:] = 255

        edges = check_exact(device, spec, "sobel", paint_checks)
        assert (edges[:, 17:19] == 255).all()
        assert not edges[:, :17].any()
        # 0 - 255 and 5·255 - 3·255 beside the edge: neither wraps.
        sharp = check_exact(device, spec, "sharpen", paint_checks)
        assert not sharp[:, :18].any()
        assert (sharp[:, 18:] == 255).all()

    @pytest.mark.parametrize("format", [GRAY8, BGR8], ids=str)
    def test_b90_borders_are_reflect_101_and_windows_are_not_flipped(self, device: Device, format: PixelFormat) -> None:
        """An impulse in each corner and on each edge, through every op that looks at neighbours."""
        width, height = 45, 38
        spec = ImageSpec.make(format, width, height)
        for y in (0, 1, height // 2, height - 2, height - 1):
            for x in (0, 1, width // 2, width - 2, width - 1):

                def paint(view: ImageView, y: int = y, x: int = x) -> None:
                    view.plane(0)[...] = 0
                    view.plane(0)[y, x] = (30, 255, 90) if format.channels == 3 else 255

                for chain in ("gaussian_blur(ksize=5)", "gaussian_blur(ksize=31, sigma=9)", "sobel", "sharpen"):
                    check_exact(device, spec, chain, paint)

    def test_b90_the_border_written_out(self, device: Device) -> None:
        """1 2 3 | taps 1 2 1: the left neighbour of the first pixel is the second one again."""

        def paint(view: ImageView) -> None:
            view.plane(0)[...] = np.array([[0, 100, 200]], np.uint8)

        result = check_exact(device, ImageSpec.make(GRAY8, 3, 1), "gaussian_blur(ksize=3)", paint)
        assert result.tolist() == [[50, 100, 150]]

    @ANY_FORMAT
    def test_b92_constants_are_preserved(self, device: Device, format: PixelFormat) -> None:
        """Whatever an op does to one value, it does to a picture of one value, borders included."""
        spec = ImageSpec.make(format, 67, 41)
        for step in steps_for(format):
            chain = Chain((step,))
            for value in (0, 1, 17, 128, 254, 255):
                result = check_exact(device, spec, chain, paint_constant(*[value] * format.channels))
                assert (result == result[0, 0]).all() or step.op.name in DRAWING_OPS, str(chain)
                if step.op.name in KEEP_CONSTANTS and not format.is_yuv:
                    assert (result == value * level(result)).all(), str(chain)

    @ANY_FORMAT
    def test_b92_neutral_parameters_change_nothing(self, device: Device, format: PixelFormat) -> None:
        spec = ImageSpec.make(format, 67, 41)
        plain = check_exact(device, spec, "", paint_random(92))
        for chain in (
            "gamma(gamma=1)", "gain_offset(gain=1, offset=0)", "gaussian_blur(ksize=1, sigma=9)", "resize",
            "resize(width=67, interpolation='area')", "resize(height=41, interpolation='nearest')",
            "flip(direction='both') | flip(direction='both')", "invert | invert",
        ):  # fmt: skip
            np.testing.assert_array_equal(check_exact(device, spec, chain, paint_random(92)), plain, chain)

    def test_b95_negative_brightness_makes_dark_pixels_black(self, device: Device) -> None:
        spec = ImageSpec.make(BGR8, 9, 4)
        assert first_pixel(device, spec, "gain_offset(offset=-100)", 50, 99, 101) == [0, 0, 1]
        assert first_pixel(device, spec, "gain_offset(gain=0.5, offset=-255)", 1, 128, 255) == [0, 0, 0]

    @YUV_FORMAT
    @pytest.mark.parametrize("matrix", Matrix)
    def test_b98_the_range_is_the_one_given(self, device: Device, format: PixelFormat, matrix: Matrix) -> None:
        case = SourceCase(format, 18, 6)
        for y, limited in ((16, 0), (235, 255), (0, 0), (255, 255), (128, 130)):
            assert first_pixel(device, case.spec(matrix, Range.LIMITED), "", y, 128, 128) == [limited] * 3
            assert first_pixel(device, case.spec(matrix, Range.FULL), "", y, 128, 128) == [y] * 3

    @YUV_FORMAT
    def test_b100_colours_come_out_by_the_matrix_they_were_made_with(self, device: Device, format: PixelFormat) -> None:
        case = SourceCase(format, 18, 6)
        for matrix in Matrix:
            other = Matrix.BT601 if matrix is Matrix.BT709 else Matrix.BT709
            for value_range in Range:
                off = 0
                for bgr in PATCHES.values():
                    codes = encode(bgr, matrix, value_range)
                    got = first_pixel(device, case.spec(matrix, value_range), "", *codes)
                    assert max(abs(a - b) for a, b in zip(got, bgr, strict=True)) <= 2
                    wrong = first_pixel(device, case.spec(other, value_range), "", *codes)
                    off = max(off, *(abs(a - b) for a, b in zip(wrong, bgr, strict=True)))
                assert off > 15, "the other matrix must give other colours"

    @pytest.mark.parametrize("matrix", Matrix)
    @pytest.mark.parametrize("value_range", Range)
    def test_b101_every_yuv_layout_gives_the_same_colours(
        self, device: Device, matrix: Matrix, value_range: Range
    ) -> None:
        """The same samples as NV12, I420 and, where each pair of rows has the same chroma, YUYV and UYVY."""
        random = np.random.default_rng(101)
        y = random.integers(0, 256, (34, 46), np.uint8)
        u, v = random.integers(0, 256, (2, 17, 23), np.uint8)

        def paint(view: ImageView) -> None:
            if view.spec.format in (YUYV, UYVY):
                groups, luma = view.plane(0), 0 if view.spec.format is YUYV else 1
                groups[:, :, luma], groups[:, :, luma + 2] = y[:, 0::2], y[:, 1::2]
                groups[:, :, 1 - luma], groups[:, :, 3 - luma] = u.repeat(2, axis=0), v.repeat(2, axis=0)
            elif view.spec.format is NV12:
                view.plane(0)[...], view.plane(1)[...] = y, np.stack([u, v], axis=-1)
            else:
                for plane, samples in zip(view.planes, (y, u, v), strict=True):
                    plane[...] = samples

        results = [
            check_exact(device, SourceCase(f, 46, 34, 64).spec(matrix, value_range), "", paint)
            for f in (NV12, I420, YUYV, UYVY)
        ]
        for other in results[1:]:
            np.testing.assert_array_equal(results[0], other)

    def test_b101_red_comes_first_in_rgb(self, device: Device) -> None:
        assert first_pixel(device, SourceCase(RGB8, 18, 6).spec(), "", 10, 20, 250) == [10, 20, 250]
        spec = SourceCase(RGB8, 18, 6).spec()

        def paint(view: ImageView) -> None:
            view.plane(0)[...] = (255, 0, 0)

        assert check_exact(device, spec, "", paint)[3, 9].tolist() == [0, 0, 255]
        assert check_exact(device, spec, "grayscale", paint)[3, 9] == 76  # 0.299 · 255 = 76.2

    @YUV_FORMAT
    def test_b101_u_comes_before_v(self, device: Device, format: PixelFormat) -> None:
        """A red patch is red; with U and V swapped it would be blue."""
        spec = SourceCase(format, 18, 6).spec(Matrix.BT601)
        blue, green, red = first_pixel(device, spec, "", *encode(PATCHES["red"], Matrix.BT601, Range.LIMITED))
        assert red > 250
        assert max(blue, green) < 5

    @YUV_FORMAT
    @pytest.mark.parametrize(("matrix", "blue", "red"), [(Matrix.BT601, 225, 178), (Matrix.BT709, 236, 200)])
    def test_b103_full_range_chroma_has_its_own_scale(
        self, device: Device, format: PixelFormat, matrix: Matrix, blue: int, red: int
    ) -> None:
        """127 · 1.772 = 225.0 and 127 · 1.402 = 178.1 for BT.601; 127 · 1.8556 = 235.7 and 127 · 1.5748 = 200.0."""
        spec = SourceCase(format, 18, 6).spec(matrix, Range.FULL)
        assert first_pixel(device, spec, "", 0, 255, 128) == [blue, 0, 0]
        assert first_pixel(device, spec, "", 0, 128, 255) == [0, 0, red]

    @ANY_FORMAT
    def test_b117_an_empty_chain_passes_pixels_through(self, device: Device, format: PixelFormat) -> None:
        spec = SourceCase(format, 97, 31, 13, 3).spec()
        result = check_exact(device, spec, Chain(), paint_random(117))
        if not format.is_yuv:
            view = ImageView(spec, np.empty(spec.nbytes, np.uint8))
            paint_random(117)(view)
            np.testing.assert_array_equal(result, view.plane(0)[..., ::-1] if format is RGB8 else view.plane(0))

    @pytest.mark.parametrize("format", [GRAY8, BGR8], ids=str)
    @pytest.mark.parametrize(
        ("size", "to"), [((800, 534), (224, 224)), ((720, 480), (224, 149)), ((480, 7), (500, 9))], ids=str
    )
    def test_b123_resizing_has_half_pixel_centres_and_is_near_opencv(
        self, device: Device, format: PixelFormat, size: tuple[int, int], to: tuple[int, int]
    ) -> None:
        """A checkerboard and a ramp; the oracle's own half-pixel centres are checked against OpenCV's."""
        spec = ImageSpec.make(format, *size)
        y, x = np.mgrid[0 : size[1], 0 : size[0]]
        ramp = (x * 255 // (size[0] - 1) + y) % 256
        for picture in ((x // 8 + y // 8) % 2 * 255, ramp):
            grey = picture.astype(np.uint8)

            def paint(view: ImageView, grey: Pixels = grey) -> None:
                view.plane(0)[...] = grey if format.channels == 1 else grey[:, :, None]

            for how, code in (("linear", cv2.INTER_LINEAR), ("area", cv2.INTER_AREA)):
                if how == "area" and to > size:
                    continue  # OpenCV's area is another thing where the picture grows
                chain = f"resize(width={to[0]}, height={to[1]}, interpolation='{how}')"
                result = check_exact(device, spec, chain, paint)
                expected = cv2.resize(grey, to, interpolation=code).astype(int)
                off = np.abs((result if format.channels == 1 else result[:, :, 0]) - expected)
                assert off.max() <= 2, how
                assert off.mean() < 0.5, how

    @pytest.mark.parametrize("how", ["nearest", "linear", "area", "cubic"])
    @pytest.mark.parametrize("to", [(50, 30), (224, 224), (64, 48), (40, 96), (321, 50)], ids=str)
    def test_b123_a_dot_stays_where_it_was(self, device: Device, how: str, to: tuple[int, int]) -> None:
        """Its centre of mass is kept at (x + 0.5)·s - 0.5, whichever way the sides change; half-pixel centres."""
        spec = ImageSpec.make(GRAY8, 100, 60)
        middle = (61.5, 21.5)  # of a dot 8 pixels wide
        # Single samples of a smaller picture keep an edge within half a pixel or so; without half-pixel centres the
        # middle would be off by half of 1 - s besides, 0.3 here for linear.
        allowed = {"nearest": 0.5, "linear": 0.15, "area": 0.03, "cubic": 0.2}[how]

        def paint(view: ImageView) -> None:
            view.plane(0)[...] = 0
            view.plane(0)[18:26, 58:66] = 255

        result = check_exact(device, spec, f"resize(width={to[0]}, height={to[1]}, interpolation='{how}')", paint)
        y, x = np.mgrid[0 : to[1], 0 : to[0]]
        mass = result.astype(float) / result.sum()
        for got, was, ratio in ((x, middle[0], to[0] / 100), (y, middle[1], to[1] / 60)):
            assert abs((got * mass).sum() - ((was + 0.5) * ratio - 0.5)) < allowed

    @pytest.mark.parametrize("text", USUAL_STEPS)
    def test_points_between_pixels_are_exact_among_other_ops(self, device: Device, text: str) -> None:
        for format in (BGR8, GRAY8, NV12):
            spec = ImageSpec.make(format, 64, 48)
            check_exact(device, spec, text)
            check_exact(device, spec, f"sobel | {text} | gamma(gamma=1.5) | sharpen")

    @pytest.mark.parametrize("format", [GRAY8, NV12], ids=str)
    def test_b126_a_size_for_one_picture_is_a_size_for_every_picture(self, device: Device, format: PixelFormat) -> None:
        """A chain made for a large picture works on whatever size the camera turns to; the aspect is kept."""
        for (width, height), made in (
            ((320, 240), (64, 48)), ((320, 180), (64, 36)), ((3, 500), (64, 10667)), ((500, 1), (64, 1)),
            ((1, 1), (64, 64)),
        ):  # fmt: skip
            result = check_exact(device, ImageSpec.make(format, width, height), "resize(width=64) | sharpen")
            assert result.shape[1::-1] == made

    @pytest.mark.parametrize("format", [GRAY8, BGR8], ids=str)
    def test_flips_move_each_pixel_to_the_other_side(self, device: Device, format: PixelFormat) -> None:
        for width, height in ((7, 4), (130, 3), (1, 5), (64, 1)):
            spec = SourceCase(format, width, height, 13, 3).spec()
            plain = check_exact(device, spec, "")
            for direction, expected in (
                ("horizontal", plain[:, ::-1]), ("vertical", plain[::-1]), ("both", plain[::-1, ::-1]),
            ):  # fmt: skip
                got = check_exact(device, spec, f"flip(direction='{direction}')")
                np.testing.assert_array_equal(got, expected)

    @ANY_FORMAT
    @pytest.mark.parametrize("size", TINY_SIZES, ids=str)
    def test_b127_pictures_smaller_than_the_window_have_a_defined_result(
        self, device: Device, format: PixelFormat, size: tuple[int, int]
    ) -> None:
        spec = SourceCase(format, *size, 4).spec()
        check_exact(device, spec, "gaussian_blur(ksize=7) | sobel | gamma(gamma=2) | gaussian_blur(ksize=31)")
        for step in steps_for(format):
            check_exact(device, spec, Chain((step,)))
