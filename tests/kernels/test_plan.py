from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.chain import Chain, Step, parse_chain
from kernels.formats import BGR8, BGR16, FORMATS, GRAY8, GRAY16, NV12, YUYV, Matrix, PixelFormat, Range
from kernels.image import MAX_SIDE_PX, PLANE_ALIGNMENT, ImageSpec, Pixels, Shape
from kernels.op import OpKind, OpParams, Scratch, StatisticOp, TemporalOp
from kernels.plan import MAX_HALO_PX, PassKind, chain_params, make_plan, result_nbytes, slot_source_spec, unfused
from kernels.registry import AnyOp, find_op
from tests.kernels.cases import SIZES, SourceCase
from tests.kernels.oracles import packed_size
from tests.kernels.strategies import chains, steps


@pytest.mark.parametrize("format", FORMATS.values(), ids=str)
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_the_result_is_packed_and_the_pictures_aligned(format: PixelFormat, size: tuple[int, int]) -> None:
    source = SourceCase(format, *size, 13, 3).spec()
    plan = make_plan(parse_chain("gamma | sobel"), source)
    assert plan.source is source
    assert len(plan.pictures) == 3
    for picture in (*plan.pictures, plan.result):
        assert picture.format is {GRAY8: GRAY8, GRAY16: GRAY16, BGR16: BGR16}.get(format, BGR8)
        assert (picture.width, picture.height) == size
    assert plan.result.nbytes == plan.result.pixel_bytes == packed_size(plan.result)
    assert all(picture.strides[0] % PLANE_ALIGNMENT == 0 for picture in plan.pictures)
    assert result_nbytes(plan) % PLANE_ALIGNMENT == 0
    assert 0 <= result_nbytes(plan) - plan.result.nbytes < PLANE_ALIGNMENT


def test_link_bytes_leave_padding_out() -> None:
    plan = make_plan(Chain(), ImageSpec.make(NV12, 641, 479, row_alignment=128))
    assert plan.link_bytes_in == 641 * 479 + 642 * 240
    assert plan.link_bytes_out == 641 * 479 * 3


def test_each_op_says_what_it_makes_and_the_result_follows_the_last() -> None:
    chain = parse_chain("sobel | resize(width=40, height=30) | grayscale | flip | resize(height=15)")
    plan = make_plan(chain, ImageSpec.make(NV12, 64, 48))
    made = [(picture.width, picture.height, str(picture.format)) for picture in plan.pictures]
    assert made == [
        (64, 48, "BGR8"), (64, 48, "BGR8"), (40, 30, "BGR8"), (40, 30, "GRAY8"), (40, 30, "GRAY8"), (20, 15, "GRAY8"),
    ]  # fmt: skip
    assert plan.result == ImageSpec.make(GRAY8, 20, 15)
    assert plan.link_bytes_out == 300
    assert result_nbytes(plan) == 384


def passes_of(chain: str, width: int = 64, format: PixelFormat = NV12) -> list[str]:
    """``KIND first-last``, with a > behind the one that writes the result."""
    plan = make_plan(parse_chain(chain), ImageSpec.make(format, width, 48))
    return [f"{p.kind.value} {p.first}-{p.last}{'>' if p.to_result else ''}" for p in plan.passes]


@pytest.mark.parametrize(
    ("chain", "passes"),
    [
        ("", ["ingest 0-0>"]),
        ("gamma | grayscale | invert", ["ingest 0-3>"]),
        ("gaussian_blur | gamma | gain_offset | sharpen", ["ingest 0-0", "tiles 0-4>"]),
        ("invert | sobel | invert | sobel", ["ingest 0-1", "tiles 1-4>"]),
        # Windows of up to 15 and 1 pixels around go together, two of 15 do not, whatever their values are now.
        ("gaussian_blur(ksize=3) | gaussian_blur(ksize=3)", ["ingest 0-0", "tiles 0-1", "tiles 1-2>"]),
        ("gaussian_blur | sobel | sobel | invert", ["ingest 0-0", "tiles 0-2", "tiles 2-4>"]),
        ("flip", ["ingest 0-0", "tiles 0-1>"]),
        ("canny | dilate", ["ingest 0-0", "mark 0-0", "join 0-0", "tiles 0-2>"]),
        ("clahe | sobel", ["ingest 0-0", "statistic 0-0", "tiles 0-2>"]),
        ("sobel | flip | sharpen | resize", ["ingest 0-0", "tiles 0-1", "tiles 1-3", "tiles 3-4>"]),
    ],
)
def test_points_go_anywhere_windows_while_small_and_a_gather_starts_a_pass(chain: str, passes: list[str]) -> None:
    assert passes_of(chain) == passes


def test_a_result_whose_rows_are_no_whole_words_leaves_in_a_pass_of_its_own() -> None:
    assert passes_of("sobel", 65) == ["ingest 0-0", "tiles 0-1", "egress 1-1>"]
    assert passes_of("", 65, GRAY8) == ["ingest 0-0", "egress 0-0>"]
    assert passes_of("resize(width=16)", 65) == ["ingest 0-0", "tiles 0-1>"]


