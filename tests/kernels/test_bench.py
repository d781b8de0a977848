"""The benchmark of chains: its cases, what it times and in which order, and that the ways compared compute the same."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

import cv2
import numpy as np
import pytest

from kernels import bench_cupy, bench_opencv
from kernels.bench import (
    BY_CUPY,
    BY_HAND,
    FUSED,
    ON_CPU,
    UNFUSED,
    Options,
    kernel_times_us,
    measure,
    percentile,
    ratio,
    start_times_ms,
    time_frames,
)
from kernels.bench_case import STD4, Case, NoEquivalentError, Ready, make_case, missing_ops, size_of, traffic
from kernels.errors import InputError
from kernels.formats import BGR8, FORMATS, GRAY8, I420, NV12, PixelFormat
from kernels.image import ImageView, Pixels
from kernels.plan import PassKind, chain_params, reads_in_place, result_nbytes
from kernels.run_cpu import CpuExecutor
from tests.kernels.fake_gpu import FakeGpu


def views_of(case: Case) -> tuple[ImageView, ImageView]:
    """A smooth picture with noise, and a poisoned result."""
    rng = np.random.default_rng(1)
    source = ImageView(case.plan.source, rng.integers(40, 200, case.plan.source.nbytes, np.uint8))
    return source, ImageView(case.plan.result, np.full(result_nbytes(case.plan), 0xA5, np.uint8))


def pinhole(case: Case, source: ImageView) -> Pixels:
    result = views_of(case)[1]
    executor = CpuExecutor(case.plan)
    executor.submit(source, result, chain_params(case.chain)).wait()
    executor.close()
    return result.plane(0)


CHAINS = ("", "gamma(gamma=1.2)", STD4, "invert | gain_offset(gain=1.1, offset=5)", "sharpen | gamma(gamma=0.7)")
EXACT_CHAINS = (
    "sobel", "scharr | laplacian(ksize=3)", "erode(ksize=5) | dilate(ksize=3)", "open(ksize=5) | flip",
    "close(ksize=7)", "levels(black=51, white=204) | flip(direction='both')",
    "threshold(threshold=99, inverted=True) | laplacian",
)  # fmt: skip
COLOUR_CHAINS = (
    "white_balance(red=1.2, blue=1.1) | saturation(factor=1.3)",
    "unsharp_mask(ksize=5, amount=0.5) | box_blur(ksize=3)",
)


@pytest.mark.parametrize(
    ("format", "chain"),
    [*((f, c) for f in ("BGR8", "RGB8") for c in (*CHAINS, *COLOUR_CHAINS)), *(("GRAY8", c) for c in CHAINS)],
)
def test_opencv_by_hand_computes_what_pinhole_does(format: str, chain: str) -> None:
    case = make_case(chain, FORMATS[format], 37, 23)
    source, result = views_of(case)
    before = source.buffer.copy()
    frame = bench_opencv.by_hand(case, source, result)
    for _ in range(2):  # buffers are used again
        frame()
    # A level of rounding, which sharpening multiplies by up to nine.
    difference = np.abs(result.plane(0).astype(int) - pinhole(case, source).astype(int))
    assert difference.max() <= (9 if "sharp" in chain else 2)
    assert (source.buffer == before).all(), "the source belongs to the camera"


@pytest.mark.parametrize("format", ["BGR8", "GRAY8"])
@pytest.mark.parametrize("chain", EXACT_CHAINS)
def test_opencv_by_hand_computes_the_same_where_it_rounds_nothing(format: str, chain: str) -> None:
    case = make_case(chain, FORMATS[format], 37, 23)
    source, result = views_of(case)
    frame = bench_opencv.by_hand(case, source, result)
    for _ in range(2):
        frame()
    np.testing.assert_array_equal(result.plane(0), pinhole(case, source))


def test_each_line_of_opencv_by_hand_is_compared() -> None:
    compared = " ".join((*CHAINS, *EXACT_CHAINS, *COLOUR_CHAINS))
    assert [name for name in bench_opencv.OPENCV if name not in compared] == []


@pytest.mark.parametrize("format", ["NV12", "YUYV", "UYVY"])
def test_opencv_by_hand_converts_even_sizes(format: str) -> None:
    case = make_case("", FORMATS[format], 32, 16)
    source, result = views_of(case)
    bench_opencv.by_hand(case, source, result)()
    # OpenCV knows BT.601 only, as sources of 16 lines are; both round.
    assert np.abs(result.plane(0).astype(int) - pinhole(case, source).astype(int)).max() <= 2
    odd = make_case("", FORMATS[format], 33, 17)
    deep = make_case("gamma", FORMATS["GRAY16"], 32, 16)
    with pytest.raises(NoEquivalentError, match="GRAY16"):
        bench_opencv.by_hand(deep, *views_of(deep))
    with pytest.raises(NoEquivalentError, match="33x17"):
        bench_opencv.by_hand(odd, *views_of(odd))


@pytest.mark.parametrize("target", [GRAY8, I420], ids=str)
def test_opencv_by_hand_makes_other_results(target: PixelFormat) -> None:
    case = make_case("invert", BGR8, 32, 16, target)
    source, result = views_of(case)
    bench_opencv.by_hand(case, source, result)()
    inverted = 255 - source.plane(0)
    code = cv2.COLOR_BGR2GRAY if target is GRAY8 else cv2.COLOR_BGR2YUV_I420
    assert (result.buffer[: case.plan.result.nbytes] == cv2.cvtColor(inverted, code).ravel()).all()


@pytest.mark.parametrize("chain", ["median", "gain_offset(offset=-1.0)", "unsharp_mask(threshold=3)"])
def test_what_opencv_or_cupy_have_nothing_for_is_said(chain: str) -> None:
    case = make_case(chain, BGR8, 32, 16)
    with pytest.raises(NoEquivalentError, match=chain.partition("(")[0]):
        bench_opencv.by_hand(case, *views_of(case))
    if "gain" not in chain:
        with pytest.raises(NoEquivalentError, match=chain.partition("(")[0]):
            bench_cupy.op_by_op(case, np, NDIMAGE)
    with pytest.raises(NoEquivalentError, match="NV12"):
        bench_cupy.op_by_op(make_case("", NV12, 32, 16), np, NDIMAGE)


def gaussian_filter(x: Any, sigma: tuple[float, ...], mode: str, truncate: float) -> Any:
    """scipy.ndimage's, for the same sigma along both axes."""
    assert mode == "mirror"
    assert sigma[2:] in ((), (0,))
    radius = int(truncate * sigma[0] + 0.5)
    at = np.arange(-radius, radius + 1)
    taps = np.exp(-(at**2) / (2 * sigma[0] ** 2))
    return cv2.sepFilter2D(x, -1, taps / taps.sum(), taps / taps.sum(), borderType=cv2.BORDER_REFLECT_101)


