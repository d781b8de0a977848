"""A camera on a device that is slow, fails, or has no memory: slots come back, readers see whole frames."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import threading
import time
from collections.abc import Callable

import pytest

from kernels.chain import Chain, make_chain
from kernels.device import CudaDevice, Device, Executor, HostDevice, NullDevice, WaitMode
from kernels.errors import (
    CompileError,
    DeviceFailedError,
    DeviceUnavailableError,
    InputError,
    OutOfMemoryError,
    PinholeError,
)
from kernels.image import ImageView
from kernels.plan import Plan
from pipeline import stage
from pipeline.camera import CameraState
from pipeline.ring import Ring
from pipeline.sources.base import FormatChanged, SourceFormat
from tests.pipeline.fakes import (
    Block,
    FakeSource,
    Picture,
    assert_slots_back,
    camera_of,
    endless,
    held,
    image,
    pictures,
    ring_of,
    settled,
    source_format,
    then,
    until,
    until_processed,
    until_state,
)

LAUNCH = DeviceFailedError("cuLaunchKernel", 1, "cudaErrorInvalidValue", False, "see the documentation")
STICKY = DeviceFailedError("cudaEventSynchronize", 700, "cudaErrorIllegalAddress", True, "restart the process")
FULL = OutOfMemoryError("pinned host memory", 6_220_800, 1_000_000, "lower the picture size or the ring")


def threads_of(name: str = "cam") -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.endswith(f"-{name}")]


@pytest.mark.parametrize("where", ["fail_submit", "fail_wait"])
def test_one_frame_that_fails_is_dropped_and_the_camera_goes_on(where: str, caplog: pytest.LogCaptureFixture) -> None:
    device = NullDevice()
    with camera_of(endless(0.002), device=device) as camera:
        for round_ in range(1, 4):
            until_processed(camera, camera.statistics().processed + 3)
            setattr(device, where, LAUNCH)
            until(lambda round_=round_: camera.statistics().dropped.get("device") == round_, "the drop")  # type: ignore[misc]
            until_processed(camera, camera.statistics().processed + 1)
            assert camera.state is CameraState.RUNNING
        until(lambda: ring_of(camera).statistics().process_leases == 0)
    assert caplog.text.count("a frame failed") == 1, "logged once for one cause"


def test_slots_are_back_after_each_fault() -> None:
    """A script with every fault between pauses: after each the ring holds what it held before."""
    device = NullDevice(0.001)
    format = source_format(live=False)
    blocks = [Block() for _ in range(4)]
    faults: list[tuple[str, Exception]] = [
        ("fail_submit", LAUNCH),
        ("fail_wait", LAUNCH),
        ("fail_submit", DeviceFailedError("cuLaunchKernel", 2, "cudaErrorMemoryAllocation", False, "free memory")),
    ]
    steps = then(*[part for block in blocks for part in (pictures(5, 0.001), block)])
    with camera_of(lambda: FakeSource(steps, format), device=device) as camera:
        for index, block in enumerate(blocks):
            assert block.entered.wait(10)
            settled(ring_of(camera), writers=1)  # the blocked read has one
            now = ring_of(camera).statistics()
            assert (now.free, now.done) == (now.slots - 2, 1), now
            if index < len(faults):
                setattr(device, *faults[index])
            block.release.set()
        until_state(camera, CameraState.ENDED)
        assert camera.statistics().dropped == {"device": 3}
        assert_slots_back(ring_of(camera))


def test_frames_that_fail_one_after_the_other_end_the_camera() -> None:
    device = NullDevice()

    def fail_again(source: ImageView, result: ImageView) -> None:
        device.fail_wait = LAUNCH

    device.on_done = fail_again
    device.fail_wait = LAUNCH
    with camera_of(endless(0.001), device=device) as camera:
        until_state(camera, CameraState.FAILED)
        assert camera.cause is not None
        assert f"{stage.MAX_FAILURES} frames in a row" in camera.cause
        assert "cudaErrorInvalidValue" in camera.cause
        assert camera.statistics().dropped["device"] == stage.MAX_FAILURES
        until(lambda: threads_of() == [])
        ring_of(camera).drained(0)
        assert camera.statistics().processed == 0


@pytest.mark.parametrize("where", ["fail_submit", "fail_wait"])
def test_a_sticky_error_fails_the_camera_at_once_and_keeps_the_last_picture(where: str) -> None:
    device = NullDevice()
    with camera_of(endless(0.002), device=device) as camera:
        until_processed(camera, 5)
        setattr(device, where, STICKY)
        until_state(camera, CameraState.FAILED)
        assert "restart the process" in (camera.cause or "")
        until(lambda: threads_of() == [], "both threads to end")
        health = camera.health()
        assert not health.ready
        assert "illegal" in health.reasons[0].lower()
        lease = camera.latest()
        assert lease is not None
        lease.release()
        assert camera.wait_newer(lease_sequence(camera), 0.05) is None


def lease_sequence(camera: object) -> int:
    sequence = camera.statistics().sequence  # type: ignore[attr-defined]
    assert isinstance(sequence, int)
    return sequence


@pytest.mark.parametrize("where", ["fail_submit", "fail_wait"])
def test_an_unexpected_error_of_the_stage_ends_both_threads(where: str, caplog: pytest.LogCaptureFixture) -> None:
    device = NullDevice()
    with camera_of(endless(0.002), device=device) as camera:
        until_processed(camera, 1)
        setattr(device, where, ZeroDivisionError("in the executor"))
        until_state(camera, CameraState.FAILED)
        assert "ZeroDivisionError" in (camera.cause or "")
        until(lambda: threads_of() == [])
        now = ring_of(camera).statistics()
        assert now.process_leases == now.write_leases == 0
    assert "Traceback" in caplog.text


def test_b35_b36_a_frame_whose_work_still_runs_after_its_failure_is_not_overwritten() -> None:
    """The wait fails while the device still reads: the slot stays away from the writer until the work is over."""
    device = NullDevice(0.3)
    seen: list[tuple[int, int]] = []

    def look(source: ImageView, result: ImageView) -> None:
        seen.append((int(source.plane(0).min()), int(source.plane(0).max())))

    class FailingWait(NullDevice):
        """Every wait fails at once, without waiting."""

        def make_executor(self, plan: Plan, wait: WaitMode = "block") -> Executor:
            executor = super().make_executor(plan, wait)
            submit = executor.submit

            def submit_and_fail(*args: object) -> object:
                completion = submit(*args)  # type: ignore[arg-type]
                monkey(completion)
                return completion

            executor.submit = submit_and_fail  # type: ignore[method-assign, assignment]
            return executor

    def monkey(completion: object) -> None:
        def wait() -> None:
            raise LAUNCH

        completion.wait = wait  # type: ignore[attr-defined]

    device = FailingWait(0.2)
    device.on_done = look
    block = Block()
    with camera_of(lambda: FakeSource(then(pictures(40, 0.005, first=1), block)), device=device) as camera:
        until_state(camera, CameraState.FAILED)  # after MAX_FAILURES of these
        ring = ring_of(camera)
        assert ring.statistics().pending > 0
        until(lambda: ring.drained(0) and ring.statistics().pending == 0)
    assert len(seen) == stage.MAX_FAILURES
    assert all(low == high > 0 for low, high in seen), "a pattern changed under the device"


def test_b37_no_reader_sees_a_half_processed_frame() -> None:
    """A device that writes the result in two halves, 20 ms after the launch: readers see neither half early."""
    device = NullDevice(0.02)

    def work(source: ImageView, result: ImageView) -> None:
        value = int(source.plane(0)[0, 0])
        half = result.spec.height // 2
        result.plane(0)[:half] = value
        time.sleep(0.005)
        result.plane(0)[half:] = value

    device.on_done = work
    with camera_of(endless(0.004), device=device) as camera:
        bad: list[int] = []
        stop = threading.Event()

        def look() -> None:
            last = -1
            while not stop.is_set():
                lease = camera.latest() if last % 2 else camera.wait_newer(last, 0.1)
                if lease is None:
                    continue
                with lease:
                    last = lease.frame.sequence
                    result = lease.result.plane(0)
                    if (result != last % 256).any() or lease.frame.times.done_ns == 0:
                        bad.append(last)
                    time.sleep(0.001)
                    if (result != last % 256).any():
                        bad.append(last)

        readers = [threading.Thread(target=look) for _ in range(3)]
        for reader in readers:
            reader.start()
        try:
            until_processed(camera, 60)
        finally:
            stop.set()
            for reader in readers:
                reader.join()
        assert bad == []


def test_b54_a_consumer_on_another_thread_waits_for_the_recorded_end() -> None:
    """Submit returns at once; whoever waits for the frame gets it after the device is done, never before."""
    device = NullDevice(0.05)
    done_ns: list[int] = []
    device.on_done = lambda source, result: done_ns.append(time.monotonic_ns())
    with camera_of(lambda: FakeSource([Picture(3), Block()]), device=device) as camera:
        lease = camera.wait_newer(-1, 10)
        assert lease is not None
        with lease:
            assert len(done_ns) == 1
            assert lease.frame.times.done_ns >= done_ns[0]
            assert time.monotonic_ns() - lease.frame.times.picked_ns >= 0.05e9


def test_b45_hand_overs_between_threads_carry_whole_frames() -> None:
    """Capture, stage and reader threads hand one slot on: 2,000 frames, a checksum of each."""
    device = HostDevice()
    spec = image(128, 96)
    steps = [Picture(i * 7, 0.0) for i in range(2000)]
    with camera_of(lambda: FakeSource(steps, SourceFormat(spec, None, False)), device=device) as camera:
        last, checked = -1, 0
        while last < 1999:
            lease = camera.wait_newer(last, 10)
            assert lease is not None
            with lease:
                last = lease.frame.sequence
                assert int(lease.result.plane(0).sum()) == (last * 7 % 256) * 128 * 96
                checked += 1
        assert checked > 50


@pytest.mark.parametrize("error", [FULL, OutOfMemoryError("device memory", 1, 0, "use fewer cameras")])
def test_b75_no_memory_at_start_is_a_failure_with_advice_and_nothing_half_started(error: PinholeError) -> None:
    device = NullDevice()
    device.fail_allocation = error
    sources = [FakeSource(pictures()), FakeSource(pictures())]
    made = iter(sources)
    with camera_of(lambda: next(made), device=device) as camera:
        until_state(camera, CameraState.FAILED)
        assert camera.cause == str(error), "the numbers and what to lower"
        until(lambda: threads_of() == [])
        assert held(device) == 0
        assert sources[0].closed == 1
        assert camera.latest() is None
        assert camera.statistics().ring is None
        health = camera.health()
        assert not health.ready
        assert str(error) in health.reasons[0]
        assert camera.stop(5)
        device.fail_allocation = None
        camera.start()
        until_processed(camera, 2)


@pytest.mark.parametrize("after", range(1, 12, 3))
def test_b75_memory_that_ends_halfway_through_the_ring(after: int, monkeypatch: pytest.MonkeyPatch) -> None:
    device = NullDevice()
    plain, calls = device.allocate_slot, itertools.count()

    def allocate(nbytes: int) -> object:
        if next(calls) == after:
            raise FULL
        return plain(nbytes)

    monkeypatch.setattr(device, "allocate_slot", allocate)
    with camera_of(endless(), device=device) as camera:
        until_state(camera, CameraState.FAILED)
        assert held(device) == 0


def test_b75_no_memory_for_a_bigger_picture_fails_that_camera_and_keeps_its_last_one() -> None:
    device = NullDevice()
    block = Block()
    bigger = FormatChanged(source_format(image(640, 480)))
    with camera_of(lambda: FakeSource(then(pictures(3), block, bigger)), device=device) as camera:
        assert block.entered.wait(10)
        until_processed(camera, 1)
        device.fail_allocation = FULL
        block.release.set()
        until_state(camera, CameraState.FAILED)
        assert camera.cause == str(FULL)
        lease = camera.latest()
        assert lease is not None
        lease.release()


class Compiling(NullDevice):
    """Counts executors that are open; compiles as slowly, and as badly, as it is told."""

    def __init__(self, delay_s: float = 0.0) -> None:
        super().__init__(delay_s)
        self.compile_s = 0.0
        self.first_submit_s = 0.0
        self.error: PinholeError | None = None
        self.made: list[tuple[str, ...]] = []
        self.open = 0
        self.closers: set[str] = set()
        self.compilers: set[str] = set()

    def make_executor(self, plan: Plan, wait: WaitMode = "block") -> Executor:
        self.compilers.add(threading.current_thread().name)
        time.sleep(self.compile_s)
        if self.error is not None:
            raise self.error
        executor = super().make_executor(plan, wait)
        self.made.append(tuple(op.name for op in plan.ops))
        self.open += 1
        plain, first = executor.submit, [True]

        def submit(*args: object) -> object:
            if first and first.pop():
                time.sleep(self.first_submit_s)
            return plain(*args)  # type: ignore[arg-type]

        def close() -> None:
            self.open -= 1
            self.closers.add(threading.current_thread().name)

        executor.submit = submit  # type: ignore[method-assign, assignment]
        executor.close = close  # type: ignore[method-assign]
        return executor


def test_b76_the_chain_is_compiled_before_the_first_frame_is_taken() -> None:
    device = Compiling()
    device.compile_s = 0.4
    source = FakeSource(pictures(every_s=0.005), source_format(live=False))
    with camera_of(lambda: source, device=device) as camera:
        time.sleep(0.1)
        assert source.given == 0
        assert camera.state is CameraState.STARTING
        assert not camera.health().ready
        until_processed(camera, 20)
        total = camera.statistics().latency["total"]
        assert total.max_ns is not None
        assert total.max_ns < 0.4e9, "the compilation is not in any frame's latency"


def test_b76_the_first_frame_of_each_compiled_chain_is_left_out_of_the_latency() -> None:
    device = Compiling()
    device.first_submit_s = 0.5
    with camera_of(endless(0.005), device=device) as camera:
        until_processed(camera, 10)
        camera.set_chain([{"op": "gamma", "params": {}}])
        until(lambda: camera.statistics().warmup_frames == 2, "the second warm-up")
        until_processed(camera, camera.statistics().processed + 10)
        now = camera.statistics()
        for name in ("process", "total"):
            assert now.latency[name].count == now.processed - 2
            assert (now.latency[name].max_ns or 0) < 0.4e9


def test_a_chain_that_does_not_compile_at_start_fails_the_camera() -> None:
    device = Compiling()
    device.error = CompileError("sobel", "line 3: no")
    with camera_of(endless(), device=device) as camera:
        until_state(camera, CameraState.FAILED)
        assert "sobel" in (camera.cause or "")
        assert held(device) == 0
    assert device.open == 0


def test_a_format_that_the_chain_cannot_take_is_tried_again_and_the_old_one_still_works() -> None:
    """The ring of the old format was given up for the new one: it must not be written when the old format returns."""
    device = Compiling()
    block = Block()
    bigger = FormatChanged(source_format(image(64, 48)))
    sources = iter([FakeSource(then(pictures(5, 0.002), block, bigger)), FakeSource(pictures())])
    with camera_of(lambda: next(sources), device=device) as camera:
        assert block.entered.wait(10)
        until_processed(camera, 1)
        device.error = InputError("size", "is too small for this chain")
        block.release.set()
        until_state(camera, CameraState.RECONNECTING)
        assert "too small" in (camera.cause or "")
        device.error = None
        until_processed(camera, camera.statistics().processed + 5)
        assert camera.state is CameraState.RUNNING
    assert device.open == 0


def test_a_chain_that_cannot_be_made_is_refused_and_the_old_one_goes_on() -> None:
    device = Compiling()
    with camera_of(endless(0.002), device=device, chain=make_chain([{"op": "gamma"}])) as camera:
        until_processed(camera, 2)
        for error in (CompileError("sobel", "no"), FULL, LAUNCH):
            device.error = error
            with pytest.raises(type(error)):
                camera.set_chain([{"op": "sobel"}])
            assert str(camera.chain) == "gamma(gamma=1.0)"
            assert camera.chain.version == 1
        device.error = None
        until_processed(camera, camera.statistics().processed + 5)
        assert camera.state is CameraState.RUNNING
    assert device.open == 0


def test_a_bigger_result_that_finds_no_memory_is_refused_and_what_runs_goes_on() -> None:
    device = Compiling()
    with camera_of(endless(0.002), device=device) as camera:
        until_processed(camera, 2)
        device.fail_allocation = FULL
        with pytest.raises(OutOfMemoryError):
            camera.set_chain([{"op": "resize", "params": {"width": 4000, "height": 3000}}])
        assert camera.chain.version == 1
        until_processed(camera, camera.statistics().processed + 20)
        assert camera.state is CameraState.RUNNING
        device.fail_allocation = None
        camera.set_chain([{"op": "resize", "params": {"width": 400, "height": 300}}])
        device.fail_allocation = FULL  # nothing more is needed: every slot has room already
        until_processed(camera, camera.statistics().processed + 20)
        lease = camera.latest()
        assert lease is not None
        with lease:
            assert (lease.result.spec.width, lease.result.spec.height) == (400, 300)
    assert device.open == 0


def test_the_new_chain_is_compiled_by_the_caller_while_the_old_one_runs_and_closed_by_the_stage() -> None:
    device = Compiling()
    with camera_of(endless(0.005), device=device) as camera:
        until_processed(camera, 2)
        device.compile_s = 0.5
        before = camera.statistics().processed
        chain = camera.set_chain([{"op": "sobel"}])
        assert camera.statistics().processed > before + 10, "frames went on meanwhile"
        lease = camera.wait_newer(lease_sequence(camera) + 1, 10)
        assert lease is not None
        with lease:
            assert lease.frame.chain_version == chain.version == 2
        until(lambda: device.open == 1, "the old executor to be closed")
    assert device.open == 0
    assert device.compilers == {"cap-cam", threading.current_thread().name}
    assert device.closers == {"stage-cam"}


def test_parameters_alone_compile_nothing() -> None:
    device = Compiling()
    with camera_of(endless(0.002), device=device, chain=make_chain([{"op": "gamma"}])) as camera:
        until_processed(camera, 1)
        for i in range(10):
            camera.set_params(0, {"gamma": 1 + i / 10})
        camera.set_chain([{"op": "gamma", "params": {"gamma": 3.0}}])
        until_processed(camera, camera.statistics().processed + 2)
        assert device.made == [("gamma",)]
        assert camera.chain.version == 12


def test_a_chain_can_be_changed_before_the_start_and_after_the_end() -> None:
    device = Compiling()
    with camera_of(lambda: FakeSource(pictures(5)), device=device, start=False) as camera:
        camera.set_chain([{"op": "gamma"}])
        assert device.made == []
        camera.start()
        until_state(camera, CameraState.ENDED)
        assert device.made == [("gamma",)]
        camera.set_chain([{"op": "sobel"}])
        until(lambda: device.open == 1, "the old executor to go although no frame comes")
        assert camera.stop(5)
        assert device.open == 0
        camera.set_chain([])
        assert device.open == 0
        assert camera.chain.version == 4


def test_a_chain_change_after_a_failure_starts_nothing() -> None:
    device = Compiling()
    with camera_of(endless(0.002), device=device) as camera:
        until_processed(camera, 1)
        device.fail_wait = STICKY
        until_state(camera, CameraState.FAILED)
        until(lambda: threads_of() == [])
        camera.set_chain([{"op": "sobel"}])
        assert device.open == 0
        assert threads_of() == []


class Unusable(NullDevice):
    def activate(self) -> None:
        raise DeviceUnavailableError("CUDA was initialised in another process and this one was forked from it")


def test_b51_a_device_that_cannot_be_used_here_fails_the_camera_with_the_reason() -> None:
    with camera_of(endless(), device=Unusable()) as camera:
        until_state(camera, CameraState.FAILED)
        assert "forked" in (camera.cause or "")


def test_b51_cuda_says_so_in_a_forked_process() -> None:
    device = object.__new__(CudaDevice)
    Device.__init__(device)
    device.index = 0
    device._pid = os.getpid() + 1  # as if this process were the child
    for use in (device.activate, lambda: device.allocate_slot(1)):
        with pytest.raises(DeviceUnavailableError, match="spawn"):
            use()


def _child(send: Callable[[object], None]) -> None:
    with camera_of(endless(), device=FORKED) as camera:
        until_processed(camera, 3)
        send(camera.state.value)


FORKED = HostDevice()


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_b51_the_host_device_works_in_a_forked_process() -> None:
    ring = Ring(FORKED, image(), slots=4)  # the device is in use when the fork happens
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=_child, args=(sender.send,))
    child.start()
    sender.close()
    try:
        assert receiver.poll(30)
        assert receiver.recv() == "running"
    finally:
        child.join(30)
        code = child.exitcode
        child.close()
        receiver.close()
        assert ring.close(1)
    assert code == 0


def test_the_empty_chain_passes_pixels_through_on_the_host() -> None:
    with camera_of(endless(), device=HostDevice(), chain=Chain()) as camera:
        lease = camera.wait_newer(3, 10)
        assert lease is not None
        with lease:
            assert (lease.result.plane(0) == lease.source.plane(0)).all()