@settings(deadline=None)
@given(chains, st.integers(1, 99))
def test_each_op_is_in_one_pass_and_each_pass_reads_what_the_one_before_made(chain: Chain, width: int) -> None:
    plan = make_plan(chain, ImageSpec.make(YUYV, width, 20))
    for passes in (plan.passes, unfused(plan).passes):
        assert passes[0].kind is PassKind.INGEST
        assert [one.kind for one in passes].count(PassKind.INGEST) == 1
        assert [one.to_result for one in passes] == [False] * (len(passes) - 1) + [True]
        assert [one.first for one in passes] == [0, *(one.last for one in passes[:-1])]
        assert all(one.first == one.last for one in passes if one.kind is PassKind.STATISTIC)
        assert passes[-1].last == len(plan.ops)
        for one in passes:
            ops = plan.ops[one.first : one.last]
            assert one.kind.makes_picture or one.first == one.last
            assert one.kind is PassKind.TILES or all(op.kind is OpKind.POINT for op in ops)
            assert all(op.kind not in (OpKind.GATHER, OpKind.GLOBAL) for op in ops[1:])
            assert sum(op.max_radius for op in ops) <= MAX_HALO_PX


class Counts(StatisticOp[OpParams]):
    """A global op that changes nothing."""

    name = "counts"
    Params = OpParams
    cuda_source = """
struct counts_params {};
template <int CHANNELS>
__device__ int counts(const uint32*, uint32, int, int value, const counts_params&) { return value; }
"""

    def constants(self, params: OpParams) -> bytes:
        return b""

    def tables(self, histogram: npt.NDArray[np.int64], params: OpParams) -> Pixels:
        return np.tile(np.arange(256, dtype=np.uint8), (len(histogram), 1))


class Remembers(TemporalOp[OpParams]):
    """A temporal op that changes nothing."""

    name = "remembers"
    Params = OpParams
    cuda_source = """
struct remembers_params {};
template <int CHANNELS>
struct remembers_state { uint8 last; };
template <int CHANNELS>
__device__ void remembers(const uint8* in, remembers_state<CHANNELS>&, bool, int, int, Size, const remembers_params&,
                          uint8* out) {
  for (int c = 0; c < CHANNELS; ++c) out[c] = in[c];
}
"""

    def state_bytes(self, channels: int) -> int:
        return 1

    def constants(self, params: OpParams) -> bytes:
        return b""

    def run_cpu(self, src: Pixels, dst: Pixels, params: OpParams, scratch: Scratch) -> None:
        np.copyto(dst, src)


def chain_with(*ops: AnyOp | str) -> Chain:
    found = [find_op(op) if isinstance(op, str) else op for op in ops]
    return Chain(tuple(Step(op, op.Params()) for op in found))


@pytest.mark.parametrize(
    ("ops", "passes"),
    [
        ((Counts(),), ["ingest 0-0", "statistic 0-0", "tiles 0-1>"]),
        (("gamma", "sobel", Counts(), "gamma", "sobel"),
         ["ingest 0-1", "tiles 1-2", "statistic 2-2", "tiles 2-5>"]),
        ((Counts(), Counts()), ["ingest 0-0", "statistic 0-0", "tiles 0-1", "statistic 1-1", "tiles 1-2>"]),
        # A temporal op must see each pixel once: no stencil behind it in its pass.
        (("gamma", Remembers(), "gamma"), ["ingest 0-1", "tiles 1-3>"]),
        (("sobel", Remembers(), "gamma", "sobel"), ["ingest 0-0", "tiles 0-3", "tiles 3-4>"]),
    ],
)  # fmt: skip
def test_global_and_temporal_ops(ops: tuple[AnyOp | str, ...], passes: list[str]) -> None:
    plan = make_plan(chain_with(*ops), ImageSpec.make(NV12, 64, 48))
    assert [f"{p.kind.value} {p.first}-{p.last}{'>' if p.to_result else ''}" for p in plan.passes] == passes


def test_unfused_each_op_has_a_pass_of_its_own() -> None:
    plan = unfused(make_plan(parse_chain("gamma | sobel | gamma"), ImageSpec.make(NV12, 64, 48)))
    assert [(one.first, one.last) for one in plan.passes] == [(0, 0), (0, 1), (1, 2), (2, 3)]


def test_a_changed_size_needs_another_plan_and_an_unchanged_one_does_not() -> None:
    source = ImageSpec.make(BGR8, 64, 48)
    plan = make_plan(parse_chain("resize(width=32) | gamma"), source)
    assert plan.accepts(parse_chain("resize(width=32, interpolation='area') | gamma(gamma=2)").steps)
    assert plan.accepts(parse_chain("resize(width=32, height=24) | gamma").steps)
    for other in ("resize(width=33) | gamma", "resize(width=32, height=23) | gamma", "resize | gamma"):
        assert not plan.accepts(parse_chain(other).steps)


@settings(deadline=None)
@given(steps, st.builds(Shape, st.integers(1, MAX_SIDE_PX), st.integers(1, MAX_SIDE_PX), st.sampled_from([1, 3])))
def test_what_an_op_makes_of_a_legal_picture_is_legal(step: Step, shape: Shape) -> None:
    made = step.op.output(shape, step.params)
    assert 1 <= made.width <= MAX_SIDE_PX
    assert 1 <= made.height <= MAX_SIDE_PX
    assert made.channels in (1, 3)
    if step.op.kind is not OpKind.GATHER:
        assert (made.width, made.height) == (shape.width, shape.height)
    other_size = step.op.output(replace(shape, width=1, height=1), step.op.Params())
    assert made.channels == other_size.channels, "channels follow from channels alone: the CUDA text depends on them"


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
