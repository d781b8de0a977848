"""Every memory strategy on a GPU: the same pixels, nothing held afterwards, no frame torn."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest

from kernels.chain import parse_chain
from kernels.crossing import Crossing
from kernels.device import MEMORY_STRATEGIES, Completion, CudaDevice, cuda_errors
from kernels.errors import DeviceFailedError
from kernels.formats import BGR8, FORMATS, GRAY8, NV12
from kernels.image import ImageView
from kernels.memory import HostMemory, Ledger, PageMemory, RegisteredMemory
from kernels.plan import Plan, chain_params, make_plan, result_nbytes, slot_source_spec
from kernels.run_cuda import CudaExecutor
from kernels.strategies import refusals
from tests.kernels.cases import SourceCase, check_exact
from tests.kernels.targets import TARGETS, check_target

pytestmark = pytest.mark.gpu
ON_GPU = [name for name in MEMORY_STRATEGIES if name != "host"]
CHAINS = ["", "gamma", "gaussian_blur | gamma | sharpen", "flip | sobel", "equalize_histogram", "temporal_denoise"]


@pytest.fixture
def open_one() -> Iterator[Callable[[str], CudaDevice]]:
    made: list[CudaDevice] = []

    def open_one(strategy: str) -> CudaDevice:
        device = CudaDevice(memory=strategy)
        if (reason := refusals(device.traits)[strategy]) is not None:
            pytest.skip(reason)
        made.append(device)
        return device

    yield open_one
    for device in made:
        for kind in ("pinned", "managed", "device", "host"):
            assert device.ledger.held(kind) == 0


@pytest.fixture(autouse=True)
def kept(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """What ``auto`` measures is not kept in the user's folder, and kernels are shared by this module's tests."""
    monkeypatch.setenv("PINHOLE_CACHE_DIR", str(tmp_path_factory.getbasetemp() / "strategies"))


@pytest.mark.parametrize("chain", CHAINS)
@pytest.mark.parametrize("strategy", ON_GPU)
def test_every_strategy_is_exact(open_one: Callable[[str], CudaDevice], strategy: str, chain: str) -> None:
    device = open_one(strategy)
    for format, size in ((BGR8, (640, 480)), (GRAY8, (641, 479)), (NV12, (1366, 768))):
        check_exact(device, slot_source_spec(SourceCase(format, *size).spec()), chain, frames=3)


@pytest.mark.parametrize("strategy", ["staged", "pageable", "unified"])
def test_every_format_and_target_is_exact(open_one: Callable[[str], CudaDevice], strategy: str) -> None:
    device = open_one(strategy)
    for format in FORMATS.values():
        check_exact(device, SourceCase(format, 131, 67, 13, 3).spec(), "sobel", frames=2)
    for target in TARGETS:
        check_target(device, SourceCase(NV12, 631, 347).spec(), "sobel", target)


@pytest.mark.parametrize("crossing", [Crossing(8, 0), Crossing(0, 8), Crossing(8, 8), Crossing(2, 5)], ids=str)
@pytest.mark.parametrize("width", [1280, 1281])
def test_no_frame_is_torn_while_bands_come_and_go(
    open_one: Callable[[str], CudaDevice], crossing: Crossing, width: int
) -> None:
    """Each frame is of one value; frames follow each other without a pause, three under way at once."""
    device = open_one("staged")
    plan = make_plan(parse_chain("box_blur | invert"), slot_source_spec(SourceCase(BGR8, width, 720).spec()))
    executor = CudaExecutor(device, plan, "spin", crossing=crossing)
    params = chain_params(parse_chain("box_blur | invert"))
    slots = [_views(device, plan) for _ in range(3)]
    under_way: list[tuple[int, ImageView, Completion]] = []
    try:
        for number in range(1500):
            if len(under_way) == len(slots):
                value, result, completion = under_way.pop(0)
                completion.wait()
                assert (result.plane(0) == 255 - value).all(), number
            source, result = slots[number % len(slots)][1]
            value = number * 37 % 256
            source.buffer[:] = value
            under_way.append((value, result, executor.submit(source, result, params)))
    finally:
        executor.close()
        for owners, _ in slots:
            for owner in owners:
                owner.close()


def _views(device: CudaDevice, plan: Plan) -> tuple[list[HostMemory], tuple[ImageView, ImageView]]:
    first, second = (device.allocate_slot(nbytes) for nbytes in (plan.source.nbytes, result_nbytes(plan)))
    source = ImageView(plan.source, first.array, first.dev_ptr)
    return [first, second], (source, ImageView(plan.result, second.array, second.dev_ptr))


def test_memory_that_was_there_is_used_in_place(open_one: Callable[[str], CudaDevice]) -> None:
    """A NumPy array, registered: the kernel reads it where it lies, and it is ordinary memory afterwards."""
    device = open_one("zero_copy")
    plan = make_plan(parse_chain("invert"), slot_source_spec(SourceCase(GRAY8, 256, 64).spec()))
    executor = device.make_executor(plan)
    array = np.full(plan.source.nbytes, 7, np.uint8)
    with cuda_errors("cudaHostRegister"), RegisteredMemory(array, device.ledger) as registered:
        assert registered.array is array
        result = device.allocate_slot(result_nbytes(plan))
        view = ImageView(plan.result, result.array, result.dev_ptr)
        source = ImageView(plan.source, registered.array, registered.dev_ptr)
        executor.submit(source, view, chain_params(parse_chain("invert"))).wait()
        assert (view.plane(0) == 248).all()
        result.close()
    array[:] = 1
    executor.close()


def test_memory_is_not_registered_twice(open_one: Callable[[str], CudaDevice]) -> None:
    device = open_one("registered")
    with (
        PageMemory(1 << 20, Ledger()) as pages,
        RegisteredMemory(pages.array, device.ledger),
        pytest.raises(DeviceFailedError, match="AlreadyRegistered"),
        cuda_errors("cudaHostRegister"),
    ):
        RegisteredMemory(pages.array, device.ledger)


def test_the_choice_of_auto_says_what_was_measured(open_one: Callable[[str], CudaDevice]) -> None:
    device = open_one("auto")
    executor = device.make_executor(
        make_plan(parse_chain("gamma"), slot_source_spec(SourceCase(BGR8, 1280, 720).spec()))
    )
    executor.close()
    assert isinstance(executor, CudaExecutor)
    assert executor.choice is not None
    assert str(executor.crossing) == executor.choice["chosen"]
    assert executor.choice["chosen"] in executor.choice["microseconds"]
