from __future__ import annotations

from dataclasses import replace
from typing import Any

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.chain import Chain, make_chain, parse_chain
from kernels.device import Device, DoneNow, HostDevice
from kernels.errors import DeviceFailedError, InputError, MemoryClosedError, OutOfMemoryError
from kernels.formats import BGR8, FORMATS, GRAY8, NV12, PixelFormat, Range
from kernels.image import NO_STAMP, AnyView, ImageSpec, ImageView, Pixels, Stamp
from kernels.plan import Plan, chain_params, make_plan, result_nbytes
from kernels.registry import all_ops
from kernels.run_cpu import CpuExecutor
from tests.kernels.cases import (
    CHAINS,
    FORMATS_8,
    LAYOUTS,
    SIZES,
    STALE,
    SourceCase,
    check_exact,
    paint_random,
    random_source,
    run_on,
)
from tests.kernels.field_cases import FieldCases
from tests.kernels.oracles import oracle_chain
from tests.kernels.strategies import exact_chains


@pytest.fixture
def device() -> Device:
    return HostDevice()


class TestFieldCases(FieldCases):
    pass


@pytest.mark.parametrize("format", FORMATS.values(), ids=str)
@pytest.mark.parametrize("chain", CHAINS, ids=lambda text: text[:40] or "empty")
def test_every_chain_is_exact_for_every_size_and_layout(device: Device, format: PixelFormat, chain: str) -> None:
    for index, size in enumerate(SIZES):
        for layout in LAYOUTS if chain == "" else (LAYOUTS[index % len(LAYOUTS)],):
            check_exact(device, SourceCase(format, *size, *layout).spec(), chain)


@settings(max_examples=60, deadline=None)
@given(
    exact_chains,
    st.sampled_from(FORMATS_8),
    st.integers(1, 70),
    st.integers(1, 70),
    st.sampled_from(LAYOUTS),
    st.sampled_from(Range),
)
def test_any_chain_is_exact(
    chain: Chain, format: PixelFormat, width: int, height: int, layout: tuple[int, int], value_range: Range
) -> None:
    check_exact(HostDevice(), SourceCase(format, width, height, *layout).spec(None, value_range), chain)


def executor_views(plan: Plan, seed: int = 0) -> tuple[CpuExecutor, ImageView, ImageView]:
    """An executor of the plan, a painted source and a stale result."""
    result = ImageView(plan.result, np.full(result_nbytes(plan), STALE, np.uint8))
    return CpuExecutor(plan), random_source(plan.source, seed), result


def test_frames_do_not_remember_one_another(device: Device) -> None:
    """One executor, many frames, parameters and contents that change: each result is of its own frame only."""
    spec = SourceCase(NV12, 131, 97, 13, 3).spec()
    texts = [f"gamma(gamma={1 + i}) | gaussian_blur(ksize={1 + 6 * i}) | sobel" for i in range(5)]
    executor, _, result = executor_views(make_plan(parse_chain(texts[0]), spec))
    for seed, text in enumerate(texts * 2):
        chain = parse_chain(text)
        source = random_source(spec, seed)
        result.buffer[:] = STALE
        completion = executor.submit(source, result, chain_params(chain))
        assert completion.done()
        np.testing.assert_array_equal(result.plane(0), oracle_chain(source, chain))
    executor.close()


@pytest.mark.parametrize(
    ("format", "count", "pictures"),
    [(NV12, 0, 0), (NV12, 1, 1), (NV12, 2, 2), (NV12, 5, 2), (BGR8, 0, 0), (BGR8, 1, 0), (BGR8, 2, 1), (GRAY8, 5, 2)],
    ids=str,
)
def test_at_most_two_working_pictures_are_made_and_only_once(
    monkeypatch: pytest.MonkeyPatch, format: PixelFormat, count: int, pictures: int
) -> None:
    plan = make_plan(make_chain([{"op": "gamma"}] * count), ImageSpec.make(format, 640, 480))
    made: list[Any] = []
    empty = np.empty

    def counting(shape: Any, dtype: Any) -> Any:
        made.append(shape)
        return empty(shape, dtype)

    executor, source, result = executor_views(plan)
    with monkeypatch.context() as patch:
        patch.setattr(np, "empty", counting)
        executor = CpuExecutor(plan)
        assert made == [plan.pictures[0].nbytes] * pictures
        executor.submit(source, result, tuple(op.Params() for op in plan.ops))
        made.clear()
        for _ in range(3):
            executor.submit(source, result, tuple(op.Params() for op in plan.ops))
        assert made == []