def convolve(x: Any, weights: Any, mode: str) -> Any:
    assert mode == "mirror"
    flat = weights if x.ndim == 2 else weights[:, :, 0]
    return cv2.filter2D(x, -1, flat[::-1, ::-1], borderType=cv2.BORDER_REFLECT_101)


NDIMAGE = SimpleNamespace(gaussian_filter=gaussian_filter, convolve=convolve)


@pytest.mark.parametrize("chain", [*CHAINS, *(c.partition(" | box_blur")[0] for c in COLOUR_CHAINS)])
@pytest.mark.parametrize("format", ["BGR8", "GRAY8"])
def test_cupy_op_by_op_computes_what_pinhole_does(chain: str, format: str) -> None:
    case = make_case(chain, FORMATS[format], 37, 23)
    source, _ = views_of(case)
    made = bench_cupy.op_by_op(case, np, NDIMAGE)(source.plane(0))
    assert made.dtype == np.uint8
    # ndimage's Gaussian is sampled, Pinhole's taps are in 1/256: three levels, and sharpening multiplies.
    difference = np.abs(made.astype(int) - pinhole(case, source).astype(int))
    assert difference.max() <= (27 if "sharp" in chain else 3)
    assert difference.mean() < 3


def test_every_way_of_a_gpu_is_timed_in_turn_and_what_is_held_is_given_back() -> None:
    gpu = FakeGpu()
    cases = [make_case("invert | sharpen", BGR8, 32, 16), make_case("gamma", NV12, 32, 16)]
    said: list[str] = []
    figures = measure(cases, gpu, Options(frames=4, runs=3, kernels=True), said.append)
    assert said == [f"run {n} of 3: {case.text}" for n in (1, 2, 3) for case in cases]
    assert len(figures.links) == 3
    first, second = figures.cases
    assert list(first.ways) == [FUSED, UNFUSED, BY_CUPY, ON_CPU, BY_HAND]
    assert list(second.ways) == [FUSED, BY_CUPY, ON_CPU, BY_HAND], "one op is a pass of its own already"
    for one in figures.cases:
        assert one.ways[BY_CUPY].left_out == "anything"
        assert one.ways[BY_CUPY].p50_us == []
        for way in (FUSED, ON_CPU, BY_HAND):
            assert len(one.ways[way].p50_us) == len(one.ways[way].p99_us) == 3
            assert one.ways[way].frames == 12
        assert one.floor_us == [10.0] * 3
        assert one.alone_us == [12.0] * 3
        assert one.kernels_us == [7.0] * 3
        assert len(one.cold_ms) == len(one.warm_ms) == 3
    assert gpu.asked_exchanges[:2] == [(32 * 16 * 3, 32 * 16 * 3), (32 * 16 * 3 // 2, 32 * 16 * 3)]
    assert first.kernels_plan is not None
    assert PassKind.INGEST not in [one.kind for one in first.kernels_plan.passes]
    assert gpu.device.ledger.held("host") == 0
    assert gpu.unsettled == 2 * 2 * 3, "but for the one frame of each start, every frame's events are used again"


def test_a_kernel_is_started_for_one_of_its_sizes() -> None:
    cases = [make_case(c, BGR8, *size) for size in ((32, 16), (64, 16)) for c in ("sharpen", "invert")]
    figures = measure(cases, FakeGpu(), Options(frames=1, runs=2, others=False))
    assert [len(one.cold_ms) for one in figures.cases] == [2, 2, 0, 0]


def test_a_way_that_fails_gives_everything_back() -> None:
    gpu = FakeGpu()
    gpu.on_submit = lambda: 1 // 0
    for one in (Options(2, 1, starts=True), Options(2, 1, starts=False), Options(2, 1, kernels=True, starts=False)):
        with pytest.raises(ZeroDivisionError):
            measure([make_case("invert", BGR8, 32, 16)], gpu, one)
        assert gpu.device.ledger.held("host") == 0


def test_a_result_on_the_device_does_not_cross_the_link() -> None:
    case = make_case("sharpen", NV12, 32, 16, I420, on_device=True)
    assert (case.bytes_in, case.bytes_out) == (32 * 16 * 3 // 2, 0)
    assert case.source_text == "32x16 NV12 → I420 on the device"
    gpu = FakeGpu()
    measure([case], gpu, Options(2, 1, starts=False, others=False))
    assert gpu.asked_exchanges == [(768, 0)]


def test_starts_are_cold_and_then_warm_in_a_cache_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    for before in ("/somewhere", None):
        if before is None:
            monkeypatch.delenv("PINHOLE_CACHE_DIR", raising=False)
        else:
            monkeypatch.setenv("PINHOLE_CACHE_DIR", before)
        gpu = FakeGpu()
        start_times_ms(gpu, make_case("sharpen", BGR8, 32, 16))
        assert gpu.log == ["forget", "executor"] * 2
        cold, warm = gpu.caches
        assert cold == warm
        assert cold not in (None, before)
        assert not os.path.exists(str(cold)), "and takes it away again"
        assert os.environ.get("PINHOLE_CACHE_DIR") == before


def test_kernels_are_timed_behind_each_other() -> None:
    """The first of each row is left out: it waited for Python; and so is the whole first row."""
    gpu = FakeGpu()
    submitted = [0]

    def count() -> None:
        gpu.gpu_us = 1000.0 if submitted[0] < 16 or submitted[0] % 16 == 0 else 5.0
        submitted[0] += 1

    gpu.on_submit = count
    assert kernel_times_us(gpu, make_case("sharpen", BGR8, 32, 16), 20) == [5.0] * 20


def test_frames_end_with_their_number_or_with_the_time() -> None:
    now_ns = [0]
    settled: list[int] = []

    def frame() -> int:
        now_ns[0] += 100_000_000
        return now_ns[0]

    def settle(end: int) -> None:
        settled.append(end)
        now_ns[0] += 1_000_000  # not on the frame's clock

    ready = Ready(frame, lambda: None, settle)
    assert time_frames(ready, 7, clock_ns=lambda: now_ns[0]) == [100_000.0] * 7
    assert len(settled) == len(set(settled)) >= 8, "each frame, those of the warm-up too"
    assert len(time_frames(ready, 100, 0.45, lambda: now_ns[0])) == 5
    assert len(time_frames(ready, 100, 0.0, lambda: now_ns[0])) == 3, "a few, however slow"


def test_ratios_are_medians_of_each_turns_own() -> None:
    assert ratio([10.0, 40.0, 90.0], [10.0, 10.0, 30.0]) == 3.0
    assert percentile([3.0, 1.0, 2.0], 50) == 2.0
    assert percentile(range(1, 101), 99) == 99


def test_traffic_counts_each_picture_once() -> None:
    frame = 64 * 32 * 3
    case = make_case(STD4, BGR8, 64, 32)
    assert traffic(case.plan) == (2 * frame, 2 * frame), "ingest and tiles"
    assert traffic(reads_in_place(case.plan)) == (frame, frame)
    half = make_case("gamma", NV12, 64, 32)
    assert traffic(half.plan) == (frame // 2, frame), "one pass from planes to the result"
    assert traffic(make_case("", BGR8, 64, 32, I420).plan) == (2 * frame, frame + frame // 2)


def test_cases_know_the_standard_chains_by_name() -> None:
    assert make_case("std4", BGR8, 64, 32).chain == make_case(STD4, BGR8, 64, 32).chain
    assert make_case("std4", BGR8, 64, 32).text == "std4, 64x32 BGR8"
    assert make_case(" ", BGR8, 64, 32).name == "(empty)"
    assert missing_ops("std4") == []
    with pytest.raises(InputError, match="--chain: unknown chain or op"):
        make_case("nonsense", BGR8, 64, 32, field="--chain")


@pytest.mark.parametrize("text", ["", "1920", "1920x", "x1080", "-1x5", "1920 x 1080", "19²0x1080", "1e3x5", "1x1x1"])
def test_sizes_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(InputError, match="WIDTHxHEIGHT"):
        size_of(text, "--size")
    assert size_of("1920x1080") == size_of("1920×1080") == (1920, 1080)
