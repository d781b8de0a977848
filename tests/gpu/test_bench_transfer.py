"""Transfers on a GPU: patterns of bytes prove that each way moves all of them, and everything is given back."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from kernels.bench import BY_HAND
from kernels.bench_case import make_case
from kernels.bench_frame import FrameOptions, measure_frames
from kernels.device import MEMORY_STRATEGIES, CudaDevice
from kernels.formats import BGR8
from kernels.image import Pixels
from kernels.proof import attribute
from kernels.transfer import Options, measure
from kernels.transfer_cuda import CudaMachine
from kernels.transfer_host import HostMachine
from kernels.transfer_memory import absent_kinds
from kernels.transfer_plan import CUDA_WAYS, Direction, holdings, refusal

pytestmark = pytest.mark.gpu

KINDS = ("host", "pinned", "device", "managed")


@pytest.fixture
def device() -> CudaDevice:
    return CudaDevice()


def stamped(nbytes: int, seed: int) -> Pixels:
    """Bytes that this test makes by itself: each page and each 16-byte word is another one."""
    numbers = np.arange(-(-nbytes // 8), dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(seed)
    mixed: Pixels = (numbers ^ (numbers >> np.uint64(29))).view(np.uint8)[:nbytes]
    return mixed


def device_bytes(pointer: int, nbytes: int) -> Pixels:
    from cupy.cuda import runtime

    found = np.empty(nbytes, np.uint8)
    runtime.memcpy(found.ctypes.data, pointer, nbytes, runtime.memcpyDeviceToHost)
    return found


def to_device(pointer: int, content: Pixels) -> None:
    from cupy.cuda import runtime

    runtime.memcpy(pointer, content.ctypes.data, content.nbytes, runtime.memcpyHostToDevice)
    runtime.deviceSynchronize()  # from pageable memory it returns once the driver has the bytes, not the device


# Smaller than a warp's words; pages and a piece; not a multiple of 16; more than one load for each thread.
@pytest.mark.parametrize("nbytes", [4096, 3 * 4096 + 16, 1_000_003, 33_333_333])
def test_each_way_moves_every_byte(device: CudaDevice, nbytes: int) -> None:
    """The contents and the comparison are the test's own; the way under test only moves them."""
    machine = CudaMachine(device, 1 << 30, "a test")
    room = machine.room()
    first, second = stamped(nbytes, 1), stamped(nbytes, 2)
    moved = []
    for memory, paired, ways in holdings([way for way in CUDA_WAYS if refusal(way, nbytes, room) is None]):
        with machine.hold(memory, nbytes, paired) as held:
            for way in ways:
                transfer = held.transfer(way)
                transfer.spoil()
                if way.memory == "managed" and way.direction == "out":
                    to_device(held._devices[0], second)
                    transfer.prepare()  # a kernel writes them: the pages lie on the device then
                else:
                    transfer.prepare()
                    if way.direction != "out":
                        held._hosts[0].array[:] = first
                    if way.direction != "in":
                        to_device(held._devices[-1], second)
                transfer.run()
                if way.direction == "in" or (way.direction == "both" and way.how != "kernel"):
                    assert (device_bytes(held._devices[0], nbytes) == first).all(), way.name
                if way.direction != "in":
                    expected = first if (way.direction, way.how) == ("both", "kernel") else second
                    assert (held._hosts[-1].array == expected).all(), way.name
                held._arranged = None  # its own patterns are gone
                moved.append(way)
    assert {way.memory for way in moved} >= {"pageable", "pinned"}
    assert {device.ledger.held(kind) for kind in KINDS} == {0}


def test_a_run_measures_all_that_this_device_has_and_gives_it_back(device: CudaDevice) -> None:
    machine = CudaMachine(device, 1 << 30, "a test")
    absent = absent_kinds(device.index)
    figures = measure([machine, HostMachine()], [1_000_000, 10_000_000], Options(5))
    assert not figures.failure
    assert [one for one in figures.skipped if one.broken] == []
    # Two things depend on the machine beside the device: how much /dev/shm and the card have free.
    for left in figures.skipped:
        assert set(left.way.kinds) & {*absent, "managed", "registered shm"}, (left.way.name, left.reason)
    assert figures.peak is not None
    assert min(figures.peak.in_gb_s, figures.peak.out_gb_s, figures.peak.both_gb_s) > 0
    for one in figures.results:
        percent = figures.peak_percent(one)
        # Not how large: tests beside this one take the link while its peak is measured.
        assert percent is None or percent > 0, (one.way.name, one.nbytes, percent)
    assert {device.ledger.held(kind) for kind in KINDS} == {0}


def test_more_than_there_is_room_for_is_skipped_and_nothing_is_taken(
    device: CudaDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if the card had 15 MB left and 5 MB might be pinned."""
    machine = CudaMachine(device, 5_000_000, "a test")
    room = replace(machine.room(), device_bytes=15_000_000)
    monkeypatch.setattr(machine, "room", lambda: room)
    before = device_free()
    least = before

    def watch(text: str) -> None:
        nonlocal least
        least = min(least, device_free())

    figures = measure([machine], [10_000_000], Options(1), watch)
    assert {one.way.memory for one in figures.results} == {"pageable"}
    assert {one.way.direction for one in figures.results} == {"in", "out"}, "both at once would take twice that"
    assert not any(one.broken for one in figures.skipped)
    assert before - least < 64 << 20, "what a context keeps comes in blocks of megabytes"
    assert {device.ledger.held(kind) for kind in KINDS} == {0}


def device_free() -> int:
    from cupy.cuda import runtime

    return int(runtime.memGetInfo()[0])


def test_an_interrupt_gives_everything_back(device: CudaDevice) -> None:
    for after in (1, 5, 20):
        asked = 0

        def stop(after: int = after) -> bool:
            nonlocal asked
            asked += 1
            return asked > after

        figures = measure([CudaMachine(device, 1 << 30, "a test")], [100_000], Options(3), stop=stop)
        assert figures.interrupted
        assert {device.ledger.held(kind) for kind in KINDS} == {0}


def test_managed_memory_that_is_touched_first_is_slower_than_pinned(device: CudaDevice) -> None:
    """First touch is first touch in every run: pages that had stayed where they were would beat any link."""
    machine = CudaMachine(device, 1 << 30, "a test")
    one_memory = device.integrated or attribute("PageableMemoryAccessUsesHostPageTables", device.index)
    if one_memory or "managed" in machine.room().absent:
        pytest.skip("its pages do not move here")
    figures = measure([machine], [50_000_000], Options(5))
    times = {(one.way.direction, one.way.how): one for one in figures.results if one.way.memory == "managed"}
    peak = figures.peak
    assert peak is not None
    limits: dict[Direction, float] = {"in": peak.in_gb_s, "out": peak.out_gb_s}
    for direction, most in limits.items():
        one = times[direction, "first touch"]
        assert one.nbytes / min(one.runs_s) / 1e9 < 1.1 * most


def test_a_frame_is_timed_in_every_strategy_that_is_offered_here() -> None:
    figures = measure_frames([make_case("std4", BGR8, 640, 480)], MEMORY_STRATEGIES, FrameOptions(10, 2))
    (one,) = figures.cases
    assert not figures.failure
    assert {"zero_copy", "host", BY_HAND} <= {way for way, found in one.ways.items() if found.p50_us}
    for way in MEMORY_STRATEGIES:
        found = one.ways.get(way)
        assert way in figures.absent or (found is not None and len(found.p50_us) == 2), way