def test_buffers_that_take_turns_are_as_large_as_their_largest_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    chain = parse_chain(
        "grayscale | resize(width=8) | resize(width=90, height=70) | resize(width=33, height=200) | flip"
    )
    spec = ImageSpec.make(BGR8, 64, 48)
    plan = make_plan(chain, spec)
    made: list[int] = []
    empty = np.empty

    def counting(shape: Any, dtype: Any) -> Any:
        made.append(shape)
        return empty(shape, dtype)

    with monkeypatch.context() as patch:
        patch.setattr(np, "empty", counting)
        CpuExecutor(plan)
    assert made == [128 * 70, 128 * 200]  # grey, 128 bytes a row: 64x48 and 90x70, 8x6 and 33x200
    check_exact(HostDevice(), spec, chain)


def test_memory_that_is_not_there_is_our_error_with_the_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left(shape: Any, dtype: Any) -> Any:
        raise MemoryError

    plan = make_plan(parse_chain("sobel"), ImageSpec.make(NV12, 640, 480))
    monkeypatch.setattr(np, "empty", none_left)
    with pytest.raises(OutOfMemoryError, match=r"0\.9 MB .*use smaller pictures"):
        CpuExecutor(plan)


def test_work_is_done_when_submit_returns() -> None:
    executor, source, result = executor_views(make_plan(Chain(), ImageSpec.make(GRAY8, 4, 4)))
    completion = executor.submit(source, result, ())
    assert isinstance(completion, DoneNow)
    assert (result.plane(0) == source.plane(0)).all()


def test_pictures_of_another_layout_are_refused_and_nothing_is_written() -> None:
    spec = ImageSpec.make(NV12, 64, 48, row_alignment=128)
    plan = make_plan(Chain(), spec)
    executor, source, result = executor_views(plan)
    packed = random_source(ImageSpec.make(NV12, 64, 48))
    with pytest.raises(InputError, match="64x48 NV12") as caught:
        executor.submit(packed, result, ())
    assert caught.value.field == "source"
    assert str(packed.spec.strides) in caught.value.reason
    assert str(spec.strides) in caught.value.allowed
    for other in (
        replace(spec, range=Range.FULL),
        ImageSpec.make(NV12, 64, 46, row_alignment=128),
        ImageSpec.make(FORMATS["I420"], 64, 48, row_alignment=128),
    ):
        with pytest.raises(InputError, match=r"^source: "):
            executor.submit(random_source(other), result, ())
    wide_spec = replace(plan.result, strides=(512,))
    wide = ImageView(wide_spec, np.full(wide_spec.nbytes, STALE, np.uint8))
    with pytest.raises(InputError, match=r"^result: "):
        executor.submit(source, wide, ())
    assert (result.buffer == STALE).all()
    assert (wide.buffer == STALE).all()


@pytest.mark.parametrize("text", ["", "gamma", "sobel | gamma", "gamma | sobel | sobel"])
def test_parameters_of_another_chain_are_refused(text: str) -> None:
    executor, source, result = executor_views(make_plan(parse_chain("gamma | sobel"), ImageSpec.make(GRAY8, 8, 8)))
    with pytest.raises(InputError, match=r"^params: ") as caught:
        executor.submit(source, result, chain_params(parse_chain(text)))
    assert caught.value.allowed == "GammaParams, SobelParams"
    assert (result.buffer == STALE).all()


