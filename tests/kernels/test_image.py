from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from kernels.errors import InputError
from kernels.formats import BGR8, FORMATS, GRAY8, GRAY16, I420, NV12, YUYV, Matrix, PixelFormat, Range
from kernels.image import MAX_SIDE_PX, ImageSpec, ImageView, align_up
from tests.kernels.cases import POISON, SourceCase, random_source, source_cases
from tests.kernels.oracles import bytes_of

CASES = list(source_cases())


def test_the_packed_layout_of_each_format() -> None:
    layouts = {name: ImageSpec.make(format, 5, 3) for name, format in FORMATS.items()}
    assert {name: (spec.offsets, spec.strides, spec.nbytes) for name, spec in layouts.items()} == {
        "BGR8": ((0,), (15,), 45),
        "RGB8": ((0,), (15,), 45),
        "GRAY8": ((0,), (5,), 15),
        "NV12": ((0, 15), (5, 6), 27),
        "I420": ((0, 15, 21), (5, 3, 3), 27),
        "YUYV": ((0,), (12,), 36),
        "UYVY": ((0,), (12,), 36),
        "GRAY16": ((0,), (10,), 30),
        "BGR16": ((0,), (30,), 90),
    }


def test_rows_and_planes_are_aligned_as_asked() -> None:
    spec = ImageSpec.make(I420, 130, 3, row_alignment=4, plane_alignment=128)
    assert spec.strides == (132, 68, 68)
    assert spec.offsets == (0, 512, 768)
    assert spec.nbytes == 768 + 68 * 2
    assert [align_up(v, 128) for v in (0, 1, 128, 129)] == [0, 128, 128, 256]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_planes_are_exactly_the_pictures_bytes(case: SourceCase) -> None:
    """Each plane shows its own bytes and nothing between them; what is not in a plane stays untouched."""
    view = random_source(case.spec())
    own = np.zeros(len(view.buffer), np.bool_)
    for index, plane in enumerate(view.planes):
        assert plane.shape == view.spec.plane_shape(index)
        assert np.shares_memory(plane, view.buffer)
        bytes_of_plane = np.ascontiguousarray(plane.reshape(len(plane), -1)).view(np.uint8)
        np.testing.assert_array_equal(bytes_of_plane, bytes_of(view, index))
    for layout, offset, stride in zip(view.spec.format.planes, view.spec.offsets, view.spec.strides, strict=True):
        for row in range(layout.rows(case.height)):
            start = offset + row * stride
            assert not own[start : start + layout.row_bytes(case.width)].any(), "planes overlap"
            own[start : start + layout.row_bytes(case.width)] = True
    assert own.sum() == view.spec.pixel_bytes
    assert (view.buffer[~own] == POISON).all()


@pytest.mark.parametrize("case", CASES[::7], ids=str)
def test_packed_is_a_copy_without_padding(case: SourceCase) -> None:
    view = random_source(case.spec())
    packed = view.packed()
    again = ImageView(ImageSpec.make(case.format, case.width, case.height), packed.copy())
    assert packed.nbytes == view.spec.pixel_bytes
    assert not np.shares_memory(packed, view.buffer)
    for left, right in zip(again.planes, view.planes, strict=True):
        np.testing.assert_array_equal(left, right)


@pytest.mark.parametrize("format", FORMATS.values(), ids=str)
@pytest.mark.parametrize("size", [(1, 1), (64, 48), (641, 479)], ids=str)
def test_b67_a_buffer_that_is_too_short_is_refused_before_any_read(format: PixelFormat, size: tuple[int, int]) -> None:
    spec = ImageSpec.make(format, *size, row_alignment=4)
    ImageView(spec, np.empty(spec.nbytes, np.uint8))
    for length in (0, spec.nbytes // 2, spec.nbytes - 1):
        with pytest.raises(InputError, match=f"{length} bytes cannot hold {size[0]}x{size[1]} {format}") as caught:
            ImageView(spec, np.empty(length, np.uint8))
        assert caught.value.field == "buffer"
        assert str(spec.nbytes) in caught.value.allowed


def test_values_of_16_bits_lie_at_even_addresses() -> None:
    spec = ImageSpec.make(GRAY16, 5, 3)
    room = np.zeros(64, np.uint8)
    ImageView(spec, room[2:])
    with pytest.raises(InputError, match="buffer: starts at an odd address"):
        ImageView(spec, room[1:])
    with pytest.raises(InputError, match="no whole number of values of 16 bits"):
        replace(spec, strides=(11,))
    with pytest.raises(InputError, match="no whole number of values of 16 bits"):
        replace(spec, offsets=(1,))


@pytest.mark.parametrize(
    "buffer",
    [
        np.zeros(200, np.uint8)[::2],
        np.zeros(100, np.uint8)[::-1],
        np.zeros((10, 10), np.uint8),
        np.zeros(100, np.uint16),
        np.zeros(100, np.int8),
    ],
    ids=["every other byte", "backwards", "two axes", "uint16", "int8"],
)
def test_b68_a_buffer_that_is_not_one_run_of_bytes_is_refused(buffer: Any) -> None:
    with pytest.raises(InputError, match="not one run of bytes"):
        ImageView(ImageSpec.make(GRAY8, 10, 10), buffer)


@pytest.mark.parametrize("size", [(0, 1), (1, 0), (-1, 5), (MAX_SIDE_PX + 1, 1), (1, 10**9)], ids=str)
def test_impossible_sizes_are_refused(size: tuple[int, int]) -> None:
    with pytest.raises(InputError, match=f"{size[0]}x{size[1]} is not a size") as caught:
        ImageSpec.make(NV12, *size)
    assert caught.value.allowed == f"1x1 to {MAX_SIDE_PX}x{MAX_SIDE_PX} px"


@pytest.mark.parametrize(
    ("format", "strides", "least"),
    [(BGR8, (29,), 30), (NV12, (10, 9), 10), (I420, (10, 5, 4), 5), (YUYV, (19,), 20)],
    ids=str,
)
def test_b59_a_stride_shorter_than_a_row_is_refused(format: PixelFormat, strides: tuple[int, ...], least: int) -> None:
    with pytest.raises(InputError) as caught:
        ImageSpec(format, 10, 4, (0, 100, 200)[: len(strides)], strides, Matrix.BT601, Range.LIMITED)
    assert caught.value.field == "strides"
    assert caught.value.allowed == f"{least} or more"


def test_a_specification_has_one_stride_and_offset_for_each_plane() -> None:
    with pytest.raises(InputError, match="NV12 has 2 planes"):
        ImageSpec(NV12, 4, 4, (0,), (4,), Matrix.BT601, Range.LIMITED)
    with pytest.raises(InputError, match="-1 is negative"):
        ImageSpec(GRAY8, 4, 4, (-1,), (4,), Matrix.BT601, Range.LIMITED)


def test_a_specification_says_what_it_is() -> None:
    assert ImageSpec.make(NV12, 1280, 720).describe() == "1280x720 NV12 bt709 limited"
    assert ImageSpec.make(BGR8, 3, 2, range=Range.FULL).describe() == "3x2 BGR8"
