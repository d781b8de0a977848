from __future__ import annotations

from fractions import Fraction

import pytest

from kernels.errors import UnknownNameError
from kernels.formats import (
    FORMATS,
    Matrix,
    Range,
    YuvCoefficients,
    default_matrix,
    pixel_format,
    yuv_coefficients,
)
from kernels.image import ImageSpec
from tests.kernels.cases import SIZES
from tests.kernels.oracles import packed_size, standard_factors


def test_the_formats_are_the_ones_promised() -> None:
    assert list(FORMATS) == ["BGR8", "RGB8", "GRAY8", "NV12", "I420", "YUYV", "UYVY", "GRAY16", "BGR16"]
    assert all(pixel_format(name) is format and str(format) == name for name, format in FORMATS.items())


@pytest.mark.parametrize(
    ("name", "nearest"), [("NV21", "NV12"), ("nv12", None), ("BGR9", "BGR8"), ("YVYU", "UYVY"), ("", None)]
)
def test_b101_a_name_that_is_not_ours_is_refused_and_never_taken_for_another(name: str, nearest: str | None) -> None:
    with pytest.raises(UnknownNameError) as caught:
        pixel_format(name, "cameras.front.format")
    assert caught.value.field == "cameras.front.format"
    assert caught.value.allowed == "BGR16, BGR8, GRAY16, GRAY8, I420, NV12, RGB8, UYVY, YUYV"
    assert nearest is None or f"did you mean {nearest!r}" in str(caught.value)


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_b60_odd_sizes_have_whole_chroma_groups(name: str, size: tuple[int, int]) -> None:
    spec = ImageSpec.make(FORMATS[name], *size)
    assert spec.pixel_bytes == spec.nbytes == packed_size(spec)
    covered = [
        (layout.x_step * layout.groups(size[0]), layout.y_step * layout.rows(size[1])) for layout in spec.format.planes
    ]
    assert all(size[0] <= x < size[0] + 2 and size[1] <= y < size[1] + 2 for x, y in covered)


def test_video_without_a_label_is_601_below_720_lines_and_709_from_there() -> None:
    assert [default_matrix(h) for h in (1, 719, 720, 2160)] == [Matrix.BT601, Matrix.BT601, Matrix.BT709, Matrix.BT709]
    assert ImageSpec.make(FORMATS["NV12"], 1280, 720).matrix is Matrix.BT709
    assert ImageSpec.make(FORMATS["NV12"], 1280, 719).matrix is Matrix.BT601
    assert ImageSpec.make(FORMATS["NV12"], 1280, 720, matrix=Matrix.BT601).matrix is Matrix.BT601


@pytest.mark.parametrize("matrix", Matrix)
@pytest.mark.parametrize("value_range", Range)
def test_b103_coefficients_are_the_standards_times_2_to_the_15(matrix: Matrix, value_range: Range) -> None:
    """Chroma included: full range scales it by 1, limited range by 255/224 where luma has 255/219."""
    offset, factors = standard_factors(matrix, value_range)
    ours = yuv_coefficients(matrix, value_range)
    assert ours.y_offset == offset
    for name, factor in factors.items():
        assert abs(getattr(ours, name) - factor * 32768) <= Fraction(1, 2), name


def test_the_coefficients_of_the_commonest_video_written_out() -> None:
    """BT.601 limited as every table has it: 1.164, 2.017, -0.392, -0.813, 1.596."""
    expected = YuvCoefficients(y_offset=16, y=38155, bu=66101, gu=-12837, gv=-26639, rv=52299)
    assert yuv_coefficients(Matrix.BT601, Range.LIMITED) == expected