def test_a_closed_executor_refuses_work_and_closes_again() -> None:
    executor, source, result = executor_views(make_plan(parse_chain("sobel"), ImageSpec.make(NV12, 8, 8)))
    executor.close()
    executor.close()
    with pytest.raises(MemoryClosedError, match="8x8 NV12"):
        executor.submit(source, result, chain_params(parse_chain("sobel")))


def test_what_opencv_raises_becomes_our_error_with_the_op_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    chain = parse_chain("gamma | sobel")
    executor, source, result = executor_views(make_plan(chain, ImageSpec.make(GRAY8, 8, 8)))

    def fail(src: Any, dst: Any, params: Any, scratch: Any) -> None:
        cv2.GaussianBlur(src, (4, 4), 0)

    with monkeypatch.context() as patch:
        patch.setattr(type(all_ops()["sobel"]), "run_cpu", staticmethod(fail))
        with pytest.raises(DeviceFailedError, match=r"OpenCV \(sobel\).*ksize") as caught:
            executor.submit(source, result, chain_params(chain))
    assert not caught.value.sticky
    executor.submit(source, result, chain_params(chain))
    np.testing.assert_array_equal(result.plane(0), oracle_chain(source, chain))


def test_the_check_sees_an_executor_that_leaves_pixels_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The checker's own test: a result of which one byte is stale, a source that is written, a byte too many."""
    spec = ImageSpec.make(BGR8, 31, 17)

    class Faulty(CpuExecutor):
        fault = staticmethod(lambda source, result: None)

        def submit(self, source: AnyView, result: AnyView, params: Any, stamp: Stamp = NO_STAMP) -> Any:
            completion = super().submit(source, result, params, stamp)
            self.fault(source, result)
            return completion

    class FaultyDevice(HostDevice):
        def make_executor(self, plan: Plan, wait: Any = "block") -> Any:
            return Faulty(plan)

    def stale(source: ImageView, result: ImageView) -> None:
        result.plane(0)[16, 30, 2] ^= 1

    def write_source(source: ImageView, result: ImageView) -> None:
        source.buffer[5] ^= 1

    def overrun(source: ImageView, result: ImageView) -> None:
        result.buffer[result_nbytes(make_plan(Chain(), spec))] = 0

    check_exact(FaultyDevice(), spec, "")
    for fault, message in ((stale, "31x17 BGR8"), (write_source, "source was written"), (overrun, "behind the result")):
        monkeypatch.setattr(Faulty, "fault", staticmethod(fault))
        with pytest.raises(AssertionError, match=message):
            check_exact(FaultyDevice(), spec, "", paint_random(1))


def test_run_on_gives_its_memory_back(device: Device) -> None:
    run_on(device, ImageSpec.make(NV12, 64, 48), Chain(), paint_random(0))
    assert device.ledger.held("host") == 0


@pytest.mark.parametrize("format", [BGR8, GRAY8, NV12], ids=str)
@pytest.mark.parametrize(
    "chain",
    [
        "gamma(gamma=2) | invert",
        "gamma(gamma=2) | invert | gain_offset(gain=1.5)",
        "sobel | gamma(gamma=2) | invert | gain_offset(gain=1.5) | sobel",
        "invert | gamma(gamma=2) | flip | gain_offset(gain=1.5) | invert | gamma(gamma=0.5) | invert | resize(width=9)",
    ],
)
def test_tables_in_a_row_are_one_table(format: PixelFormat, chain: str, monkeypatch: pytest.MonkeyPatch) -> None:
    looked_up: list[int] = []
    lut = cv2.LUT

    def counted(src: Pixels, table: Pixels, dst: Pixels) -> Pixels:
        looked_up.append(len(src))
        lut(src, table, dst=dst)
        return dst

    for size in ((1, 1), (63, 17)):
        check_exact(HostDevice(), SourceCase(format, *size, 13, 3).spec(), chain)
    monkeypatch.setattr("kernels.run_cpu.cv2.LUT", counted)
    check_exact(HostDevice(), SourceCase(GRAY8, 40, 30).spec(), chain)
    assert len(looked_up) == (2 if "flip" in chain else 1)
