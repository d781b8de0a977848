"""No torn and no mixed frame: every frame has its number at the top and again at the bottom, written at two times.

A ring of 4, a writer at 200 frames a second that pauses between the halves of a picture, a device that does the same,
and readers that stall between reading the top and the bottom. What each of them reads must be one and the same number,
that of the frame. The control shows that the same readers do see torn frames where leases hold nothing.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
import pytest

from kernels.chain import Chain, parse_chain
from kernels.device import Completion, Device, HostDevice, NullDevice
from kernels.formats import GRAY8
from kernels.image import ImageSpec, ImageView, Pixels
from pipeline import core
from pipeline.camera import Camera, CameraState
from pipeline.frame import Capture
from pipeline.lease import ReadLease
from pipeline.ring import Ring
from pipeline.sources._card import Card
from pipeline.sources._pace import Schedule
from pipeline.sources.base import SourceEnded, SourceFormat
from tests.helpers.sequence_code import read_codes
from tests.pipeline.fakes import FakeSource, assert_slots_back, camera_of, settled, until, until_state

CARD = ImageSpec.make(GRAY8, 352, 128)
FPS = 200
TONE = "gain_offset(gain=0.6, offset=30.0)"  # black 30, white 183
PREFIX = 0b10110010

# The middles of the code's squares: 16 px each, from (16, 16) and again from (16, height - 48).
COLUMNS = slice(24, 24 + 20 * 16, 16)
TOP_ROWS, BOTTOM_ROWS = (24, 40), (CARD.height - 40, CARD.height - 24)


def code(picture: Pixels, rows: tuple[int, int]) -> int | None:
    """The number that stands in those rows, quickly; None where there is none."""
    bits = np.concatenate([picture[row, COLUMNS] for row in rows]) > 106
    value = int.from_bytes(np.packbits(bits).tobytes(), "big")
    return value & 0xFFFFFFFF if value >> 32 == PREFIX else None


class CodedSource(FakeSource):
    """Draws cards at ``FPS``; each goes into its slot in two halves, with a pause between them."""

    def __init__(self, count: int) -> None:
        super().__init__((), SourceFormat(CARD, FPS, live=True))
        self._card = Card(CARD)
        self._drawn = ImageView(CARD, np.zeros(CARD.nbytes, np.uint8))
        self._count = count

    def open(self) -> SourceFormat:
        self._schedule = Schedule(Fraction(FPS), time.monotonic_ns())
        return super().open()

    def _next_time(self) -> None:
        due_ns, _ = self._schedule.next(time.monotonic_ns())
        self.wait_until(due_ns)

    def fill(self, view: ImageView) -> Capture:
        if self.given == self._count:
            raise SourceEnded("all frames are written")
        self._next_time()
        captured_ns = time.monotonic_ns()
        self._card.draw(self._drawn, self.given)
        half = CARD.height // 2
        view.plane(0)[:half] = self._drawn.plane(0)[:half]
        time.sleep(0.001)
        view.plane(0)[half:] = self._drawn.plane(0)[half:]
        self.given += 1
        return Capture(captured_ns, time.time_ns())

    def skip(self) -> None:
        self._next_time()


def slow_device() -> NullDevice:
    """Copies source to result, a millisecond after the launch and in two halves."""
    device = NullDevice(0.001)

    def work(source: ImageView, result: ImageView) -> None:
        half = CARD.height // 2
        result.plane(0)[:half] = source.plane(0)[:half]
        time.sleep(0.0005)
        result.plane(0)[half:] = source.plane(0)[half:]

    device.on_done = work
    return device


@dataclass
class Reader:
    """Reads the newest frame again and again: the top, a pause, the bottom."""

    camera: Camera
    pause_s: float
    rest_s: float = 0.0
    reads: int = 0
    wrong: list[str] = field(default_factory=list)

    def run(self, stop: threading.Event) -> None:
        last = -1
        while not stop.is_set():
            lease = self.camera.wait_newer(last, 0.1)
            if lease is None:
                continue
            with lease:
                last = lease.frame.sequence
                result, source = lease.result.plane(0), lease.source.plane(0)
                seen = [code(result, TOP_ROWS), code(source, TOP_ROWS)]
                time.sleep(self.pause_s)
                seen += [code(result, BOTTOM_ROWS), code(source, BOTTOM_ROWS), code(result, TOP_ROWS)]
                self.reads += 1
                if seen != [last] * 5:
                    self.wrong.append(f"frame {last} shows {seen}")
                elif self.reads % 100 == 1 and (full := read_codes(result)) != (last, last):
                    self.wrong.append(f"frame {last} reads {full}")
            stop.wait(self.rest_s)


@contextmanager
def reading(camera: Camera) -> Iterator[list[Reader]]:
    """Three readers: one that reads every frame it can get, two that stall for several frames' time."""
    readers = [Reader(camera, 0.0005), Reader(camera, 0.012, 0.015), Reader(camera, 0.04, 0.06)]
    stop = threading.Event()
    threads = [threading.Thread(target=reader.run, args=(stop,), daemon=True) for reader in readers]
    for thread in threads:
        thread.start()
    try:
        yield readers
    finally:
        stop.set()
        for thread in threads:
            thread.join()


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_b38_ten_thousand_frames_and_none_is_torn() -> None:
    """Two cameras at once: a real chain on the CPU, and a device that is done late and in halves."""
    count = 10_000
    chains: list[tuple[Device, Chain]] = [(HostDevice(), parse_chain(TONE)), (slow_device(), Chain())]
    with (
        camera_of(lambda: CodedSource(count), device=chains[0][0], chain=chains[0][1], slots=4) as real,
        camera_of(lambda: CodedSource(count), device=chains[1][0], chain=chains[1][1], slots=4) as late,
    ):
        with reading(real) as real_readers, reading(late) as late_readers:
            for camera in (real, late):
                until_state(camera, CameraState.ENDED, 170)
        for camera, readers in ((real, real_readers), (late, late_readers)):
            for reader in readers:
                assert reader.wrong == []
            settled(camera._core.work.ring)  # type: ignore[union-attr]
            now = camera.statistics()
            assert_slots_back(now.ring)
            assert now.captured == count
            assert now.processed + now.dropped.get("overrun", 0) + now.dropped.get("stale", 0) == count
            assert readers[0].reads > count / 4, "the quick reader must see most frames"
            assert min(readers[1].reads, readers[2].reads) > 100


