"""The CUDA executor against the integer oracles: every format, odd sizes and strides, poisoned buffers."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from kernels.chain import make_chain, parse_chain
from kernels.device import CudaDevice, WaitMode
from kernels.errors import InputError, OutOfMemoryError
from kernels.formats import FORMATS, GRAY8, NV12, Matrix, PixelFormat, Range
from kernels.image import ImageSpec, ImageView
from kernels.memory import DeviceMemory, Ledger
from kernels.plan import Plan, chain_params, make_plan, reads_in_place, result_nbytes, slot_source_spec, unfused
from kernels.run_cuda import CudaExecutor
from tests.kernels.cases import (
    CHAINS,
    LAYOUTS,
    SIZES,
    SourceCase,
    check_exact,
    paint_constant,
    paint_random,
    paint_scene,
)
from tests.kernels.oracles import ChainOracle
from tests.kernels.oracles_temporal import TEMPORAL_ORACLES
from tests.kernels.targets import SIZES as TARGET_SIZES
from tests.kernels.targets import TARGETS, check_target
from tests.kernels.temporal_cases import TemporalCases

pytestmark = pytest.mark.gpu
STD4 = "gaussian_blur(ksize=5) | gamma(gamma=1.2) | gain_offset(gain=1.1, offset=5) | sobel"


class PlanDevice(CudaDevice):
    """Runs what a test makes of each plan."""

    change: Callable[[Plan], Plan] = staticmethod(lambda plan: plan)

    def make_executor(self, plan: Plan, wait: WaitMode = "block") -> CudaExecutor:
        return CudaExecutor(self, plan, wait, self.change)


@pytest.fixture(scope="module")
def device() -> Iterator[PlanDevice]:
    device = PlanDevice()
    yield device
    assert device.ledger.held("pinned") == 0
    assert device.ledger.held("device") == 0
    device.close()


@pytest.mark.parametrize("format", FORMATS.values(), ids=str)
@pytest.mark.parametrize("size", SIZES, ids=lambda s: f"{s[0]}x{s[1]}")
def test_ingest_is_exact_for_every_layout(device: PlanDevice, format: PixelFormat, size: tuple[int, int]) -> None:
    for alignment, offset in LAYOUTS:
        check_exact(device, SourceCase(format, *size, alignment, offset).spec(), "")


@pytest.mark.parametrize("format", FORMATS.values(), ids=str)
@pytest.mark.parametrize("chain", CHAINS)
def test_every_chain_is_exact(device: PlanDevice, format: PixelFormat, chain: str) -> None:
    for size in SIZES:
        check_exact(device, SourceCase(format, *size, 13, 3).spec(), chain)


@pytest.mark.parametrize("change", [unfused, reads_in_place], ids=lambda f: f.__name__)
@pytest.mark.parametrize("format", [FORMATS["BGR8"], GRAY8, NV12], ids=str)
def test_every_plan_of_a_chain_is_exact(
    device: PlanDevice, format: PixelFormat, change: Callable[[Plan], Plan], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pass for each op, and no ingest: compared with the oracles like the plan that is run otherwise."""
    monkeypatch.setattr(device, "change", change)
    for size in SIZES[::2]:
        for chain in CHAINS:
            check_exact(device, slot_source_spec(ImageSpec.make(format, *size)), chain, frames=2)


@pytest.mark.parametrize("target", TARGETS, ids=str)
@pytest.mark.parametrize("format", FORMATS.values(), ids=str)
def test_every_target_is_exact(device: PlanDevice, format: PixelFormat, target: PixelFormat) -> None:
    for size in TARGET_SIZES:
        for chain in ("", "gamma(gamma=1.5)", STD4, "sobel | flip", "sobel | grayscale"):
            check_target(device, SourceCase(format, *size, 4, 1).spec(), chain, target)


