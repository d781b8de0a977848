"""The benchmark of transfers: sizes and limits, what is measured in which order, and that bytes really arrive."""

from __future__ import annotations

import ctypes
import re
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels import transfer_cuda, transfer_host, transfer_memory
from kernels.errors import DeviceFailedError, InputError, OutOfMemoryError
from kernels.transfer import (
    PERIOD,
    POISON,
    Figures,
    Options,
    Pattern,
    Peak,
    Result,
    Transfer,
    measure,
)
from kernels.transfer_cuda import CudaMachine
from kernels.transfer_host import HostMachine
from kernels.transfer_plan import (
    CUDA_WAYS,
    HOST_WAYS,
    LEAST_BYTES,
    MOST_BYTES,
    Memory,
    Room,
    Way,
    chunks,
    holdings,
    need,
    parse_size,
    parse_sizes,
    refusal,
    size_text,
)
from tests.kernels.fake_cuda import Runtime, fake_cuda
from tests.programs import program

sizes = st.integers(LEAST_BYTES, MOST_BYTES)
ways = st.sampled_from([*CUDA_WAYS, *HOST_WAYS])
amounts = st.integers(0, 1 << 38)
rooms = st.builds(Room, amounts, amounts, amounts, amounts, st.booleans())


@given(sizes)
def test_a_size_is_read_back_from_its_text(nbytes: int) -> None:
    assert parse_size(size_text(nbytes)) == nbytes


@pytest.mark.parametrize(
    ("text", "nbytes"),
    [("1M,10M,100M,1G", (10**6, 10**7, 10**8, 10**9)), ("16MiB, 4 KiB,16Mi", (4096, 1 << 24)), ("5000", (5000,))],
)
def test_sizes_are_each_once_and_ascending(text: str, nbytes: tuple[int, ...]) -> None:
    assert parse_sizes(text) == nbytes


@pytest.mark.parametrize(
    "text", ["", "1Q", "1M,,2M", "-1M", "1.5G", "M", "4095", "65G", "1e6", "١M", "1Mb/s", "9" * 13]
)
def test_what_is_no_size_is_refused_with_what_is_allowed(text: str) -> None:
    with pytest.raises(InputError, match=r"--sizes: .*from 4Ki to 64G, such as 1M,10M,100M,1G"):
        parse_sizes(text)


@given(ways, sizes, rooms)
def test_nothing_is_measured_that_does_not_fit(way: Way, nbytes: int, room: Room) -> None:
    asked = need(way, nbytes)
    fits = (
        asked.host_bytes <= room.host_bytes
        and asked.pinned_bytes <= room.pinned_bytes
        and asked.shm_bytes <= room.shm_bytes
        and asked.device_bytes <= room.device_bytes
    )
    both = asked.host_bytes + asked.device_bytes
    if room.shared:
        fits = fits and both <= room.host_bytes and both <= room.device_bytes
    reason = refusal(way, nbytes, room)
    assert (reason is None) == fits
    assert reason is None or re.search(r"needs [0-9.]+ [kMG]?B of .+; [0-9.]+ [kMG]?B may be taken", reason)


@given(ways, sizes, sizes, rooms)
def test_what_fits_fits_if_it_is_smaller_or_there_is_more_room(way: Way, one: int, other: int, room: Room) -> None:
    small, large = sorted((one, other))
    if refusal(way, large, room) is None:
        assert refusal(way, small, room) is None
        assert refusal(way, large, replace(room, host_bytes=room.host_bytes + 1, device_bytes=1 << 60)) is None


@given(ways, sizes)
def test_each_way_needs_its_bytes_on_both_sides(way: Way, nbytes: int) -> None:
    asked = need(way, nbytes)
    assert asked.host_bytes + asked.device_bytes >= 2 * nbytes
    assert asked.pinned_bytes in ({0} if way.memory in ("pageable", "managed", "host") else {nbytes, 2 * nbytes})
    if way.memory == "managed":
        assert asked.device_bytes == 2 * nbytes, "managed bytes come to lie on the card, beside their copy"


