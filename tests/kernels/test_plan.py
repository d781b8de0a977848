from __future__ import annotations

import pytest

from kernels.chain import Chain, parse_chain
from kernels.formats import BGR8, FORMATS, GRAY8, NV12, YUYV, Matrix, PixelFormat, Range
from kernels.image import PLANE_ALIGNMENT, ImageSpec
from kernels.plan import chain_params, make_plan, result_nbytes, slot_source_spec
from tests.kernels.cases import SIZES, SourceCase
from tests.kernels.oracles import packed_size


@pytest.mark.parametrize("format", FORMATS.values(), ids=str)
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_the_result_is_packed_and_the_working_picture_aligned(format: PixelFormat, size: tuple[int, int]) -> None:
    source = SourceCase(format, *size, 13, 3).spec()
    plan = make_plan(parse_chain("gamma | sobel"), source)
    assert plan.source is source
    assert plan.working.format is plan.result.format is (GRAY8 if format is GRAY8 else BGR8)
    assert (plan.result.width, plan.result.height) == (plan.working.width, plan.working.height) == size
    assert plan.result.nbytes == plan.result.pixel_bytes == packed_size(plan.result)
    assert plan.working.strides[0] % PLANE_ALIGNMENT == 0
    assert result_nbytes(plan) % PLANE_ALIGNMENT == 0
    assert 0 <= result_nbytes(plan) - plan.result.nbytes < PLANE_ALIGNMENT


def test_link_bytes_leave_padding_out() -> None:
    plan = make_plan(Chain(), ImageSpec.make(NV12, 641, 479, row_alignment=128))
    assert plan.link_bytes_in == 641 * 479 + 642 * 240
    assert plan.link_bytes_out == 641 * 479 * 3


def test_other_values_of_the_same_ops_run_on_the_same_plan() -> None:
    plan = make_plan(parse_chain("gamma(gamma=2) | sobel"), ImageSpec.make(BGR8, 8, 8))
    assert plan.accepts(parse_chain("gamma(gamma=0.5) | sobel").steps)
    for other in ("sobel | gamma", "gamma", "gamma | sobel | sobel", ""):
        assert not plan.accepts(parse_chain(other).steps)


def test_parameters_come_in_the_order_of_the_chain() -> None:
    chain = parse_chain("gamma(gamma=2) | gain_offset(gain=3) | gamma(gamma=0.5)")
    assert [p.model_dump() for p in chain_params(chain)] == [
        {"gamma": 2.0},
        {"gain": 3.0, "offset": 0.0},
        {"gamma": 0.5},
    ]


def test_plans_are_data_and_compare_by_value() -> None:
    def plan() -> object:
        return make_plan(parse_chain("gamma | sobel"), ImageSpec.make(YUYV, 31, 7))

    assert plan() == plan()
    assert hash(plan()) == hash(plan())


@pytest.mark.parametrize("format", FORMATS.values(), ids=str)
def test_a_slot_starts_rows_and_planes_on_whole_lines_and_keeps_what_codes_mean(format: PixelFormat) -> None:
    packed = ImageSpec.make(format, 641, 479, matrix=Matrix.BT709, range=Range.FULL)
    slot = slot_source_spec(packed)
    assert all(n % PLANE_ALIGNMENT == 0 for n in (*slot.offsets, *slot.strides))
    assert (slot.format, slot.width, slot.height, slot.matrix, slot.range) == (
        format, 641, 479, Matrix.BT709, Range.FULL,
    )  # fmt: skip