@pytest.mark.parametrize("blocks", [1, 2, 7])
def test_however_few_blocks_run_at_once_a_frame_comes_to_its_end(
    device: PlanDevice, blocks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also on a device with room for one block: passes wait for rows, never for blocks that could not start."""
    monkeypatch.setattr(device, "multiprocessors", 1)
    monkeypatch.setattr("kernels.cuda_block.BLOCKS_PER_MULTIPROCESSOR", blocks)
    for size in SIZES[::3]:
        for chain in (STD4, "sobel | sobel | gaussian_blur(ksize=31) | sobel | gaussian_blur(ksize=3) | flip | sobel"):
            check_exact(device, SourceCase(NV12, *size, 4, 1).spec(), chain, frames=3)


@pytest.mark.parametrize("matrix", Matrix)
@pytest.mark.parametrize("value_range", Range)
def test_b101_yuv_equals_the_cpu_for_every_matrix_and_range(
    device: PlanDevice, matrix: Matrix, value_range: Range
) -> None:
    for format in FORMATS.values():
        check_exact(device, SourceCase(format, 1366, 70, 128).spec(matrix, value_range), "")


@pytest.mark.parametrize("size", [(1279, 719), (1920, 1080), (4096, 33), (33, 4096)], ids=str)
def test_large_and_odd_pictures_are_exact(device: PlanDevice, size: tuple[int, int]) -> None:
    for format in (NV12, GRAY8, FORMATS["BGR8"]):
        check_exact(device, slot_source_spec(ImageSpec.make(format, *size)), STD4)


@pytest.mark.parametrize("ksize", range(1, 32, 2))
def test_every_blur_window_is_exact(device: PlanDevice, ksize: int) -> None:
    for sigma in (0.0, 0.4, 3.0, 50.0):
        check_exact(device, SourceCase(NV12, 97, 131).spec(), f"gaussian_blur(ksize={ksize}, sigma={sigma})")
        check_exact(device, SourceCase(GRAY8, 61, 47).spec(), f"gaussian_blur(ksize={ksize}, sigma={sigma})")


def test_b92_constants_are_preserved(device: PlanDevice) -> None:
    for value in (0, 1, 127, 254, 255):
        spec = SourceCase(GRAY8, 301, 77).spec()
        result = check_exact(device, spec, "gaussian_blur(ksize=9) | gamma | gain_offset", paint_constant(value))
        assert (result == value).all()


def test_b71_views_may_start_at_any_byte(device: PlanDevice) -> None:
    for offset in range(1, 17):
        check_exact(device, SourceCase(FORMATS["BGR8"], 10, 7, 1, offset).spec(), "sobel")


@pytest.mark.parametrize("how", ["nearest", "linear", "area"])
@pytest.mark.parametrize("format", [GRAY8, NV12], ids=str)
def test_b123_every_resize_is_exact(device: PlanDevice, format: PixelFormat, how: str) -> None:
    """Smaller, larger, both, by whole and by odd ratios, and to where words, tiles and rows of threads end."""
    for size in ((1, 1), (7, 1), (641, 479), (1280, 720)):
        for to in ((1, 1), (42, 43), (43, 42), (128, 8), (129, 9), (320, 180), (640, 360), (641, 720), (1283, 31)):
            chain = f"resize(width={to[0]}, height={to[1]}, interpolation={how!r})"
            check_exact(device, SourceCase(format, *size).spec(), chain)


@pytest.mark.parametrize("how", ["nearest", "linear", "area"])
def test_the_longest_sides_do_not_overflow(device: PlanDevice, how: str) -> None:
    for size, to in (
        ((16384, 3), (301, 2)),
        ((3, 16384), (2, 301)),
        ((301, 2), (16384, 1)),
        ((16384, 2), (1, 1)),
    ):
        chain = f"resize(width={to[0]}, height={to[1]}, interpolation={how!r})"
        check_exact(device, SourceCase(GRAY8, *size).spec(), chain)


def test_random_chains_are_exact(device: PlanDevice) -> None:
    pick = random.Random(7)
    for _ in range(40):
        ops: list[dict[str, Any]] = [
            pick.choice(
                [
                    {"op": "gaussian_blur", "params": {"ksize": pick.randrange(1, 32, 2), "sigma": pick.uniform(0, 9)}},
                    {"op": "gamma", "params": {"gamma": pick.uniform(0.1, 10)}},
                    {"op": "gain_offset", "params": {"gain": pick.uniform(0, 4), "offset": pick.uniform(-200, 200)}},
                    {"op": "sobel"},
                    {"op": "sharpen"},
                    {"op": "invert"},
                    {"op": "grayscale"},
                    {"op": "threshold", "params": {"threshold": pick.randrange(256), "inverted": pick.random() < 0.5}},
                    {"op": "flip", "params": {"direction": pick.choice(["horizontal", "vertical", "both"])}},
                    {
                        "op": "resize",
                        "params": {
                            "width": pick.randrange(1, 300),
                            "height": pick.randrange(1, 200),
                            "interpolation": pick.choice(["nearest", "linear", "area"]),
                        },
                    },
                ]
            )
            for _ in range(pick.randrange(7))
        ]
        format = pick.choice(list(FORMATS.values()))
        case = SourceCase(format, pick.randrange(1, 700), pick.randrange(1, 120), pick.choice([1, 4, 128]))
        check_exact(device, case.spec(), make_chain(ops))


def test_many_frames_with_changing_parameters_see_one_whole_set(device: PlanDevice) -> None:
    """Frames are launched without waiting, each with its own parameters, into results of their own."""
    spec = slot_source_spec(ImageSpec.make(NV12, 640, 360))
    chains = [parse_chain(f"gamma(gamma={1 + i / 8}) | gaussian_blur(ksize={1 + 2 * (i % 9)})") for i in range(24)]
    plan = make_plan(chains[0], spec)
    source_memory = device.allocate_slot(spec.nbytes)
    results = [device.allocate_slot(result_nbytes(plan)) for _ in chains]
    source = ImageView(spec, source_memory.array, source_memory.dev_ptr)
    paint_random(3)(source)
    executor = device.make_executor(plan)
    completions = [
        executor.submit(source, ImageView(plan.result, memory.array, memory.dev_ptr), chain_params(chain))
        for chain, memory in zip(chains, results, strict=True)
    ]
    for completion in completions:
        completion.wait()
        assert completion.done()
        assert (completion.gpu_ns() or 0) > 0
    for chain, memory in zip(chains, results, strict=True):
        expected = check_exact(device, spec, chain, paint_random(3))
        np.testing.assert_array_equal(ImageView(plan.result, memory.array).plane(0), expected)
    executor.close()
    for memory in (source_memory, *results):
        memory.close()


class TestTemporalCases(TemporalCases):
    """By every plan of a chain."""

    @pytest.fixture(params=[lambda plan: plan, unfused, reads_in_place], ids=["planned", "unfused", "in_place"])
    def device(self, device: PlanDevice, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> PlanDevice:
        monkeypatch.setattr(device, "change", request.param)
        return device


@pytest.mark.parametrize("name", TEMPORAL_ORACLES)
def test_large_pictures_are_remembered_exactly(device: PlanDevice, name: str) -> None:
    for size in ((1920, 1080), (641, 479), (4096, 33), (33, 4096)):
        check_exact(device, slot_source_spec(ImageSpec.make(NV12, *size)), f"sobel | {name} | gamma", frames=4)


@pytest.mark.parametrize("name", TEMPORAL_ORACLES)
def test_frames_under_way_together_are_remembered_in_their_order(device: PlanDevice, name: str) -> None:
    """Launched without waiting, each with its own slots: a frame finds what the one before has left."""
    spec = slot_source_spec(ImageSpec.make(NV12, 640, 360))
    chain = parse_chain(f"gaussian_blur(ksize=3) | {name} | sobel")
    plan = make_plan(chain, spec)
    sources, results = [], []
    for number in range(12):
        sources.append(device.allocate_slot(spec.nbytes))
        results.append(device.allocate_slot(result_nbytes(plan)))
        paint_scene(5, number)(ImageView(spec, sources[-1].array, sources[-1].dev_ptr))
    executor = device.make_executor(plan)
    completions = [
        executor.submit(
            ImageView(spec, source.array, source.dev_ptr),
            ImageView(plan.result, result.array, result.dev_ptr),
            chain_params(chain),
        )
        for source, result in zip(sources, results, strict=True)
    ]
    oracle = ChainOracle()
    for number, (completion, source, result) in enumerate(zip(completions, sources, results, strict=True)):
        completion.wait()
        expected = oracle(ImageView(spec, source.array), chain)
        np.testing.assert_array_equal(ImageView(plan.result, result.array).plane(0), expected, f"frame {number}")
    executor.close()
    for memory in (*sources, *results):
        memory.close()


def test_a_picture_of_another_layout_is_refused(device: PlanDevice) -> None:
    spec = slot_source_spec(ImageSpec.make(NV12, 64, 48))
    plan = make_plan(parse_chain("sobel"), spec)
    executor = device.make_executor(plan)
    memory = device.allocate_slot(1 << 20)
    other = ImageView(ImageSpec.make(NV12, 64, 48), memory.array, memory.dev_ptr)
    result = ImageView(plan.result, memory.array, memory.dev_ptr)
    with pytest.raises(InputError, match="64x48 NV12"):
        executor.submit(other, result, chain_params(parse_chain("sobel")))
    with pytest.raises(InputError, match="not in memory that the GPU sees"):
        executor.submit(ImageView(spec, memory.array), result, chain_params(parse_chain("sobel")))
    executor.close()
    memory.close()


def test_out_of_device_memory_says_what_was_asked_and_is_free(device: PlanDevice) -> None:
    ledger = Ledger()
    with pytest.raises(OutOfMemoryError, match=r"device memory: .* MB were asked for and .* MB is free") as caught:
        DeviceMemory(1 << 50, ledger)
    assert caught.value.asked_bytes == 1 << 50
    assert (caught.value.free_bytes or 0) > 0
    assert ledger.held("device") == 0


def test_slots_are_seen_by_the_gpu_at_one_address(device: PlanDevice) -> None:
    with device.allocate_slot(1 << 16) as memory:  # type: ignore[attr-defined]
        assert memory.dev_ptr is not None
        assert memory.array.ctypes.data % 4096 == 0
        assert device.ledger.held("pinned") == 1 << 16
