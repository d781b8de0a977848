"""One frame through a chain by each memory strategy: what is tried, what is left out, and what is compared."""

from __future__ import annotations

import mmap

import pytest

from kernels.bench import BY_HAND, WayFigures, from_camera
from kernels.bench_case import make_case
from kernels.bench_frame import BASELINE, FrameCase, FrameOptions, measure_frames
from kernels.device import MEMORY_STRATEGIES, Device, HostDevice, NullDevice
from kernels.errors import DeviceFailedError, DeviceUnavailableError, InputError, OutOfMemoryError
from kernels.formats import BGR8

CASES = [make_case("sharpen", BGR8, 32, 16), make_case("median", BGR8, 33, 17)]
FEW = FrameOptions(frames=3, runs=2)


class Opened:
    """Devices by strategy, or the error that opening one ends in; all must be closed at the end."""

    def __init__(self, **strategies: Device | Exception) -> None:
        self.strategies = strategies
        self.closed: list[str] = []

    def __call__(self, name: str) -> tuple[Device, str]:
        found = self.strategies[name]
        if isinstance(found, Exception):
            raise found
        found.close = lambda: self.closed.append(name)  # type: ignore[method-assign]
        return found, "asked for"


def test_every_strategy_is_tried_and_what_this_machine_lacks_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kernels.device.cuda_absence", lambda index=0: "there is none here")
    figures = measure_frames(CASES[:1], MEMORY_STRATEGIES, FEW)
    assert set(figures.absent) == set(MEMORY_STRATEGIES) - {"host"}
    assert all("there is none here" in reason for reason in figures.absent.values())
    with pytest.raises(InputError):
        measure_frames(CASES, ["nonsense"], FEW)


def test_each_turn_has_every_way_of_every_case_and_all_is_closed() -> None:
    opened = Opened(zero_copy=HostDevice(), host=HostDevice(), staged=DeviceUnavailableError("no GPU"))
    said: list[str] = []
    figures = measure_frames(CASES, ["zero_copy", "staged", "host"], FEW, said.append, open=opened)
    ways = ["zero_copy", "host", BY_HAND]
    steps = ["zero_copy", "staged", "host", BY_HAND]
    assert said == [f"{one.source_text} {way}" for _ in range(2) for one in CASES for way in steps]
    first, second = figures.cases
    assert list(first.ways) == list(second.ways) == ways
    assert all(len(first.ways[way].p50_us) == 2 and first.ways[way].frames == 6 for way in ways)
    assert second.ways[BY_HAND].left_out == "nothing there for median"
    assert figures.absent == {"staged": "no GPU"}
    assert opened.closed == ["zero_copy", "host"]
    assert all(device.ledger.held("host") == 0 for device in opened.strategies.values() if isinstance(device, Device))


@pytest.mark.parametrize("after", [0, 1, 4])
def test_an_interrupt_keeps_what_was_measured(after: int) -> None:
    asked: list[int] = []

    def stop() -> bool:
        asked.append(1)
        return len(asked) > after

    opened = Opened(host=HostDevice())
    figures = measure_frames(CASES, ["host"], FEW, stop=stop, open=opened)
    assert figures.interrupted
    timed = [len(way.p50_us) + bool(way.left_out) for one in figures.cases for way in one.ways.values()]
    assert sum(timed) == after
    assert opened.closed == ["host"]


def test_memory_that_is_not_to_be_had_leaves_that_case_out() -> None:
    device = NullDevice()
    device.fail_allocation = OutOfMemoryError("pinned host memory", 10**6, 5, "lower it")
    figures = measure_frames(CASES[:1], ["host"], FEW, open=Opened(host=device))
    assert "pinned host memory" in figures.cases[0].ways["host"].left_out
    assert figures.cases[0].ways[BY_HAND].p50_us


def test_a_lost_context_ends_the_run_with_its_cause() -> None:
    device = NullDevice()
    device.fail_submit = DeviceFailedError("cuLaunchKernel", 700, "cudaErrorIllegalAddress", True, "restart")
    opened = Opened(host=device)
    figures = measure_frames(CASES, ["host"], FEW, open=opened)
    assert "cudaErrorIllegalAddress" in figures.failure
    assert opened.closed == ["host"]
    assert device.ledger.held("host") == 0


def test_the_cpu_writes_every_page_of_a_frame_before_it() -> None:
    case = make_case("sharpen", BGR8, 64, 64)
    device, seen = NullDevice(), []
    device.on_done = lambda source, result: seen.append(source.buffer[:: mmap.PAGESIZE].copy())
    ready = from_camera(device, case)
    for _ in range(3):
        ready.settle(ready.frame())
    ready.close()
    assert len(seen) == 3
    assert len(seen[0]) == -(-case.plan.source.nbytes // mmap.PAGESIZE)
    assert all((seen[i] != seen[i + 1]).all() for i in range(2)), "each page is another one in each frame"
    assert device.ledger.held("host") == 0


def test_savings_are_medians_against_one_another() -> None:
    one = FrameCase(CASES[0])
    one.ways = {
        "zero_copy": WayFigures([20.0, 25.0, 90.0], [30.0, 40.0, 95.0], 9),
        "staged": WayFigures([24.0, 24.0, 24.0], [24.0] * 3, 9),
        BASELINE: WayFigures([100.0, 100.0, 100.0], [100.0] * 3, 9),
        BY_HAND: WayFigures(left_out="nothing there for flip"),
    }
    assert one.saved_percent("zero_copy", BASELINE) == 75
    assert one.p99_us("zero_copy") == 40
    assert one.saved_percent(BASELINE, BASELINE) is None
    assert one.saved_percent("zero_copy", BY_HAND) is None
    assert one.best() == "zero_copy", "within 5 % of the least, the first that is listed"
    one.ways["zero_copy"].p50_us = [26.0] * 3
    assert one.best() == "staged"
    assert FrameCase(CASES[0]).best() is None