def test_what_a_device_does_not_have_is_said_at_every_size() -> None:
    room = Room(1 << 40, 1 << 40, 1 << 40, 1 << 40, absent={"managed": "none here", "prefetch": "not that"})
    said = {way.name: refusal(way, 4096, room) for way in CUDA_WAYS if way.memory == "managed"}
    assert set(said.values()) == {"none here"}
    room = replace(room, absent={"prefetch": "not that"})
    assert [refusal(way, 4096, room) for way in CUDA_WAYS if way.memory == "managed"] == [None, "not that"] * 2


@given(st.integers(1, 10**9), st.integers(1, 8))
def test_the_streams_shares_are_the_whole_and_aligned(nbytes: int, count: int) -> None:
    parts = chunks(nbytes, count)
    assert 1 <= len(parts) <= count
    assert all(start % 256 == 0 and size > 0 for start, size in parts)
    assert [start for start, _ in parts] == [sum(size for _, size in parts[:i]) for i in range(len(parts))]
    assert sum(size for _, size in parts) == nbytes


def test_every_way_is_held_once_and_baselines_are_where_they_are_needed() -> None:
    for listed in (CUDA_WAYS, HOST_WAYS):
        groups = holdings(listed)
        assert sorted(way.name + way.direction for _, _, group in groups for way in group) == sorted(
            way.name + way.direction for way in listed
        )
        assert len({(memory, paired) for memory, paired, _ in groups}) == len(groups)
        for direction in {way.direction for way in listed}:
            assert sum(way.is_baseline for way in listed if way.direction == direction) == 1
    assert {way.streams for way in CUDA_WAYS if way.memory == "pinned" and way.direction == "in"} == {0, 1, 2, 4, 8}


@given(st.integers(0, 3 * PERIOD), st.integers(1, 2 * PERIOD + 5), st.data())
def test_one_wrong_byte_anywhere_is_found(start: int, nbytes: int, data: st.DataObject) -> None:
    pattern, found = Pattern(1), np.empty(nbytes, np.uint8)
    pattern.fill(found, start)
    assert pattern.first_wrong(found, start) is None
    wrong = data.draw(st.integers(0, nbytes - 1))
    found[wrong] ^= 1
    assert pattern.first_wrong(found, start) == start + wrong


