"""A camera's life: what it does with a source that works, breaks, ends, hangs or changes."""

from __future__ import annotations

import gc
import itertools
import logging
import os
import threading
import time

import psutil
import pytest

from kernels.device import HostDevice, NullDevice
from kernels.errors import InputError
from kernels.formats import BGR8, NV12
from pipeline import capture
from pipeline.camera import Camera, CameraConfig, CameraState, StateError
from pipeline.sources.base import FormatChanged, FrameCorrupt, Source, SourceError, SourceFormat
from tests.pipeline.fakes import (
    Block,
    FakeSource,
    Maker,
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

PERIOD_S = 1 / 30


@pytest.fixture
def quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capture, "FIRST_BACKOFF_S", 0.02)
    monkeypatch.setattr(capture, "LAST_BACKOFF_S", 0.1)


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def test_frames_come_out_in_order_with_their_times() -> None:
    with camera_of(endless(), device=HostDevice()) as camera:
        seen = []
        last = -1
        for _ in range(20):
            lease = camera.wait_newer(last, 10)
            assert lease is not None
            with lease:
                last = lease.frame.sequence
                seen.append(last)
                times = lease.frame.times
                stamps = [lease.frame.capture.captured_ns, times.published_ns, times.picked_ns, times.done_ns]
                assert stamps == sorted(stamps)
                assert lease.frame.chain_version == 1
                assert (lease.result.plane(0) == last % 256).all()
        assert seen == sorted(set(seen))
        assert camera.state is CameraState.RUNNING
        assert camera.health().ready


def test_statistics_add_up() -> None:
    script = [Picture(i, 0.001, copied_bytes=7) for i in range(50)]
    with camera_of(lambda: FakeSource(script, source_format(live=False))) as camera:
        until_state(camera, CameraState.ENDED)
        now = camera.statistics()
        assert (now.captured, now.processed, now.dropped) == (50, 50, {})
        assert now.copied_bytes == {"capture": 350}
        assert (now.link_bytes_in, now.link_bytes_out) == (0, 0), "no link without a GPU"
        assert now.sequence == 49
        assert now.latency["capture"].count == now.latency["queue"].count == 50
        assert now.warmup_frames == 1
        assert now.latency["process"].count == now.latency["total"].count == 49
        assert "gpu" not in now.latency
        assert now.source is not None
        assert now.source.image == image()
        assert now.result is not None
        assert now.result.format is image().format
        assert now.fps is not None
        assert now.capture_fps is not None
        assert now.age_ns is not None
        assert now.age_ns > 0
        assert_slots_back(now.ring)


def test_live_each_captured_frame_is_processed_or_counted_as_dropped() -> None:
    device = NullDevice(0.004)
    with camera_of(lambda: FakeSource(pictures(300, 0.0005)), device=device) as camera:
        until_state(camera, CameraState.ENDED)
        now = camera.statistics()
        assert now.captured + now.dropped.get("no_slot", 0) == 300
        assert now.processed + now.dropped.get("overrun", 0) + now.dropped.get("stale", 0) == now.captured
        assert now.dropped.get("stale", 0) > 0, "the test must be one where frames are dropped"


