"""The ring's promises, one by one; ``test_ring_model.py`` has them in any order."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest

from kernels.chain import Chain
from kernels.device import DoneNow, HostDevice, NullDevice
from kernels.errors import DeviceFailedError, InputError, OutOfMemoryError
from kernels.formats import BGR8, I420, NV12
from kernels.image import PLANE_ALIGNMENT
from kernels.memory import HostMemory
from kernels.plan import Plan, make_plan, result_nbytes
from pipeline.lease import LeaseConsumedError, ReadLease
from pipeline.ring import Keep, Ring, RingClosed
from tests.pipeline.fakes import SlowCompletion, as_completion, assert_slots_back, frame, held, image, settled, until

STICKY = DeviceFailedError("cudaEventQuery", 700, "cudaErrorIllegalAddress", True, "restart it")


@pytest.fixture
def device() -> Iterator[NullDevice]:
    made = NullDevice()
    yield made
    assert held(made) == 0, "a test left slots behind"


@pytest.fixture
def ring(device: NullDevice) -> Iterator[Ring]:
    made = Ring(device, image(), slots=4)
    yield made
    assert made.close(5)


@pytest.fixture
def lossless(device: NullDevice) -> Iterator[Ring]:
    made = Ring(device, image(), slots=4, keep=Keep.ALL)
    yield made
    assert made.close(5)


def publish(ring: Ring, sequence: int, value: int | None = None) -> None:
    lease = ring.acquire_write()
    assert lease is not None
    for plane in lease.view.planes:
        plane[...] = (sequence if value is None else value) % 256
    lease.publish(frame(sequence))


def process(ring: Ring, completion: SlowCompletion | None = None) -> int:
    """Process one frame into a result that shows its number; returns that."""
    lease = ring.acquire_ready(0)
    assert lease is not None
    sequence = lease.frame.sequence
    lease.result(make_plan(Chain(), ring.source)).plane(0)[...] = sequence % 256
    lease.finish(DoneNow() if completion is None else as_completion(completion))
    return sequence


def read(ring: Ring) -> ReadLease:
    lease = ring.latest()
    assert lease is not None
    return lease


def test_a_frame_goes_from_writer_to_reader(ring: Ring) -> None:
    assert ring.latest() is None
    publish(ring, 7)
    assert ring.latest() is None, "nobody processed it"
    process(ring)
    with read(ring) as lease:
        assert lease.frame.sequence == 7
        assert (lease.source.plane(0) == 7).all()
        assert (lease.result.plane(0) == 7).all()
        times = lease.frame.times
        assert 0 < lease.frame.capture.captured_ns <= times.published_ns <= times.picked_ns <= times.done_ns
    assert_slots_back(ring)


@pytest.mark.parametrize("format", [BGR8, NV12, I420])
def test_slots_start_rows_and_planes_on_whole_lines(device: NullDevice, format: object) -> None:
    ring = Ring(device, image(37, 23, format))  # type: ignore[arg-type]
    lease = ring.acquire_write()
    assert lease is not None
    spec = lease.view.spec
    assert all(stride % PLANE_ALIGNMENT == 0 for stride in spec.strides)
    assert all(offset % PLANE_ALIGNMENT == 0 for offset in spec.offsets)
    assert lease.view.buffer.ctypes.data % PLANE_ALIGNMENT == 0
    lease.give_back()
    assert ring.close(1)


def test_a_device_pointer_is_that_of_the_memory(device: NullDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    class Seen:
        """Host memory that a GPU would see elsewhere."""

        def __init__(self, memory: HostMemory, dev_ptr: int) -> None:
            self._memory = memory
            self.dev_ptr = dev_ptr
            self.close = memory.close

        @property
        def array(self) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
            return self._memory.array

        @property
        def nbytes(self) -> int:
            return self._memory.nbytes

    pointers = iter(range(0x1000, 0x100000, 0x1000))
    plain = device.allocate_slot
    monkeypatch.setattr(device, "allocate_slot", lambda nbytes: Seen(plain(nbytes), next(pointers)))
    ring = Ring(device, image(), slots=4)
    publish(ring, 1)
    process(ring)
    with read(ring) as lease:
        assert lease.source.dev_ptr is not None
        assert lease.result.dev_ptr is not None
        assert {lease.source.dev_ptr % 0x1000, lease.result.dev_ptr % 0x1000} == {0}
        assert lease.source.dev_ptr != lease.result.dev_ptr
    assert ring.close(1)


def test_live_the_newest_wins_and_older_ones_are_stale(ring: Ring) -> None:
    for sequence in range(3):
        publish(ring, sequence)
    assert process(ring) == 2
    assert ring.drops == {"stale": 2}
    assert_slots_back(ring)


def test_lossless_the_order_stays_and_the_writer_waits(lossless: Ring) -> None:
    for sequence in range(4):
        publish(lossless, sequence)
    began = time.monotonic()
    assert lossless.acquire_write(0.05) is None
    assert time.monotonic() - began >= 0.05
    assert [process(lossless) for _ in range(4)] == [0, 1, 2, 3]
    assert lossless.drops == {}


def test_lossless_a_waiting_writer_is_woken_by_a_free_slot(lossless: Ring) -> None:
    for sequence in range(4):
        publish(lossless, sequence)
    got: list[bool] = []

    def write() -> None:
        lease = lossless.acquire_write(10)
        got.append(lease is not None)
        if lease is not None:
            lease.give_back()

    writer = threading.Thread(target=write)
    writer.start()
    process(lossless)
    process(lossless)  # the second replaces the first as the newest result, which falls free
    writer.join(10)
    assert got == [True]


def test_a_writer_without_a_free_slot_takes_back_the_oldest_unread(ring: Ring) -> None:
    for sequence in range(6):
        publish(ring, sequence)
    assert ring.drops == {"overrun": 2}
    assert process(ring) == 5


def test_b39_a_slot_in_use_is_never_written(ring: Ring) -> None:
    """All slots held by readers, the producer goes on: new frames are dropped and counted, held pixels stay."""
    leases = []
    for sequence in range(4):
        publish(ring, sequence)
        process(ring)
        leases.append(read(ring))
    copies = [(lease.source.packed(), lease.result.packed()) for lease in leases]
    for _ in range(25):
        assert ring.acquire_write() is None
    assert ring.drops == {"no_slot": 25}
    for lease, (source, result) in zip(leases, copies, strict=True):
        assert np.array_equal(lease.source.packed(), source)
        assert np.array_equal(lease.result.packed(), result)
    for lease in leases:
        lease.release()
    assert_slots_back(ring)
    publish(ring, 4)


def test_b39_what_a_source_and_the_stage_hold_is_never_handed_out_again(ring: Ring) -> None:
    publish(ring, 0)
    processing = ring.acquire_ready(0)
    assert processing is not None
    writing = [ring.acquire_write() for _ in range(3)]
    assert None not in writing
    assert ring.acquire_write() is None
    addresses = {lease.view.buffer.ctypes.data for lease in writing if lease is not None}
    assert len(addresses | {processing.source.buffer.ctypes.data}) == 4
    processing.abandon("test")
    for lease in writing:
        assert lease is not None
        lease.give_back()
    assert_slots_back(ring)


def test_b40_a_leased_frame_never_changes(ring: Ring) -> None:
    """Keep a frame, run a hundred more: it is what it was, and the numbers come in order, each once."""
    publish(ring, 0)
    process(ring)
    kept = read(ring)
    source, result = kept.source.packed(), kept.result.packed()
    seen = [kept.frame.sequence]
    for sequence in range(1, 101):
        publish(ring, sequence)
        process(ring)
        with read(ring) as lease:
            seen.append(lease.frame.sequence)
            assert (lease.result.plane(0) == sequence % 256).all()
    assert seen == list(range(101))
    assert np.array_equal(kept.source.packed(), source)
    assert np.array_equal(kept.result.packed(), result)
    assert kept.frame.sequence == 0
    kept.release()


def test_b40_readers_cannot_write(ring: Ring) -> None:
    publish(ring, 3)
    process(ring)
    with read(ring) as lease:
        for view in (lease.source, lease.result):
            with pytest.raises(ValueError, match="read-only"):
                view.plane(0)[0, 0] = 1


def test_b40_a_lease_of_a_closed_ring_keeps_its_memory_and_its_generation(device: NullDevice) -> None:
    old, new = Ring(device, image(), slots=4), Ring(device, image(), slots=4)
    publish(old, 5)
    process(old)
    lease = read(old)
    writing = old.acquire_write()
    assert writing is not None
    assert not old.close(0)
    assert lease.generation == old.generation != new.generation
    assert (lease.result.plane(0) == 5).all()
    writing.view.plane(0)[...] = 9
    writing.publish(frame(6))  # too late: a counted drop, and nothing that the new ring would ever see
    assert old.drops == {"closed": 1}
    assert new.acquire_ready(0) is None
    before = held(device)
    lease.release()
    assert held(device) < before
    assert old.close(0)
    assert new.statistics().free == 4
    assert new.close(0)


@pytest.mark.parametrize("end", ["publish", "give_back"])
def test_a_write_lease_is_consumed_once(ring: Ring, end: str) -> None:
    lease = ring.acquire_write()
    assert lease is not None
    view = lease.view
    if end == "publish":
        lease.publish(frame(0))
    else:
        lease.give_back()
    for use in (lambda: lease.view, lambda: lease.publish(frame(1)), lambda: lease.give_back()):
        with pytest.raises(LeaseConsumedError, match="write"):
            use()
    assert view is not None
    assert ring.statistics().write_leases == 0


@pytest.mark.parametrize("end", ["finish", "abandon"])
def test_a_process_lease_is_consumed_once(ring: Ring, end: str) -> None:
    publish(ring, 0)
    lease = ring.acquire_ready(0)
    assert lease is not None
    plan = make_plan(Chain(), ring.source)
    lease.result(plan)
    if end == "finish":
        lease.finish(DoneNow())
    else:
        lease.abandon("test")
    for use in (
        lambda: lease.source,
        lambda: lease.frame,
        lambda: lease.result(plan),
        lambda: lease.finish(DoneNow()),
        lambda: lease.abandon("again"),
    ):
        with pytest.raises(LeaseConsumedError, match="process"):
            use()
    assert_slots_back(ring)


def test_a_read_lease_is_consumed_once(ring: Ring) -> None:
    publish(ring, 0)
    process(ring)
    with read(ring) as lease:
        lease.release()
    for use in (lambda: lease.source, lambda: lease.result, lambda: lease.frame, lambda: lease.release()):
        with pytest.raises(LeaseConsumedError, match="read"):
            use()
    assert_slots_back(ring)


def test_two_threads_cannot_consume_one_lease_twice(ring: Ring) -> None:
    for sequence in range(200):
        publish(ring, sequence)
        process(ring)
        lease = read(ring)
        failures: list[str] = []
        gate = threading.Barrier(2)

        def let_go(lease: ReadLease = lease, failures: list[str] = failures, gate: threading.Barrier = gate) -> None:
            gate.wait()
            try:
                lease.release()
            except LeaseConsumedError as error:
                failures.append(error.lease)

        threads = [threading.Thread(target=let_go) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == ["read"]
        assert_slots_back(ring)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("kind", ["write", "process", "read"])
def test_a_forgotten_lease_gives_its_slot_back_and_warns(ring: Ring, kind: str) -> None:
    publish(ring, 0)
    lease: object
    if kind == "write":
        lease = ring.acquire_write()
    elif kind == "process":
        lease = ring.acquire_ready(0)
    else:
        process(ring)
        lease = read(ring)
    assert lease is not None
    with pytest.warns(ResourceWarning, match=f"{kind} lease of ring {ring.generation} was forgotten"):
        del lease
    if kind == "write":
        process(ring)
    assert_slots_back(ring)


def test_b35_a_slot_is_held_until_the_device_is_done_reading_it(ring: Ring) -> None:
    """A reader hands its lease back while its asynchronous copy still runs: nobody writes the slot before it ended."""
    publish(ring, 0)
    process(ring)
    lease = read(ring)
    address = lease.source.buffer.ctypes.data
    copying = SlowCompletion()
    lease.release(as_completion(copying))
    for sequence in range(1, 30):
        writing = ring.acquire_write()
        assert writing is not None
        assert writing.view.buffer.ctypes.data != address
        writing.publish(frame(sequence))
        process(ring)
    assert ring.statistics().pending == 1
    assert copying.asked > 0
    copying.finished.set()
    settled(ring)
    writing_all = [ring.acquire_write() for _ in range(3)]
    assert address in {w.view.buffer.ctypes.data for w in writing_all if w is not None}
    for writing in writing_all:
        assert writing is not None
        writing.give_back()


def test_b36_the_writer_waits_for_what_was_launched(lossless: Ring) -> None:
    """An abandoned frame whose kernel still reads pattern A: pattern B is not written over it."""
    publish(lossless, 0, 0xA)
    lease = lossless.acquire_ready(0)
    assert lease is not None
    source = lease.source.plane(0)
    running = SlowCompletion()
    lease.abandon("device", as_completion(running))
    others = [lossless.acquire_write() for _ in range(3)]
    assert lossless.acquire_write(0.02) is None
    assert (source == 0xA).all()
    threading.Timer(0.05, running.finished.set).start()
    writing = lossless.acquire_write(10)
    assert writing is not None, "the end of the work alone must wake the writer"
    assert running.finished.is_set()
    for lease_ in (*others, writing):
        assert lease_ is not None
        lease_.give_back()
    assert lossless.drops == {"device": 1}


def test_b37_b54_nobody_sees_a_result_before_its_completion(ring: Ring) -> None:
    """Work launched by one thread: readers get the frame once its event is reached, not when it is queued."""
    publish(ring, 0)
    first = SlowCompletion(finished=True)
    process(ring, first)
    publish(ring, 1)
    running = SlowCompletion()
    process(ring, running)
    for _ in range(20):
        with read(ring) as lease:
            assert lease.frame.sequence == 0, "the newest finished one stays visible"
    assert ring.wait_newer(0, 0.02) is None
    assert ring.statistics().finishing == 1
    got: list[int] = []

    def wait() -> None:
        lease = ring.wait_newer(0, 10)
        assert lease is not None
        assert running.finished.is_set()
        got.append(lease.frame.sequence)
        lease.release()

    reader = threading.Thread(target=wait)
    reader.start()
    running.finished.set()
    reader.join(10)
    assert got == [1]
    settled(ring)


def test_a_frame_that_fails_after_it_was_handed_over_is_never_shown(ring: Ring) -> None:
    publish(ring, 0)
    process(ring)
    publish(ring, 1)
    process(ring, SlowCompletion(error=STICKY))
    with read(ring) as lease:
        assert lease.frame.sequence == 0
    assert ring.drops == {"device": 1}
    assert_slots_back(ring)


def test_a_completion_that_raises_nonsense_does_not_lose_its_slot(ring: Ring, caplog: pytest.LogCaptureFixture) -> None:
    publish(ring, 0)
    process(ring, SlowCompletion(error=ZeroDivisionError("what?")))
    assert ring.drops == {"device": 1}
    assert_slots_back(ring)
    assert "ZeroDivisionError" in caplog.text


def test_two_frames_in_flight_that_end_in_reverse_show_the_newer_only(ring: Ring) -> None:
    slow, quick = SlowCompletion(), SlowCompletion()
    publish(ring, 0)
    process(ring, slow)
    publish(ring, 1)
    process(ring, quick)
    quick.finished.set()
    with read(ring) as lease:
        assert lease.frame.sequence == 1
    slow.finished.set()
    with read(ring) as lease:
        assert lease.frame.sequence == 1
    assert_slots_back(ring)


def test_the_newest_result_is_there_for_many_readers_at_once(ring: Ring) -> None:
    publish(ring, 0)
    process(ring)
    leases = [read(ring) for _ in range(10)]
    assert ring.statistics().read_leases == 10
    assert len({lease.result.buffer.ctypes.data for lease in leases}) == 1
    publish(ring, 1)
    process(ring)
    assert {lease.frame.sequence for lease in leases} == {0}
    for lease in leases:
        lease.release()
    assert_slots_back(ring)


def test_on_done_is_called_once_a_result_is_visible(device: NullDevice) -> None:
    seen: list[int] = []

    def look() -> None:
        lease = made.latest()  # not under the ring's lock
        assert lease is not None
        seen.append(lease.frame.sequence)
        lease.release()

    made = Ring(device, image(), slots=4, on_done=look)
    running = SlowCompletion()
    publish(made, 0)
    process(made, running)
    assert seen == []
    running.finished.set()
    publish(made, 1)
    assert seen == [0]
    process(made)
    assert seen == [0, 1]
    assert made.close(1)


def test_a_result_that_fits_is_not_allocated_again(ring: Ring, device: NullDevice) -> None:
    before = held(device)
    for sequence in range(20):
        publish(ring, sequence)
        process(ring)
    assert held(device) == before


def test_a_bigger_result_is_allocated_once_per_slot_and_a_failure_keeps_the_slot(device: NullDevice) -> None:
    small, big = image(8, 8), image(800, 800)
    ring = Ring(device, small, slots=4)
    plan = make_plan(Chain(), big)
    publish(ring, 0)
    lease = ring.acquire_ready(0)
    assert lease is not None
    device.fail_allocation = OutOfMemoryError("pinned host memory", 640000, 0, "use fewer cameras")
    with pytest.raises(OutOfMemoryError):
        lease.result(plan)
    lease.abandon("memory")
    device.fail_allocation = None
    assert_slots_back(ring)
    for sequence in range(1, 9):
        publish(ring, sequence)
        again = ring.acquire_ready(0)
        assert again is not None
        again.result(plan).plane(0)[...] = 1
        first = held(device)
        again.result(plan)
        assert held(device) == first
        again.finish(DoneNow())
    assert ring.close(1)


def test_room_for_a_bigger_result_is_made_ahead_or_refused_as_a_whole(
    device: NullDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    ring = Ring(device, image(8, 8), slots=4)
    before = held(device)
    big, huge = make_plan(Chain(), image(100, 100)), make_plan(Chain(), image(800, 800))
    plain, calls = device.allocate_slot, iter(range(100))

    def allocate(nbytes: int) -> HostMemory:
        if next(calls) == 2:
            raise OutOfMemoryError("pinned host memory", nbytes, 0, "lower the size")
        return plain(nbytes)

    monkeypatch.setattr(device, "allocate_slot", allocate)
    with pytest.raises(OutOfMemoryError):
        ring.reserve(big)
    assert held(device) == before
    ring.reserve(big)
    ring.reserve(big)
    reserved = held(device)
    assert reserved == before + 4 * result_nbytes(big)
    ring.reserve(huge)  # before the other was used
    assert held(device) == before + 4 * result_nbytes(huge)
    monkeypatch.setattr(device, "allocate_slot", lambda nbytes: pytest.fail("allocated on the frame path"))
    small = make_plan(Chain(), image(3, 3))
    for sequence in range(12):
        publish(ring, sequence)
        lease = ring.acquire_ready(0)
        assert lease is not None
        lease.result(small if sequence % 3 == 2 else huge).plane(0)[...] = 1
        lease.finish(DoneNow())
    assert ring.statistics().nbytes == held(device)
    publish(ring, 12)
    ring.retire()
    monkeypatch.setattr(device, "allocate_slot", plain)
    ring.reserve(make_plan(Chain(), image(900, 900)))  # a retired ring gets nothing any more
    assert ring.close(1)


def test_memory_of_a_huge_result_goes_back_when_results_are_small_again(device: NullDevice) -> None:
    ring = Ring(device, image(64, 48), slots=6)
    small, huge = make_plan(Chain(), image(64, 48)), make_plan(Chain(), image(4000, 3000))
    before = held(device)

    def frames(plan: Plan, first: int) -> None:
        for sequence in range(first, first + 12):
            publish(ring, sequence)
            lease = ring.acquire_ready(0)
            assert lease is not None
            lease.result(plan).plane(0)[...] = 1
            lease.finish(DoneNow())

    frames(small, 0)
    ring.reserve(huge)
    frames(huge, 100)
    assert held(device) >= before + 6 * (result_nbytes(huge) - result_nbytes(small))
    ring.reserve(small)
    publish(ring, 200)  # one that is under way still makes the huge result, in the memory it has
    late = ring.acquire_ready(0)
    assert late is not None
    late.result(huge).plane(0)[...] = 1
    late.finish(DoneNow())
    frames(small, 300)
    assert held(device) == before
    assert ring.statistics().nbytes == held(device)
    ring.reserve(huge)
    ring.reserve(small)  # before any frame
    assert held(device) == before
    assert ring.close(1)


def test_b75_room_is_made_while_a_slot_loses_its_result_buffer(
    device: NullDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The processing thread fails to get a huge one while another chain's room is being allocated."""
    ring = Ring(device, image(64, 48), slots=4)
    plan, huge = (make_plan(Chain(), image(*size)) for size in ((90, 90), (4000, 3000)))
    publish(ring, 0)
    lease = ring.acquire_ready(0)
    assert lease is not None
    lease.result(make_plan(Chain(), image(100, 100)))  # room enough: this slot needs none, the others do
    plain = device.allocate_slot
    failed: list[int] = []

    def out_of_memory(nbytes: int) -> HostMemory:
        raise OutOfMemoryError("pinned host memory", nbytes, 0, "lower the ring")

    def allocate(nbytes: int) -> HostMemory:
        if not failed:
            monkeypatch.setattr(device, "allocate_slot", out_of_memory)
            with pytest.raises(OutOfMemoryError):  # as the processing thread would at this moment
                lease.result(huge)
            failed.append(nbytes)
            monkeypatch.setattr(device, "allocate_slot", plain)
        return plain(nbytes)

    monkeypatch.setattr(device, "allocate_slot", allocate)
    ring.reserve(plan)
    assert failed == [result_nbytes(plan)]
    lease.abandon("memory")
    for sequence in range(1, 9):
        publish(ring, sequence)
        again = ring.acquire_ready(0)
        assert again is not None
        again.result(plan).plane(0)[...] = 1
        again.finish(DoneNow())
    assert ring.statistics().nbytes == held(device)
    assert ring.close(1)
    assert held(device) == 0


