from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels import color_cpu
from kernels.color_cpu import to_working
from kernels.errors import InputError
from kernels.formats import BGR8, FORMATS, NV12, RGB8, UYVY, YUYV, Matrix, PixelFormat, Range
from kernels.image import VALUE_TYPES, ImageSpec, ImageView, Values
from kernels.op import Scratch
from tests.kernels.cases import LAYOUTS, SIZES, STALE, SourceCase, random_source
from tests.kernels.oracles import oracle_working, yuv_samples, yuv_to_bgr_real
from tests.kernels.oracles_depth import level

VARIANTS = list(product(Matrix, Range))
YUV = [format for format in FORMATS.values() if format.is_yuv]


def convert(source: ImageView, scratch: Scratch | None = None) -> Values:
    """Into stale memory with padded rows at an odd place; asserts that nothing but the picture was written."""
    spec = source.spec
    channels, size = spec.format.channels, spec.format.value_bytes
    shape = (spec.height, spec.width) if channels == 1 else (spec.height, spec.width, channels)
    stride = (spec.width * channels + 7) * size
    buffer = np.full(size + stride * spec.height, STALE, np.uint8)
    strides = (stride, size) if channels == 1 else (stride, channels * size, size)
    out: Values = np.ndarray(shape, VALUE_TYPES[spec.format.depth], buffer, size, strides)
    before = source.buffer.copy()
    to_working(source, out, scratch or Scratch())
    np.testing.assert_array_equal(source.buffer, before, "the source was written")
    result: Values = out.copy()
    out[...] = STALE * level(out)
    assert (buffer == STALE).all(), "written beside the picture"
    return result


@pytest.mark.parametrize("format", FORMATS.values(), ids=str)
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_b58_b59_b60_b61_every_layout_is_exact(format: PixelFormat, size: tuple[int, int]) -> None:
    scratch = Scratch()
    for seed, (layout, variant) in enumerate(product(LAYOUTS, VARIANTS)):
        source = random_source(SourceCase(format, *size, *layout).spec(*variant), seed)
        np.testing.assert_array_equal(convert(source, scratch), oracle_working(source))


@pytest.mark.parametrize("format", YUV, ids=str)
@pytest.mark.parametrize("pixels", [1, 2, 10, 100, 1000, 10_000])
def test_bands_do_not_show(monkeypatch: pytest.MonkeyPatch, format: PixelFormat, pixels: int) -> None:
    monkeypatch.setattr(color_cpu, "BAND_PIXELS", pixels)
    for size in ((1, 9), (33, 1), (33, 7), (34, 64), (101, 99)):
        source = random_source(SourceCase(format, *size, 13, 3).spec())
        np.testing.assert_array_equal(convert(source), oracle_working(source))


def all_codes(format: PixelFormat, matrix: Matrix, value_range: Range, chroma: list[int]) -> ImageView:
    """A picture that holds every luma code with every pair of these chroma codes."""
    pairs = np.array(list(product(chroma, repeat=2)), np.uint8)
    spec = ImageSpec.make(format, 512, 2 * len(pairs), matrix=matrix, range=value_range)
    view = ImageView(spec, np.empty(spec.nbytes, np.uint8))
    luma = np.arange(512, dtype=np.uint16) // 2
    if format in (YUYV, UYVY):
        first_luma = 0 if format is YUYV else 1
        view.plane(0)[:, :, first_luma] = view.plane(0)[:, :, first_luma + 2] = luma[::2]
        view.plane(0)[:, :, 1 - first_luma :: 2] = pairs.repeat(2, axis=0)[:, None, :]
    elif format is NV12:
        view.plane(0)[...] = luma
        view.plane(1)[...] = pairs[:, None, :]
    else:
        view.plane(0)[...] = luma
        view.plane(1)[...], view.plane(2)[...] = pairs[:, :1], pairs[:, 1:]
    return view