def test_a_pattern_tells_pages_and_seeds_apart() -> None:
    whole = np.empty(3 * PERIOD, np.uint8)
    Pattern(1).fill(whole)
    pages = whole[: whole.size // 4096 * 4096].reshape(-1, 4096)
    assert len({page.tobytes() for page in pages}) == len(pages)
    assert Pattern(2).first_wrong(whole) is not None


class Scripted:
    """A machine whose runs take what the test says. ``log`` has every step, ``open`` how much is held."""

    def __init__(self, *listed: Way, room: Room | None = None, seconds: Sequence[float] = (1.0,)) -> None:
        self.ways: Sequence[Way] = listed
        self.log: list[str] = []
        self.now, self.open, self.holds = 0.0, 0, 0
        self.setup_s = 0.5
        self.loses: str = ""
        self.fail_hold: Exception | None = None
        self.fail_run: Exception | None = None
        self._room = room or Room(1 << 40, 1 << 40, 1 << 40, 1 << 40)
        self._seconds = list(seconds)

    def room(self) -> Room:
        return self._room

    def peak(self) -> Peak | None:
        self.log.append("peak")
        return Peak(1.0, 2.0, 0.5)

    @contextmanager
    def hold(self, memory: Memory, nbytes: int, paired: bool) -> Iterator[Scripted]:
        if self.fail_hold is not None:
            error, self.fail_hold = self.fail_hold, None
            raise error
        self.holds += 1
        self.open += 1
        assert self.open == 1, "one holding at a time"
        self.log.append(f"hold {memory} {nbytes} {paired}")
        try:
            yield self
        finally:
            self.open -= 1

    def transfer(self, way: Way) -> Transfer:
        def run() -> None:
            self.log.append("run")
            if self.fail_run is not None:
                raise self.fail_run
            self.now += self._seconds[0] if len(self._seconds) == 1 else self._seconds.pop(0)

        wrong = 7 if way.name == self.loses else None
        return Transfer(run, lambda: self.log.append("spoil"), lambda: wrong, lambda: self.log.append("prepare"))

    def clock(self) -> float:
        return self.now


IN = [way for way in CUDA_WAYS if way.direction == "in"]
PAGEABLE, PINNED, MAPPED = IN[0], IN[1], IN[6]


def test_bytes_are_proven_before_any_is_timed_and_pages_made_ready_before_each() -> None:
    machine = Scripted(PINNED)
    figures = measure([machine], [10**9], Options(2), clock=machine.clock)
    proof = ["spoil", "prepare", "run"]
    assert machine.log == ["peak", "hold pinned 1000000000 False", *proof, *["prepare", "run"] * 2]
    (result,) = figures.results
    assert (result.runs_s, result.setup_s, result.gb_s) == ((1.0, 1.0), 0.5, 1.0)
    assert figures.peak_percent(result) == 100
    assert figures.saved_percent(result) is None, "there is no baseline"


def test_bytes_that_do_not_arrive_give_no_figures() -> None:
    machine = Scripted(PAGEABLE, PINNED, MAPPED)
    machine.loses = PINNED.name
    figures = measure([machine], [10**6], Options(2), clock=machine.clock)
    assert [one.way for one in figures.results] == [PAGEABLE, MAPPED]
    (skipped,) = figures.skipped
    assert (skipped.way, skipped.broken, skipped.reason) == (PINNED, True, "byte 7 of 1000000 did not arrive")


def test_slow_ways_are_run_less_often() -> None:
    machine = Scripted(PINNED, seconds=[0.1])
    figures = measure([machine], [10**6], Options(100, most_s=0.45, least=3), clock=machine.clock)
    assert len(figures.results[0].runs_s) == 5
    figures = measure([machine], [10**6], Options(100, most_s=0.0, least=3), clock=machine.clock)
    assert len(figures.results[0].runs_s) == 3
    figures = measure([machine], [10**6], Options(1, most_s=0.0, least=3), clock=machine.clock)
    assert len(figures.results[0].runs_s) == 1


def test_savings_are_of_the_same_direction_and_size() -> None:
    figures = Figures(peak=Peak(50.0, 60.0, 40.0))
    out, host = CUDA_WAYS[len(IN)], HOST_WAYS[0]
    figures.results = [
        Result(PAGEABLE, 10**6, (4.0, 5.0, 90.0), 0), Result(PINNED, 10**6, (1.0,), 0),
        Result(PAGEABLE, 10**7, (8.0,), 0), Result(PINNED, 10**7, (16.0,), 0),
        Result(out, 10**6, (7.0,), 0), Result(host, 10**6, (2.0,), 0),
    ]  # fmt: skip
    saved = [figures.saved_percent(one) for one in figures.results]
    assert saved == [0.0, 80.0, 0.0, -100.0, 0.0, 0.0]
    assert figures.peak_percent(figures.results[-1]) is None, "host memory has no link"


@pytest.mark.parametrize("after", range(8))
def test_an_interrupt_anywhere_keeps_what_was_measured_and_gives_everything_back(after: int) -> None:
    machine = Scripted(PAGEABLE, MAPPED)
    asked = 0

    def stop() -> bool:
        nonlocal asked
        asked += 1
        return asked > after

    figures = measure([machine], [10**6, 10**7], Options(2), stop=stop, clock=machine.clock)
    assert figures.interrupted
    assert machine.open == 0
    assert sum(len(one.runs_s) for one in figures.results) == machine.log.count("run") - machine.log.count("spoil")
    assert asked == after + 1, "the first yes ends it"


def test_memory_that_is_not_to_be_had_costs_its_own_ways_only() -> None:
    machine = Scripted(PINNED, IN[2], PAGEABLE)
    machine.fail_hold = OutOfMemoryError("pinned host memory", 10**6, 5, "lower something")
    figures = measure([machine], [10**6, 10**7], Options(1), clock=machine.clock)
    assert [(one.way.memory, one.nbytes) for one in figures.skipped] == [("pinned", 10**6)] * 2
    assert "pinned host memory: 1.0 MB were asked for" in figures.skipped[0].reason
    assert len(figures.results) == 4
    assert not figures.failure


def test_a_lost_context_ends_the_run_with_its_cause_and_everything_back() -> None:
    machine = Scripted(PAGEABLE, MAPPED)
    machine.fail_run = DeviceFailedError("cudaMemcpy", 700, "cudaErrorIllegalAddress", True, "restart")
    figures = measure([machine], [10**6, 10**7], Options(1), clock=machine.clock)
    assert "cudaErrorIllegalAddress" in figures.failure
    assert (machine.open, machine.holds, figures.results) == (0, 1, [])
    assert [one.broken for one in figures.skipped] == [True]
    machine.fail_run = DeviceFailedError("cudaMemcpy", 1, "cudaErrorInvalidValue", False, "look")
    figures = measure([machine], [10**6], Options(1), clock=machine.clock)
    assert not figures.failure
    assert len(figures.skipped) == 2, "another holding may work"


def test_what_does_not_fit_is_skipped_and_said_while_the_rest_is_measured() -> None:
    said: list[str] = []
    machine = Scripted(PAGEABLE, PINNED, room=Room(1 << 40, 5 * 10**6, 0, 1 << 40))
    figures = measure([machine], [10**6, 10**7], Options(1), said.append, clock=machine.clock)
    (skipped,) = figures.skipped
    assert (skipped.way, skipped.nbytes, skipped.broken) == (PINNED, 10**7, False)
    assert skipped.reason == "needs 10 MB of pinned memory; 5 MB may be taken (--max-pinned)"
    assert len(said) == 4, "one word for each step, so that progress ends at its end"


@pytest.mark.parametrize("nbytes", [LEAST_BYTES, 4097, 3 * 4096 + 1, PERIOD + 12_345])
def test_host_copies_really_copy_and_give_all_back(nbytes: int) -> None:
    machine = HostMachine()
    with machine.hold("host", nbytes, False) as held:
        assert machine.ledger.held("host") >= 2 * nbytes
        for way in HOST_WAYS:
            transfer = held.transfer(way)
            transfer.spoil()
            assert transfer.first_wrong() == 0, f"{way.name}: nothing has arrived yet"
            transfer.prepare()
            transfer.run()
            assert transfer.first_wrong() is None, way.name
    assert machine.ledger.held("host") == 0


def test_fresh_memory_is_fresh_each_time() -> None:
    machine = HostMachine()
    fresh = [way for way in HOST_WAYS if "fresh" in way.how]
    with machine.hold("host", 8192, False) as held:
        for transfer in map(held.transfer, fresh):
            for _ in range(3):
                transfer.prepare()
                assert held._fresh is not None
                assert not held._fresh.array.any()
                transfer.run()
    assert machine.ledger.held("host") == 0


def test_free_host_memory_is_the_containers_where_that_is_less(monkeypatch: pytest.MonkeyPatch) -> None:
    files = {"max": str(4 << 30), "current": str(1 << 30), "stat": f"anon 5\ninactive_file {1 << 29}\n"}
    monkeypatch.setattr(transfer_host, "available_host_bytes", lambda: 1 << 40)
    monkeypatch.setattr(transfer_host, "_read", lambda path: files[path.rpartition(".")[2]])
    free = (4 << 30) - (1 << 30) + (1 << 29)
    assert transfer_host.free_host_bytes() == free - (256 << 20) - free // 16
    files["max"] = "max\n"
    assert transfer_host.free_host_bytes() > 1 << 39
    del files["max"]  # no such control group
    monkeypatch.setattr(transfer_host, "_read", lambda path: Path("/nowhere", path[1:]).read_text())
    assert transfer_host.free_host_bytes() > 1 << 39
    monkeypatch.setattr(transfer_host, "available_host_bytes", lambda: 5)
    assert transfer_host.free_host_bytes() == 0


@pytest.mark.parametrize("nbytes", [LEAST_BYTES, 4096 * 2 + 5, 100_003])
def test_each_way_of_cuda_moves_every_byte_and_frees_what_it_took(nbytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = Runtime()
    device = fake_cuda(monkeypatch, runtime)
    machine = CudaMachine(device, 1 << 30, "a test")
    for memory, paired, group in holdings(machine.ways):
        with machine.hold(memory, nbytes, paired) as held:
            for way in group:
                transfer = held.transfer(way)
                transfer.spoil()
                transfer.prepare()
                if way.memory != "managed" or way.direction == "in":
                    assert transfer.first_wrong() == 0, f"{way.name}: nothing has arrived yet"
                transfer.run()
                assert transfer.first_wrong() is None, way.name
        assert runtime.held() == []
    assert {device.ledger.held(kind) for kind in ("host", "pinned", "device", "managed")} == {0}


def test_streams_share_the_bytes_and_prefetches_go_both_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = Runtime()
    machine = CudaMachine(fake_cuda(monkeypatch, runtime), 1 << 30, "a test")
    measure([_without_peak(machine)], [100_000], Options(1))
    used = {call for call in runtime.calls if call.startswith("memcpyAsync")}
    assert used == {f"memcpyAsync {stream.ptr}" for stream in machine.streams}
    assert {"prefetch 0", "prefetch None"} < set(runtime.calls)


def test_a_copy_that_leaves_out_a_byte_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = Runtime()
    machine = CudaMachine(fake_cuda(monkeypatch, runtime), 1 << 30, "a test")
    runtime.loses_last_byte = True
    figures = measure([_without_peak(machine)], [100_000], Options(1))
    assert {one.way.how for one in figures.skipped if one.broken} == {"streams"}
    assert not [one for one in figures.results if one.way.how == "streams"]
    assert all("did not arrive" in one.reason for one in figures.skipped)


def _without_peak(machine: CudaMachine) -> CudaMachine:
    machine.peak = lambda: None  # type: ignore[method-assign]
    return machine


def test_an_error_of_any_call_frees_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fault injection: each call of a whole run fails once, with no memory, another error and a lost context."""
    runtime = Runtime()
    device = fake_cuda(monkeypatch, runtime)
    machine = _without_peak(CudaMachine(device, 1 << 30, "a test"))
    del runtime.calls[:]
    measure([machine], [5000], Options(1))
    first = {name: runtime.calls.index(name) for name in dict.fromkeys(runtime.calls)}
    kinds = [name for name in first if name not in ("hostUnregister", "free", "freeHost")]
    assert len(kinds) > 10
    for name in kinds:
        for status in (2, 1, 700):
            del runtime.calls[:]
            runtime.fail_at, runtime.status = first[name] + 1, status
            figures = measure([machine], [5000], Options(1))
            runtime.fail_at = None
            assert runtime.held() == [], f"{name} {status}"
            assert {device.ledger.held(kind) for kind in ("host", "pinned", "device", "managed")} == {0}
            assert figures.skipped or figures.failure, f"{name} {status}"
            # Where not even the room is told, nothing can be measured.
            assert bool(figures.failure) == (status == 700 or name == "memGetInfo"), f"{name} {status}"


def test_a_device_without_prefetch_or_registering_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = Runtime()
    device = fake_cuda(monkeypatch, runtime)
    runtime.attributes = dict.fromkeys(runtime.names, 0)
    absent = transfer_memory.absent_kinds(0)
    assert set(absent) == {"registered NumPy", "registered shm", "managed", "pageable, kernel"}
    runtime.attributes |= {"ManagedMemory": 1}
    assert "ConcurrentManagedAccess is 0" in transfer_memory.absent_kinds(0)["prefetch"]
    runtime.attributes |= {"ConcurrentManagedAccess": 1, "PageableMemoryAccess": 1}
    assert "pageable, kernel" in transfer_memory.absent_kinds(0), "by page faults it is no use"
    runtime.attributes |= {"Integrated": 1}
    assert "pageable, kernel" not in transfer_memory.absent_kinds(0)
    runtime.fail_at, runtime.status = len(runtime.calls) + 2, 101
    assert "cudaErrorOfATest101" in transfer_memory.absent_kinds(0)["prefetch"]
    assert runtime.held() == []
    machine = CudaMachine(device, 1 << 30, "a test")
    room = machine.room()
    assert room.pinned_bytes == 1 << 30
    assert room.device_bytes < runtime.device_bytes


def test_a_full_shared_memory_is_no_bus_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kind of B134: the size is asked for before anything is written."""

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    machine = _without_peak(CudaMachine(fake_cuda(monkeypatch, Runtime()), 1 << 30, "a test"))
    monkeypatch.setattr("os.posix_fallocate", full)
    figures = measure([machine], [5000], Options(1))
    assert {one.way.memory for one in figures.skipped} == {"registered shm"}
    assert all("/dev/shm" in one.reason for one in figures.skipped)


def test_poison_is_nowhere_a_patterns_first_byte() -> None:
    """So a target that was spoilt is known by its first byte."""
    assert POISON not in (Pattern(1).at(0, 1)[0], Pattern(2).at(0, 1)[0])


AS_CPP = """
#include <cstddef>
struct uint4 { unsigned x, y, z, w; };
struct Dim { unsigned x; };
static Dim blockIdx, threadIdx, blockDim, gridDim;
#define __global__
"""
ALL_THREADS = """
extern "C" void run(const void* from, void* to, size_t nbytes, unsigned blocks, unsigned threads) {
  gridDim.x = blocks, blockDim.x = threads;
  for (blockIdx.x = 0; blockIdx.x < blocks; ++blockIdx.x)
    for (threadIdx.x = 0; threadIdx.x < threads; ++threadIdx.x)
      pinhole_move((const uint4*)from, (uint4*)to, nbytes);
}
"""


@pytest.mark.program("c++")
def test_the_kernels_text_moves_every_byte_once_and_none_beside_them(tmp_path: Path) -> None:
    """As C++, thread by thread: pieces of words, fewer words than threads, and more than four for each."""
    text = AS_CPP + transfer_cuda.SOURCE.replace("__restrict__", "") + ALL_THREADS
    (tmp_path / "move.cpp").write_text(text)
    library = tmp_path / "move.so"
    subprocess.run(
        [program("c++"), "-O1", "-fsanitize=undefined", "-fno-sanitize-recover=undefined", "-shared", "-fPIC", "-o",
         str(library), str(tmp_path / "move.cpp")],
        check=True,
    )  # fmt: skip
    run = ctypes.CDLL(str(library)).run
    for nbytes in (1, 15, 16, 17, 4096, 4097 * 16 + 3, 65_536 * 5 + 15):
        for blocks, threads in ((1, 32), (3, 256)):
            source, target = np.empty(nbytes + 64, np.uint8), np.full(nbytes + 64, POISON, np.uint8)
            Pattern(1).fill(source)
            first = -source.ctypes.data % 16, -target.ctypes.data % 16
            pointers = source.ctypes.data + first[0], target.ctypes.data + first[1]
            run(*map(ctypes.c_void_p, pointers), ctypes.c_size_t(nbytes), blocks, threads)
            assert (target[first[1] : first[1] + nbytes] == source[first[0] : first[0] + nbytes]).all()
            assert (np.delete(target, slice(first[1], first[1] + nbytes)) == POISON).all(), "no byte beside them"