def test_too_large_memory_stays_where_there_is_none_for_a_smaller_one(
    device: NullDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    huge = make_plan(Chain(), image(4000, 3000))
    ring = Ring(device, image(64, 48), slots=4, plan=huge)
    before = held(device)
    device.fail_allocation = OutOfMemoryError("host memory", 1, 0, "lower the ring")
    ring.reserve(make_plan(Chain(), image(64, 48)))
    assert held(device) == before
    device.fail_allocation = None
    assert ring.close(1)


@pytest.mark.parametrize("fails_at", range(8))
def test_b75_an_allocation_that_fails_leaves_nothing_behind(
    device: NullDevice, monkeypatch: pytest.MonkeyPatch, fails_at: int
) -> None:
    plain, calls = device.allocate_slot, iter(range(100))
    error = OutOfMemoryError("pinned host memory", 1, 0, "lower the ring")

    def allocate(nbytes: int) -> HostMemory:
        if next(calls) == fails_at:
            raise error
        return plain(nbytes)

    monkeypatch.setattr(device, "allocate_slot", allocate)
    with pytest.raises(OutOfMemoryError, match="lower the ring"):
        Ring(device, image(), slots=4)
    assert held(device) == 0


@pytest.mark.parametrize("slots", [-1, 0, 3, 65])
def test_a_ring_of_an_impossible_size_is_refused(device: NullDevice, slots: int) -> None:
    with pytest.raises(InputError, match="4 to 64"):
        Ring(device, image(), slots=slots)


def test_closing_wakes_everyone_who_waits(device: NullDevice) -> None:
    for keep in Keep:
        ring = Ring(device, image(), slots=4, keep=keep)
        writing = [ring.acquire_write() for _ in range(4)]
        waits = [lambda r=ring: r.acquire_ready(30), lambda r=ring: r.wait_newer(-1, 30)]
        if keep is Keep.ALL:
            waits.append(lambda r=ring: r.acquire_write(30))
        ended: list[str] = []
        ready = threading.Barrier(len(waits) + 1)

        def wait(call: object, ended: list[str] = ended, ready: threading.Barrier = ready) -> None:
            ready.wait()
            try:
                call()  # type: ignore[operator]
            except RingClosed:
                ended.append("closed")

        threads = [threading.Thread(target=wait, args=(call,)) for call in waits]
        for thread in threads:
            thread.start()
        ready.wait()
        assert not ring.close(0.05)
        for thread in threads:
            thread.join(10)
        assert ended == ["closed"] * len(waits)
        for lease in writing:
            assert lease is not None
            lease.give_back()
        assert ring.close(0)


def test_close_says_what_it_could_not_free_and_frees_it_when_let_go(device: NullDevice) -> None:
    ring = Ring(device, image(), slots=4)
    publish(ring, 0)
    process(ring)
    lease = read(ring)
    assert not ring.close(0.02)
    assert ring.latest() is None
    with pytest.raises(RingClosed):
        ring.acquire_write()
    with pytest.raises(RingClosed):
        ring.acquire_ready(0)
    now = ring.statistics()
    assert (now.released, now.done) == (3, 1)
    assert held(device) > 0
    lease.release()
    assert held(device) == 0
    assert ring.close(0)


def test_close_waits_for_device_work_with_a_deadline(device: NullDevice) -> None:
    ring = Ring(device, image(), slots=4)
    publish(ring, 0)
    running = SlowCompletion()
    process(ring, running)
    began = time.monotonic()
    assert not ring.close(0.1)
    assert time.monotonic() - began >= 0.1
    assert held(device) > 0, "memory must not go under running work"
    threading.Timer(0.05, running.finished.set).start()
    assert ring.close(10)
    assert held(device) == 0


def test_close_counts_unread_frames_and_is_idempotent(device: NullDevice) -> None:
    ring = Ring(device, image(), slots=4)
    publish(ring, 0)
    publish(ring, 1)
    assert ring.close(1)
    assert ring.close(1)
    assert ring.drops == {"closed": 2}


def test_a_retired_ring_is_processed_to_its_end_and_still_shows_its_last_result(device: NullDevice) -> None:
    ring = Ring(device, image(), slots=4, keep=Keep.ALL)
    for sequence in range(3):
        publish(ring, sequence)
    writing = ring.acquire_write()
    assert writing is not None
    ring.retire()
    with pytest.raises(RingClosed):
        ring.acquire_write()
    writing.give_back()
    assert not ring.drained(0)
    assert [process(ring) for _ in range(3)] == [0, 1, 2]
    assert ring.drained(0)
    with pytest.raises(RingClosed):
        ring.acquire_ready(10)
    with pytest.raises(RingClosed):
        ring.wait_newer(2, 10)
    with read(ring) as lease:
        assert lease.frame.sequence == 2
    assert ring.statistics().released == 3
    assert ring.close(0)
    assert ring.drops == {}


def test_drained_is_woken_by_the_last_result(lossless: Ring) -> None:
    publish(lossless, 0)
    threading.Timer(0.05, lambda: process(lossless)).start()
    assert lossless.drained(10)


def test_b38_readers_that_stall_never_see_a_frame_change() -> None:
    """Uniform frames from a writer that never waits; readers check the first and the last row, with a pause between."""
    device = HostDevice()
    ring = Ring(device, image(64, 64), slots=4)
    stop = threading.Event()
    torn: list[str] = []
    reads: list[int] = []

    def write() -> None:
        sequence = 0
        while not stop.is_set():
            lease = ring.acquire_write()
            if lease is not None:
                half = lease.view.plane(0)
                half[:32] = sequence % 251
                time.sleep(0.0005)
                half[32:] = sequence % 251
                lease.publish(frame(sequence))
                sequence += 1
            else:
                time.sleep(0.001)

    def work() -> None:
        plan = make_plan(Chain(), ring.source)
        while not stop.is_set():
            lease = ring.acquire_ready(0.05)
            if lease is not None:
                np.copyto(lease.result(plan).plane(0), lease.source.plane(0))
                lease.finish(DoneNow())

    def look(pause_s: float) -> None:
        last = -1
        while not stop.is_set():
            lease = ring.wait_newer(last, 0.05)
            if lease is None:
                continue
            with lease:
                last = lease.frame.sequence
                expected = last % 251
                top = lease.result.plane(0)[0].copy(), lease.source.plane(0)[0].copy()
                stop.wait(pause_s)
                rest = lease.result.plane(0).copy(), lease.source.plane(0).copy()
                if any((part != expected).any() for part in (*top, *rest)):
                    torn.append(f"frame {last}")
                reads.append(last)

    threads = [threading.Thread(target=t) for t in (write, work)]
    threads += [threading.Thread(target=look, args=(pause,)) for pause in (0, 0.005, 0.05)]
    for thread in threads:
        thread.start()
    try:
        until(lambda: len(reads) > 300 or bool(torn), "enough reads", 30)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert torn == []
    ring.retire("left")  # the writer may have published after the stage's end
    settled(ring)
    assert ring.close(1)
    assert held(device) == 0


def test_the_checker_of_slots_fails_where_one_is_missing(ring: Ring) -> None:
    assert_slots_back(ring)
    writing = ring.acquire_write()
    with pytest.raises(AssertionError):
        assert_slots_back(ring)
    assert writing is not None
    writing.publish(frame(0))
    with pytest.raises(AssertionError):
        assert_slots_back(ring)
    process(ring)
    lease = read(ring)
    with pytest.raises(AssertionError):
        assert_slots_back(ring)
    assert_slots_back(ring, readers=1)
    running = SlowCompletion()
    lease.release(as_completion(running))
    publish(ring, 1)
    process(ring)
    with pytest.raises(AssertionError):
        assert_slots_back(ring)
    with pytest.raises(AssertionError):
        settled(ring, timeout_s=0.02)
    running.finished.set()
    settled(ring)