class CarelessRing(Ring):
    """A ring whose read leases hold nothing."""

    def _read(self) -> ReadLease | None:
        lease = super()._read()
        if lease is not None:
            self._table.let_go(lease._held())
        return lease

    def release(self, lease: ReadLease, pending: Completion | None) -> None:
        with self._lock:
            self._table.end(lease)


@pytest.mark.parametrize("make", [HostDevice, slow_device])
def test_the_readers_see_torn_frames_where_leases_hold_nothing(make: type, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core, "Ring", CarelessRing)
    with camera_of(lambda: CodedSource(10_000), device=make(), slots=4) as camera, reading(camera) as readers:
        until(lambda: any(reader.wrong for reader in readers), "a torn frame", 30)


def test_the_quick_reader_of_codes_agrees_with_the_tests_own() -> None:
    card, view = Card(CARD), ImageView(CARD, np.zeros(CARD.nbytes, np.uint8))
    for number in (0, 1, 7, 12345, 2**31, 2**32 - 1):
        card.draw(view, number)
        assert (code(view.plane(0), TOP_ROWS), code(view.plane(0), BOTTOM_ROWS)) == (number, number)
        assert read_codes(view.plane(0)) == (number, number)
    view.plane(0)[:64] = 0
    assert code(view.plane(0), TOP_ROWS) is None