@pytest.mark.parametrize("format", YUV, ids=str)
@pytest.mark.parametrize(("matrix", "value_range"), VARIANTS)
def test_all_luma_codes_with_chroma_all_over_are_exact_and_near_the_standard(
    format: PixelFormat, matrix: Matrix, value_range: Range
) -> None:
    """Exactly the integers of the definition, and those within 0.55 level of the standard's real number."""
    source = all_codes(format, matrix, value_range, [*range(0, 256, 17), 1, 16, 127, 128, 129, 240])
    result = convert(source)
    np.testing.assert_array_equal(result, oracle_working(source))
    real = yuv_to_bgr_real(*yuv_samples(source), matrix, value_range)
    assert np.abs(result - real).max() <= 0.55


@pytest.mark.parametrize(("matrix", "value_range"), VARIANTS)
def test_b98_grey_is_neutral_and_its_ends_are_black_and_white(matrix: Matrix, value_range: Range) -> None:
    source = all_codes(NV12, matrix, value_range, [128])
    row = convert(source)[0, ::2]
    assert (row == row[:, :1]).all()
    if value_range is Range.FULL:
        assert row[:, 0].tolist() == list(range(256))
    else:
        assert row[[0, 15, 16, 17, 126, 234, 235, 236, 255], 0].tolist() == [0, 0, 0, 1, 128, 254, 255, 255, 255]


@settings(max_examples=50, deadline=None)
@given(
    st.sampled_from(list(FORMATS.values())),
    st.integers(1, 90),
    st.integers(1, 90),
    st.integers(1, 40),
    st.integers(0, 9),
    st.sampled_from(VARIANTS),
    st.integers(0, 99),
)
def test_any_size_and_stride_is_exact(
    format: PixelFormat, width: int, height: int, alignment: int, offset: int, variant: Any, seed: int
) -> None:
    source = random_source(SourceCase(format, width, height, alignment, offset).spec(*variant), seed)
    np.testing.assert_array_equal(convert(source), oracle_working(source))


@pytest.mark.parametrize("format", FORMATS.values(), ids=str)
def test_an_out_of_another_shape_or_type_is_refused_and_not_written(format: PixelFormat) -> None:
    """OpenCV would silently write elsewhere."""
    source = random_source(ImageSpec.make(format, 6, 4))
    right: tuple[int, ...] = (4, 6) if format.channels == 1 else (4, 6, 3)
    kind, other = ("uint8", np.uint16) if format.depth == 8 else ("uint16", np.uint8)
    wrong: list[Any] = [
        np.zeros((6, 4, 3), np.uint8),
        np.zeros((4, 6, 4), np.uint8),
        np.zeros((4, 6, 1), np.uint8),
        np.zeros((4, 6, 3) if format.channels == 1 else (4, 6), kind),
        np.zeros(right, other),
        np.zeros(right, np.int8),
    ]
    for out in wrong:
        with pytest.raises(InputError, match="out: ") as caught:
            to_working(source, out, Scratch())
        assert f"{kind} {right}" in caught.value.allowed
        assert not out.any()


@pytest.mark.parametrize("format", [*YUV, BGR8, RGB8], ids=str)
def test_an_out_of_which_opencv_would_make_a_copy_is_refused(format: PixelFormat) -> None:
    """Every other pixel, mirrored pixels, reversed channels: OpenCV would fill a copy and leave ``out`` as it was."""
    source = random_source(ImageSpec.make(format, 6, 4))
    room = np.full((4, 12, 3), STALE, np.uint8)
    for out in (room[:, ::2], room[:, 5::-1], room[:, :6, ::-1]):
        with pytest.raises(InputError, match="out: "):
            to_working(source, out, Scratch())
    assert (room == STALE).all()


def test_the_scratch_is_made_once_and_smaller_than_half_a_frame() -> None:
    for format in YUV:
        scratch = Scratch()
        source = random_source(SourceCase(format, 1280, 720, 128).spec())
        convert(source, scratch)
        buffers = dict(scratch._buffers)
        convert(source, scratch)
        assert all(scratch._buffers[name] is buffer for name, buffer in buffers.items())
        assert sum(buffer.nbytes for buffer in buffers.values()) <= 1280 * 720 * 3 // 2