def test_link_bytes_are_counted_by_the_plan_where_there_is_a_link(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(NullDevice, "backend", "cuda")
    script = [Picture(i) for i in range(10)]
    with camera_of(lambda: FakeSource(script, source_format(image(38, 22, NV12), live=False))) as camera:
        until_state(camera, CameraState.ENDED)
        now = camera.statistics()
        assert now.link_bytes_in == 10 * (38 * 22 * 3 // 2)
        assert now.link_bytes_out == 10 * (38 * 22 * 3)


@pytest.mark.parametrize("fifo", [1, 4])
def test_b11_a_driver_queue_never_makes_the_picture_stale(fifo: int) -> None:
    """A source with a queue that fills at 30 fps whether anybody reads or not; processing at 5 fps."""
    queue: list[int] = []
    filled = threading.Condition()
    stop = threading.Event()

    class Queued(FakeSource):
        def fill(self, view):  # type: ignore[no-untyped-def]
            with filled:
                filled.wait_for(lambda: bool(queue) or self._interrupted.is_set())
                if self._interrupted.is_set():
                    raise SourceError("interrupted")
                stamp = queue.pop(0)
            return self.write(view, Picture(0, captured_ns=stamp))

        def interrupt(self) -> None:
            super().interrupt()
            with filled:
                filled.notify_all()

    def fill() -> None:
        while not stop.wait(PERIOD_S):
            with filled:
                queue.append(time.monotonic_ns())
                del queue[:-fifo]
                filled.notify_all()

    driver = threading.Thread(target=fill)
    driver.start()
    try:
        with camera_of(Queued, device=NullDevice(0.2)) as camera:
            ages = []
            last = -1
            for _ in range(8):
                lease = camera.wait_newer(last, 10)
                assert lease is not None
                with lease:
                    last = lease.frame.sequence
                    ages.append((lease.frame.times.picked_ns - lease.frame.capture.captured_ns) / 1e9)
            assert sorted(ages)[len(ages) // 2] < 2 * PERIOD_S, ages
            assert camera.statistics().dropped["stale"] > 10
    finally:
        stop.set()
        driver.join()


def test_b12_latency_does_not_grow_with_a_slow_stage() -> None:
    """25 fps in, 5 fps through: the age stays flat, drops are counted."""
    with camera_of(lambda: FakeSource(pictures(every_s=0.04)), device=NullDevice(0.2)) as camera:
        ages = []
        last = -1
        for _ in range(15):
            lease = camera.wait_newer(last, 10)
            assert lease is not None
            with lease:
                last = lease.frame.sequence
                ages.append((lease.frame.times.done_ns - lease.frame.capture.captured_ns) / 1e9)
        first, second = sorted(ages[1:8]), sorted(ages[8:])
        assert second[len(second) // 2] < first[len(first) // 2] + 0.05, ages
        assert max(second) < 0.2 + 4 * 0.04, ages
        dropped = camera.statistics().dropped
        assert dropped.get("stale", 0) + dropped.get("overrun", 0) > 30


@pytest.mark.usefixtures("quick_retries")
@pytest.mark.parametrize("error", [SourceError("the stream ended"), OSError(19, "No such device")])
def test_b16_only_a_fresh_source_works_again(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "pinhole")
    maker = Maker(
        lambda: FakeSource(then(pictures(20, 0.001), itertools.repeat(error, 1000))),
        lambda: FakeSource(pictures(every_s=0.002, first=100)),
    )
    device = NullDevice()
    camera = Camera(CameraConfig("door", "fake://"), device, maker)
    states = []
    camera.subscribe(lambda: states.append(camera.state))
    camera.start()
    try:
        until_processed(camera, 60)
        now = camera.statistics()
        assert (now.state, now.cause, now.reconnects) == (CameraState.RUNNING, None, 1)
        assert len(maker.made) == 2
        assert CameraState.RECONNECTING in states
        lease = camera.latest()
        assert lease is not None
        with lease:
            assert lease.frame.sequence >= 40, "the sequence never resets"
            assert (lease.source.plane(0) >= 80).all()
    finally:
        assert camera.stop(5)
    assert maker.breaches() == []
    assert held(device) == 0
    assert sum("reconnecting" in line for line in lines(caplog)) == 1
    assert str(error.args[-1]) in caplog.text


@pytest.mark.usefixtures("quick_retries")
def test_a_reader_keeps_its_frame_over_a_reconnect_and_the_last_picture_stays() -> None:
    away = threading.Event()

    class Flaky(FakeSource):
        def open(self) -> SourceFormat:
            if away.is_set():
                raise SourceError("unplugged")
            return super().open()

    with camera_of(lambda: Flaky([*pictures(10, 0.001), SourceError("unplugged")])) as camera:
        until(lambda: camera.statistics().captured >= 10)
        away.set()
        until_state(camera, CameraState.RECONNECTING)
        until_processed(camera, 1)
        settled(ring_of(camera))
        assert camera.cause == "unplugged"
        health = camera.health()
        assert not health.ready
        assert "unplugged" in health.reasons[0]
        lease = camera.latest()
        assert lease is not None
        sequence, pixels = lease.frame.sequence, lease.result.packed()
        away.clear()
        until(lambda: camera.statistics().reconnects == 1, "the reconnect")
        until_processed(camera, 8)
        assert (lease.result.packed() == pixels).all()
        assert lease.frame.sequence == sequence
        lease.release()


@pytest.mark.usefixtures("quick_retries")
def test_a_camera_that_is_absent_at_start_is_waited_for() -> None:
    there = threading.Event()

    class Later(FakeSource):
        def open(self) -> SourceFormat:
            if not there.is_set():
                raise SourceError("no such device")
            return super().open()

    with camera_of(lambda: Later(pictures())) as camera:
        until_state(camera, CameraState.RECONNECTING)
        assert camera.cause == "no such device"
        assert camera.latest() is None
        assert camera.wait_newer(-1, 0.01) is None
        there.set()
        until_processed(camera, 3)
        assert camera.state is CameraState.RUNNING


class Exclusive(FakeSource):
    """Opening it while it is open elsewhere fails, as a CSI camera does."""

    users = 0

    def open(self) -> SourceFormat:
        if Exclusive.users:
            raise SourceError("busy: it was not torn down")
        Exclusive.users += 1
        self._mine = True
        return super().open()

    def close(self) -> None:
        if getattr(self, "_mine", False):
            Exclusive.users -= 1
            self._mine = False
        super().close()


@pytest.mark.parametrize("ending", ["stop", "error", "nonsense"])
def test_b19_an_exclusive_source_is_released_on_every_way_out(ending: str) -> None:
    errors: dict[str, list[Exception]] = {"stop": [], "error": [SourceError("gone")], "nonsense": [KeyError("what?")]}

    def make() -> Source:
        return Exclusive(then(pictures(3, 0.0005), errors[ending], pictures()))

    device = NullDevice()
    maker = Maker(make)
    camera = Camera(CameraConfig("csi", "fake://"), device, maker)
    for _ in range(20):
        camera.start()
        until(lambda: camera.statistics().captured > 0 and camera.state is not CameraState.STARTING)
        if ending == "nonsense":
            until_state(camera, CameraState.FAILED)
        assert camera.stop(5)
        assert Exclusive.users == 0
        assert held(device) == 0
    assert not any("busy" in (camera.cause or "") for _ in range(1))
    assert maker.breaches() == []


SIZES = [(640, 480), (1280, 720), (320, 240), (37, 23)]


@pytest.mark.parametrize("live", [True, False])
def test_b20_a_change_of_size_rebuilds_the_ring_at_a_frame_boundary(live: bool) -> None:
    formats = [SourceFormat(image(w, h, format), None, live) for w, h in SIZES for format in (BGR8, NV12)]

    def script() -> list[object]:
        steps: list[object] = []
        for index, format in enumerate(formats):
            if index:
                steps.append(FormatChanged(format))
            steps += [Picture(index + 1, 0.003) for _ in range(10)]
        return steps

    seen: dict[tuple[int, int], int] = {}
    leases = []
    with camera_of(lambda: FakeSource(script(), formats[0]), device=HostDevice()) as camera:  # type: ignore[arg-type]
        last = -1
        while camera.state is not CameraState.ENDED:
            lease = camera.wait_newer(last, 0.05)
            if lease is None:
                continue
            assert lease.frame.sequence > last, "the sequence goes on over the change"
            last = lease.frame.sequence
            spec = lease.source.spec
            size = (spec.width, spec.height)
            number = int(lease.source.plane(0)[0, 0].flat[0])
            expected = formats[number - 1].image
            assert (size, spec.format) == ((expected.width, expected.height), expected.format)
            assert all((plane == number).all() for plane in lease.source.planes), "an old edge is left"
            assert (lease.result.spec.width, lease.result.spec.height) == size
            if size not in seen:
                leases.append((lease, lease.source.packed(), lease.result.packed()))
            else:
                lease.release()
            seen[size] = last
        for lease, source, result in leases:
            assert (lease.source.packed() == source).all(), "an old lease stays valid"
            assert (lease.result.packed() == result).all()
            lease.release()
        assert list(seen) == [size for size in SIZES if size in seen]
        assert SIZES[-1] in seen
        now = camera.statistics()
        assert now.captured == 10 * len(formats)
        assert now.processed + sum(now.dropped.values()) == now.captured
        if not live:
            assert now.processed == now.captured, "a file loses no frame over the change"
            assert list(seen) == SIZES


def test_b20_the_last_picture_stays_until_the_new_size_has_one() -> None:
    block = Block()
    small, bigger = source_format(live=False), source_format(image(80, 60), live=False)
    script = then(pictures(5, 0.002), FormatChanged(bigger), block, pictures())
    with camera_of(lambda: FakeSource(script, small)) as camera:
        assert block.entered.wait(10)
        lease = camera.latest()
        assert lease is not None
        assert lease.source.spec.width == image().width
        lease.release()
        sequence = camera.statistics().sequence
        assert sequence is not None
        block.release.set()
        newer = camera.wait_newer(sequence, 10)
        assert newer is not None
        assert newer.source.spec.width == 80
        newer.release()
        until(lambda: camera._core.previous is None, "the old ring to go")


def test_b20_the_last_picture_stays_over_sizes_that_bring_no_frame() -> None:
    block = Block()
    sizes = [source_format(image(10 + i, 10), live=False) for i in range(4)]
    script = then(pictures(5, 0.002), [FormatChanged(size) for size in sizes], block, pictures())
    with camera_of(lambda: FakeSource(script, source_format(live=False))) as camera:
        assert block.entered.wait(10)
        lease = camera.latest()
        assert lease is not None
        with lease:
            assert (lease.frame.sequence, lease.source.spec.width) == (4, image().width)
        block.release.set()
        newer = camera.wait_newer(4, 10)
        assert newer is not None
        with newer:
            assert newer.source.spec.width == 13


def test_b20_a_format_that_only_ever_changes_is_given_up() -> None:
    def flapping() -> list[FormatChanged]:
        return [FormatChanged(source_format(image(10 + i % 2, 10))) for i in range(1000)]

    with camera_of(lambda: FakeSource(flapping())) as camera:
        until_state(camera, CameraState.RECONNECTING)
        assert "format changes" in (camera.cause or "")


def test_a_format_that_comes_back_is_not_told_again(caplog: pytest.LogCaptureFixture) -> None:
    """A folder of pictures of two sizes, played for ever, is two lines."""
    caplog.set_level(logging.INFO, "pinhole")
    sizes = [source_format(image(20 + i % 2, 10), live=False) for i in range(12)]
    script = list(itertools.chain.from_iterable(then(FormatChanged(size), pictures(1)) for size in sizes))
    with camera_of(lambda: FakeSource(script, source_format(live=False))) as camera:
        until_state(camera, CameraState.ENDED)
        assert camera.statistics().processed == 12
    assert len([r for r in caplog.records if "the source is now" in r.getMessage()]) == 2


def test_a_mere_change_of_rate_keeps_the_ring() -> None:
    same = SourceFormat(image(), 12.5, True)
    with camera_of(lambda: FakeSource(then(pictures(5), FormatChanged(same), pictures()))) as camera:
        until_processed(camera, 2)
        generation = ring_of(camera).generation
        until(lambda: (source := camera.statistics().source) is not None and source.fps == 12.5)
        assert ring_of(camera).generation == generation


def test_b21_the_end_of_a_file_is_an_end_and_not_a_loss() -> None:
    maker = Maker(lambda: FakeSource(pictures(10, 0.001), source_format(live=False)))
    device = NullDevice(0.005)
    camera = Camera(CameraConfig("clip", "fake://"), device, maker)
    camera.start()
    until_state(camera, CameraState.ENDED)
    now = camera.statistics()
    assert (now.captured, now.processed, now.reconnects, now.dropped) == (10, 10, 0, {})
    assert camera.health().ready, "an ended file is not expected to show fresh frames"
    lease = camera.latest()
    assert lease is not None
    with lease:
        assert lease.frame.sequence == 9, "the last picture stays"
    assert not any(thread.name == "cap-clip" for thread in threading.enumerate())
    assert len(maker.made) == 1, "no reconnect storm"
    assert camera.wait_newer(9, 0.02) is None
    assert camera.stop(5)
    camera.start()  # again from its beginning, as asked
    until_state(camera, CameraState.ENDED)
    assert camera.statistics().captured == 20
    assert camera.stop(5)
    assert held(device) == 0


def test_b21_an_empty_file_ends_too() -> None:
    with camera_of(lambda: FakeSource([], source_format(live=False))) as camera:
        until_state(camera, CameraState.ENDED)
        assert camera.latest() is None


@pytest.mark.parametrize("where", ["open", "first frame", "later"])
def test_b22_b33_a_source_that_fails_at_once_costs_no_cpu_and_few_lines(
    where: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "pinhole")
    error = SourceError("the same error again")

    def make() -> Source:
        source = FakeSource(then(pictures(3 if where == "later" else 0, 0), itertools.repeat(error, 1000)))
        if where == "open":
            source.open_error = error
        return source

    process = psutil.Process()
    with camera_of(make) as camera:
        until_state(camera, CameraState.RECONNECTING)
        before = process.cpu_times()
        time.sleep(1.5)
        after = process.cpu_times()
        assert (after.user + after.system) - (before.user + before.system) < 0.15, "10 % of the time at most"
        assert camera.state in (CameraState.RECONNECTING, CameraState.RUNNING)
    changes = sum("→" in record.getMessage() for record in caplog.records)
    assert len(caplog.records) <= changes + 4
    assert changes <= 12


@pytest.mark.usefixtures("quick_retries")
def test_b33_an_outage_ends_with_a_count_of_attempts(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO, "pinhole")
    monkeypatch.setattr(capture, "SUMMARY_S", 0.2)
    tries = itertools.count()

    def make() -> Source:
        source = FakeSource(pictures())
        if next(tries) < 8:
            source.open_error = SourceError("absent")
        return source

    with camera_of(make) as camera:
        until_processed(camera, 1)
    text = [record.getMessage() for record in caplog.records]
    assert sum("→ reconnecting" in line for line in text) == 1
    assert 1 <= sum("still away after" in line for line in text) <= 5
    assert sum("back after 8 attempts" in line for line in text) == 1


def test_backoff_grows_from_half_a_second_to_five(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []

    def pause(self: capture.CaptureLoop, seconds: float) -> bool:
        waits.append(seconds)
        return self._halted.wait(0.001) or self.over()

    monkeypatch.setattr(capture.CaptureLoop, "_pause", pause)

    def make() -> Source:
        source = FakeSource()
        source.open_error = SourceError("absent")
        return source

    with camera_of(make):
        until(lambda: len(waits) >= 8)
    assert waits[:8] == [0.5, 1, 2, 4, 5, 5, 5, 5]


def test_backoff_starts_again_after_a_source_that_was_steady(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capture, "STEADY_S", 0.02)
    waits: list[float] = []

    def pause(self: capture.CaptureLoop, seconds: float) -> bool:
        if seconds >= 0.5:
            waits.append(seconds)
        return self._halted.wait(0.001) or self.over()

    monkeypatch.setattr(capture.CaptureLoop, "_pause", pause)
    broken = SourceError("gone")
    fails: list[object] = [[broken], [broken], [*pictures(20, 0.003), broken], [broken]]
    with camera_of(*[lambda steps=steps: FakeSource(steps) for steps in fails]):
        until(lambda: len(waits) >= 4)
    assert waits[:4] == [0.5, 1, 0.5, 1]


@pytest.mark.usefixtures("quick_retries")
@pytest.mark.parametrize("forever", [True, False])
def test_b25_corrupt_frames_are_counted_drops_and_never_a_busy_loop(
    forever: bool, caplog: pytest.LogCaptureFixture
) -> None:
    bad = FrameCorrupt("empty", "0x0 pixels where 37x23 were expected")
    if forever:
        process = psutil.Process()
        with camera_of(lambda: FakeSource(itertools.repeat(bad)), stale_after_s=0.5) as camera:
            until_state(camera, CameraState.RECONNECTING)
            assert "no usable frame" in (camera.cause or "")
            before = process.cpu_times()
            time.sleep(1)
            after = process.cpu_times()
            assert (after.user + after.system) - (before.user + before.system) < 0.2
            assert camera.latest() is None
            assert not camera.health().ready
            now = camera.statistics()
            assert now.dropped["empty"] < 200
            assert (now.captured, now.processed) == (0, 0)
        assert len(lines(caplog)) <= 6
        return
    steps = [step for i in range(30) for step in (Picture(i, 0.001), bad)]
    with camera_of(lambda: FakeSource(steps, source_format(live=False))) as camera:
        until_state(camera, CameraState.ENDED)
        now = camera.statistics()
        assert (now.processed, now.dropped, now.reconnects) == (30, {"empty": 30}, 0)
        assert_slots_back(now.ring)
    assert sum("corrupt frame" in line for line in lines(caplog)) == 1, "one line for the cause, not one for each frame"


def test_b25_a_corrupt_frame_is_counted_once_however_the_source_reports_it() -> None:
    class Own(FakeSource):
        """Moves its frames itself, as sources do whose driver writes the slots."""

        count = 0

        def read(self, slots):  # type: ignore[no-untyped-def]
            self.count += 1
            self.wait_until(time.monotonic_ns() + 1_000_000)
            if self.count == 1:
                raise FrameCorrupt("short", "without a slot")
            slot = slots.acquire()
            if self.count == 2:
                slots.give_back(slot, "short")
                raise FrameCorrupt("short", "with a slot")
            slots.publish(slot, self.write(slot.view, Picture()))

    with camera_of(Own) as camera:
        until_processed(camera, 1)
        assert camera.statistics().dropped.get("short") == 2


def test_a_source_that_returns_with_nothing_is_not_asked_in_a_busy_loop() -> None:
    class Idle(FakeSource):
        calls = 0

        def read(self, slots):  # type: ignore[no-untyped-def]
            Idle.calls += 1

    with camera_of(Idle):
        until(lambda: Idle.calls > 3)
        before = Idle.calls
        time.sleep(0.5)
        assert Idle.calls - before <= 110


def test_readers_that_hold_every_slot_cost_counted_drops_only() -> None:
    with camera_of(endless(0.001), slots=4) as camera:
        leases = []
        last = -1
        for _ in range(3):
            lease = camera.wait_newer(last, 10)
            assert lease is not None
            last = lease.frame.sequence
            leases.append(lease)
        until(lambda: camera.statistics().dropped.get("no_slot", 0) > 5, "drops")
        for lease in leases:
            lease.release()
        done = camera.statistics().processed
        until_processed(camera, done + 5)


def test_one_slot_left_by_the_readers_still_carries_frames() -> None:
    """The writer must not take the only unread frame away from a stage that waits for it, again and again."""
    with camera_of(endless(0.001), slots=4) as camera:
        first = camera.wait_newer(-1, 10)
        assert first is not None
        second = camera.wait_newer(first.frame.sequence, 10)
        assert second is not None
        until_processed(camera, camera.statistics().processed + 50)
        first.release()
        second.release()


def test_a_source_that_keeps_slots_gets_them_taken_back(caplog: pytest.LogCaptureFixture) -> None:
    class Hoarder(FakeSource):
        def read(self, slots):  # type: ignore[no-untyped-def]
            for _ in range(3):
                assert slots.acquire() is not None
            raise SourceError("the driver lost its queue")

    with camera_of(Hoarder) as camera:
        until_state(camera, CameraState.RECONNECTING)
        settled(ring_of(camera))
    assert "kept 3 slots" in caplog.text


def test_a_driver_queue_may_hold_several_slots_at_once() -> None:
    class Queue(FakeSource):
        """Takes slots ahead and fills them in order, like V4L2 with user pointers."""

        def __init__(self) -> None:
            super().__init__()
            self.queued: list[object] = []
            self.number = 0

        def read(self, slots):  # type: ignore[no-untyped-def]
            while len(self.queued) < 2 and (slot := slots.acquire()) is not None:
                self.queued.append(slot)
            self.wait_until(time.monotonic_ns() + 2_000_000)
            slot = self.queued.pop(0)
            slots.publish(slot, self.write(slot.view, Picture(self.number)))  # type: ignore[attr-defined]
            self.number += 1

    with camera_of(Queue, device=HostDevice()) as camera:
        last = -1
        for _ in range(30):
            lease = camera.wait_newer(last, 10)
            assert lease is not None
            with lease:
                last = lease.frame.sequence
                assert (lease.source.plane(0) == last % 256).all()


def test_a_slot_that_is_not_the_sources_is_refused() -> None:
    class Confused(FakeSource):
        def read(self, slots):  # type: ignore[no-untyped-def]
            slot = slots.acquire()
            slots.give_back(slot)
            slots.give_back(slot)

    with camera_of(Confused) as camera:
        until_state(camera, CameraState.FAILED)
        assert "does not have" in (camera.cause or "")
        assert_slots_back(camera.statistics().ring)


@pytest.mark.parametrize("where", ["open", "fill", "format", "factory"])
def test_an_unexpected_error_is_a_failure_with_cause_and_traceback(
    where: str, caplog: pytest.LogCaptureFixture
) -> None:
    class Odd(FakeSource):
        def open(self) -> SourceFormat:
            if where == "open":
                raise ZeroDivisionError("in open")
            if where == "format":
                return None  # type: ignore[return-value]
            return super().open()

    def make() -> Source:
        if where == "factory" and made:
            raise ZeroDivisionError("in the factory")
        made.append(1)
        return Odd([SourceError("x") if where == "factory" else ZeroDivisionError("in fill")])

    made: list[int] = []
    with camera_of(make) as camera:
        until_state(camera, CameraState.FAILED)
        assert "unexpected" in (camera.cause or "")
        until(lambda: not any(t.name.endswith("-cam") for t in threading.enumerate()), "both threads to end")
        assert not camera.health().ready
        with pytest.raises(StateError, match=r"failed.*starting"):
            camera.start()
    assert "Traceback" in caplog.text


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt])
def test_a_thread_never_dies_silently(kind: type[BaseException]) -> None:
    class Exits(FakeSource):
        def fill(self, view):  # type: ignore[no-untyped-def]
            raise kind

    with camera_of(Exits) as camera:
        until_state(camera, CameraState.FAILED)
        assert kind.__name__ in (camera.cause or "")


def test_a_source_that_cannot_be_closed_well_is_let_go(caplog: pytest.LogCaptureFixture) -> None:
    class Sticky(FakeSource):
        def close(self) -> None:
            super().close()
            raise OSError(5, "Input/output error")

        def interrupt(self) -> None:
            super().interrupt()
            raise RuntimeError("not now")

    with camera_of(lambda: Sticky(pictures())) as camera:
        until_processed(camera, 1)
    assert "did not close" in caplog.text
    assert "was not interrupted" in caplog.text


def test_b48_only_the_capture_thread_closes_and_never_during_a_read() -> None:
    for _ in range(5):
        block = Block()
        with camera_of(lambda block=block: FakeSource(then(pictures(2), block))) as camera:  # type: ignore[misc]
            assert block.entered.wait(10)
            threading.Timer(0.05, block.release.set).start()
            began = time.monotonic()
            assert camera.stop(5)
            assert time.monotonic() - began < 2
        # camera_of checks that no call overlapped another, and that each came from the capture thread


def test_b15_a_read_that_hangs_is_interrupted_and_a_fresh_source_opened(caplog: pytest.LogCaptureFixture) -> None:
    block = Block()
    with camera_of(
        lambda: FakeSource(then(pictures(5), block)), lambda: FakeSource(pictures(first=50)), stale_after_s=0.3
    ) as camera:
        assert block.entered.wait(10)
        until_state(camera, CameraState.RECONNECTING)
        assert "did not return" in (camera.cause or "")
        assert not camera.health().ready
        until(lambda: camera.statistics().reconnects == 1)
        until(lambda: camera.health().ready)
    assert "reading the source did not return within" in caplog.text


@pytest.mark.usefixtures("quick_retries")
def test_b15_a_read_that_cannot_be_interrupted_costs_its_thread_not_the_camera(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(capture, "STUCK_GRACE_S", 0.1)
    block = Block(deaf=True)
    fakes = [FakeSource(then(pictures(5), block)), FakeSource(pictures(first=50))]
    with camera_of(*[lambda fake=fake: fake for fake in fakes], stale_after_s=0.2) as camera:
        assert block.entered.wait(10)
        until(lambda: camera.statistics().reconnects == 1, "a fresh source")
        ring = ring_of(camera)
        assert ring.statistics().write_leases in (1, 2), "the stuck thread's slot is written by nobody else"
        last = camera.statistics().sequence
        block.release.set()
        until(lambda: fakes[0].closed == 1, "the stuck thread to close its own source")
        until(lambda: (camera.statistics().sequence or 0) > (last or 0) + 5)
        assert camera.statistics().dropped.get("lost") is None
        assert camera.state is CameraState.RUNNING, "the late thread changes nothing"
    assert "trying with a fresh source" in caplog.text


@pytest.mark.usefixtures("quick_retries")
def test_b15_stuck_threads_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capture, "STUCK_GRACE_S", 0.05)
    monkeypatch.setattr(capture, "OPEN_LIMIT_S", 0.05)
    block = Block(deaf=True)

    def make() -> Source:
        source = FakeSource(pictures())
        source.open_error = block
        return source

    with camera_of(make) as camera:
        until_state(camera, CameraState.FAILED)
        assert "opening the source did not return" in (camera.cause or "")
        stuck = [t for t in threading.enumerate() if t.name == "cap-cam"]
        assert len(stuck) <= 3
        began = time.monotonic()
        assert not camera.stop(0.2)
        assert time.monotonic() - began < 2
        block.release.set()


def test_stop_does_not_wait_for_a_stuck_read_and_frees_nothing_under_it(caplog: pytest.LogCaptureFixture) -> None:
    block = Block(deaf=True)
    device = NullDevice()
    with camera_of(lambda: FakeSource(then(pictures(3), block)), device=device) as camera:
        assert block.entered.wait(10)
        began = time.monotonic()
        assert not camera.stop(0.2)
        assert time.monotonic() - began < 1.5
        assert camera.state is CameraState.STOPPING
        assert "cap-cam did not end in time" in caplog.text
        assert held(device) > 0, "the slot it may still write"
        thread = next(t for t in threading.enumerate() if t.name == "cap-cam")
        assert thread.daemon, "it must not keep the process from ending"
        assert camera.latest() is None
        assert camera.wait_newer(-1, 5) is None
        block.release.set()
        until(lambda: held(device) == 0, "the ring to close itself when the thread lets go")


def test_a_reader_that_holds_on_over_the_stop_keeps_its_frame() -> None:
    device = NullDevice()
    with camera_of(endless(), device=device) as camera:
        lease = camera.wait_newer(-1, 10)
        assert lease is not None
        pixels = lease.source.packed()
        assert not camera.stop(0.3)
        assert camera.state is CameraState.STOPPED
        assert (lease.source.packed() == pixels).all()
        camera.start()  # a held old frame does not prevent a new life
        until_processed(camera, camera.statistics().processed + 2)
        assert (lease.source.packed() == pixels).all()
        lease.release()


def test_stopping_wakes_those_who_wait() -> None:
    with camera_of(lambda: FakeSource([Picture(), Block()])) as camera:
        until_processed(camera, 1)
        ended = threading.Event()

        def wait() -> None:
            assert camera.wait_newer(0, 30) is None
            ended.set()

        waiter = threading.Thread(target=wait)
        waiter.start()
        assert camera.stop(5)
        assert ended.wait(5)
        waiter.join()


def test_stop_interrupts_a_back_off() -> None:
    def make() -> Source:
        source = FakeSource()
        source.open_error = SourceError("absent")
        return source

    with camera_of(make) as camera:
        until_state(camera, CameraState.RECONNECTING)
        began = time.monotonic()
        assert camera.stop(5)
        assert time.monotonic() - began < 0.4


def test_stop_and_start_may_be_called_in_any_order() -> None:
    with camera_of(endless(), start=False) as camera:
        assert camera.stop(1)
        assert camera.health().ready
        camera.start()
        with pytest.raises(StateError, match="starting"):
            camera.start()
        until_processed(camera, 1)
        assert camera.stop(5)
        assert camera.stop(5)
        camera.start()
        assert camera.stop(5)


def test_b42_b19_fifty_starts_and_stops_leave_nothing() -> None:
    big = source_format(image(640, 480, BGR8))
    process = psutil.Process()

    def cycle(times: int) -> None:
        for _ in range(times):
            camera.start()
            until(lambda: camera.latest_sequence() > seen[0])  # type: ignore[attr-defined]
            seen[0] = camera.statistics().sequence or 0
            assert camera.stop(10)
            assert held(device) == 0

    device = HostDevice()
    with camera_of(endless(0.0005, big), device=device, start=False) as camera:
        camera.latest_sequence = lambda: camera.statistics().sequence or 0  # type: ignore[attr-defined]
        seen = [-1]
        cycle(10)
        gc.collect()
        rss, threads, descriptors = (
            process.memory_info().rss,
            threading.active_count(),
            len(os.listdir("/proc/self/fd")),
        )
        cycle(50)
        gc.collect()
        grown = process.memory_info().rss - rss
        assert grown < 6 * 2 * 640 * 480 * 3, f"{grown} bytes more than one ring"
        assert threading.active_count() == threads
        assert len(os.listdir("/proc/self/fd")) == descriptors


def test_b42_fifty_changes_of_resolution_leave_nothing() -> None:
    process = psutil.Process()
    sizes = [image(640, 480, BGR8), image(800, 600, BGR8)]
    resident: list[int] = []

    def script() -> object:
        for i in range(60):
            yield from pictures(3, 0.001)
            resident.append(process.memory_info().rss)
            yield FormatChanged(source_format(sizes[i % 2], live=False))
        yield from pictures(3, 0.001)

    device = HostDevice()
    make = lambda: FakeSource(script(), source_format(sizes[1], live=False))  # type: ignore[arg-type]  # noqa: E731
    with camera_of(make, device=device) as camera:
        until_state(camera, CameraState.ENDED, 30)
        assert camera.statistics().processed == 61 * 3
        one_ring = 6 * 2 * 800 * 600 * 3
        # How much of a ring is touched when it is looked at depends on the threads' timing: compare typical moments.
        assert sorted(resident[40:])[10] - sorted(resident[10:30])[10] < one_ring / 2
        assert held(device) < 2 * one_ring


def test_b104_a_source_that_stalls_turns_unready_and_a_static_scene_does_not() -> None:
    block = Block()
    with camera_of(
        lambda: FakeSource(then([Picture(7, 0.005) for _ in range(20)], block)),
        lambda: FakeSource([block]),
        stale_after_s=0.4,
    ) as camera:
        until_processed(camera, 10)
        assert camera.health().ready, "the same picture with a new number is healthy"
        assert block.entered.wait(10)
        until(lambda: not camera.health().ready, "unready")
        age_ns = camera.statistics().age_ns
        assert age_ns is not None
        assert age_ns > 0.3e9
        reasons = camera.health().reasons
        assert reasons
        assert all(reasons)


def test_b104_a_source_that_repeats_the_same_frame_turns_unready() -> None:
    """New numbers, but always the capture of the same instant: the age shows it."""
    stamp = time.monotonic_ns()
    with camera_of(
        lambda: FakeSource(itertools.repeat(Picture(1, 0.005, captured_ns=stamp))), stale_after_s=0.3
    ) as cam:
        until_processed(cam, 3)
        until(lambda: not cam.health().ready, "unready")
        assert cam.state is CameraState.RUNNING
        assert "old" in cam.health().reasons[0]


def test_b104_a_live_file_like_source_that_pauses_comes_back_by_itself() -> None:
    with camera_of(
        lambda: FakeSource(then(pictures(5), Picture(9, 0.8), pictures()), source_format(live=False)), stale_after_s=0.3
    ) as camera:
        until(lambda: camera.statistics().processed == 5)
        until(lambda: not camera.health().ready, "unready in the pause")
        until(lambda: camera.health().ready, "ready again")
        assert camera.statistics().reconnects == 0, "a file's pause is not a loss"


def test_b104_a_source_that_is_meant_to_be_slow_has_its_time() -> None:
    with camera_of(
        lambda: FakeSource(then(pictures(2), Block()), source_format(live=False, fps=2.0)), stale_after_s=0.2
    ) as camera:
        until_processed(camera, 2)
        time.sleep(0.5)
        assert camera.health().ready, "two frames a second, and the newest is half a second old"
        until(lambda: not camera.health().ready, "unready after three periods")
        assert "more than 1.5 s" in camera.health().reasons[0]


def test_b106_counters_tell_a_pause_and_only_grow() -> None:
    with camera_of(lambda: FakeSource(then(pictures(50, 0.002), Picture(0, 0.6), pictures(50, 0.002)))) as camera:
        until(lambda: camera.statistics().captured >= 50)
        ages, processed, captured = [], [], []
        while camera.state is not CameraState.ENDED:
            now = camera.statistics()
            ages.append(now.age_ns or 0)
            processed.append(now.processed)
            captured.append(now.captured)
            time.sleep(0.01)
        assert max(ages) > 0.4e9, "the dip shows in the age"
        assert processed == sorted(processed)
        assert captured == sorted(captured)
        now = camera.statistics()
        assert now.captured == 101
        assert now.processed + sum(now.dropped.values()) == now.captured, "the drop count is exact"


@pytest.mark.parametrize("jump_s", [-10.0, 3600.0])
def test_b109_a_wall_clock_that_jumps_moves_labels_only(monkeypatch: pytest.MonkeyPatch, jump_s: float) -> None:
    real, real_ns, shift = time.time, time.time_ns, [0.0]
    monkeypatch.setattr(time, "time", lambda: real() + shift[0])
    monkeypatch.setattr(time, "time_ns", lambda: real_ns() + int(shift[0] * 1e9))
    with camera_of(endless(0.002)) as camera:
        until_processed(camera, 20)
        before = camera.statistics()
        shift[0] = jump_s
        until_processed(camera, before.processed + 40)
        after = camera.statistics()
        for stage, snapshot in after.latency.items():
            added = snapshot.since(before.latency[stage])
            assert added.count > 0
            assert added.min_ns is not None
            assert added.min_ns >= 0
            assert added.quantile(0.9) is not None
            assert (added.quantile(0.9) or 0) < 1e9
        assert after.age_ns is not None
        assert 0 <= after.age_ns < 2e9
        assert camera.health().ready
        assert after.fps is not None
        assert 1 < after.fps < 2000


def test_spin_and_block_deliver_the_same() -> None:
    for wait in ("auto", "block", "spin"):
        with camera_of(endless(0.002), wait=wait, device=HostDevice()) as camera:
            until_processed(camera, 50)
            assert camera.statistics().latency["queue"].count >= 50


def test_b22_spinning_ends_when_no_frame_comes() -> None:
    process = psutil.Process()
    with camera_of(lambda: FakeSource(then(pictures(10), Block())), wait="spin", stale_after_s=60) as camera:
        until_processed(camera, 5)
        time.sleep(0.4)
        before = process.cpu_times()
        time.sleep(1)
        after = process.cpu_times()
        assert (after.user + after.system) - (before.user + before.system) < 0.2


def test_a_subscriber_hears_of_frames_and_states_until_it_is_let_go() -> None:
    heard: list[CameraState] = []
    with camera_of(endless(), start=False) as camera:
        stop = camera.subscribe(lambda: heard.append(camera.state))
        camera.start()
        until(lambda: heard.count(CameraState.RUNNING) > 5)
        stop()
        stop()
        time.sleep(0.05)
        count = len(heard)
        until_processed(camera, camera.statistics().processed + 5)
        assert len(heard) == count
    assert CameraState.STARTING in heard


def test_a_subscriber_that_raises_is_let_go_and_the_camera_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    calls = []

    def broken() -> None:
        calls.append(1)
        raise RuntimeError("the loop is closed")

    with camera_of(endless(), start=False) as camera:
        camera.subscribe(broken)
        camera.start()
        until_processed(camera, 5)
    assert len(calls) == 1
    assert "the loop is closed" in caplog.text


def test_b77_credentials_appear_neither_in_cause_nor_in_logs(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    uri = "fake://admin:p%40ss%21word@127.0.0.1:1/x"

    class Leaky(FakeSource):
        def fill(self, view):  # type: ignore[no-untyped-def]
            raise errors.pop(0)

    errors: list[Exception] = [
        SourceError(f"cannot open {uri}"),
        OSError(5, "login as admin with p@ss!word refused"),
        ValueError(f"invalid data from {uri}"),
    ]
    camera = Camera(CameraConfig("cam", uri), NullDevice(), lambda _: Leaky())
    said: list[str] = []
    camera.subscribe(lambda: said.append(f"{camera.cause} {camera.statistics()} {camera.health()}"))
    camera.start()
    until_state(camera, CameraState.FAILED)
    assert camera.stop(5)
    text = caplog.text + "".join(said) + "".join(str(r.__dict__) for r in caplog.records)
    for secret in ("p@ss", "p%40ss", "ss!word", "%21word"):
        assert secret not in text
    assert "127.0.0.1" in text


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("name", {"name": ""}),
        ("name", {"name": "a b"}),
        ("name", {"name": "x" * 65}),
        ("name", {"name": "../etc"}),
        ("name", {"name": "café"}),
        ("name", {"name": "a\n"}),
        ("uri", {"uri": ""}),
        ("slots", {"slots": 3}),
        ("slots", {"slots": 65}),
        ("slots", {"slots": True}),
        ("wait", {"wait": "sometimes"}),
        ("stale_after_s", {"stale_after_s": float("nan")}),
        ("stale_after_s", {"stale_after_s": 0}),
        ("stale_after_s", {"stale_after_s": float("inf")}),
    ],
)
def test_a_wrong_configuration_is_refused_by_field(field: str, values: dict[str, object]) -> None:
    with pytest.raises(InputError) as caught:
        CameraConfig(**{"name": "cam", "uri": "fake://", **values})  # type: ignore[arg-type]
    assert caught.value.field == field
    assert caught.value.allowed


def test_a_wrong_uri_is_refused_before_anything_starts() -> None:
    with pytest.raises(InputError) as caught:
        Camera(CameraConfig("cam", "testcart://"), NullDevice())
    assert caught.value.field.startswith("uri")
    assert "testcard" in str(caught.value)
