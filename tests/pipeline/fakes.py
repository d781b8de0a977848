"""Scripted sources and small helpers for tests of the frame path."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import ClassVar

from kernels.chain import Chain
from kernels.device import Completion, Device, NullDevice
from kernels.formats import GRAY8, PixelFormat
from kernels.image import ImageSpec, ImageView
from pipeline.camera import Camera, CameraConfig, CameraState
from pipeline.frame import Capture, Frame, FrameTimes
from pipeline.ring import Ring
from pipeline.sources.base import Source, SourceConfig, SourceEnded, SourceError, SourceFormat
from pipeline.stats import RingStatistics


def image(width: int = 37, height: int = 23, format: PixelFormat = GRAY8) -> ImageSpec:
    """A small picture of odd size."""
    return ImageSpec.make(format, width, height)


def source_format(spec: ImageSpec | None = None, *, live: bool = True, fps: float | None = None) -> SourceFormat:
    return SourceFormat(spec if spec is not None else image(), fps, live)


def capture(captured_ns: int | None = None) -> Capture:
    return Capture(time.monotonic_ns() if captured_ns is None else captured_ns, time.time_ns())


def frame(sequence: int, captured_ns: int | None = None) -> Frame:
    return Frame(sequence, capture(captured_ns), FrameTimes())


def until(condition: Callable[[], bool], what: str = "the condition", timeout_s: float = 10.0) -> None:
    """Wait until it holds; fails after ``timeout_s``, which is generous as the machine may be busy."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"waited {timeout_s} s in vain for {what}"
        time.sleep(0.002)


def until_state(camera: Camera, state: CameraState, timeout_s: float = 10.0) -> None:
    until(lambda: camera.state is state, f"{state}, in {camera.state} for {camera.cause}", timeout_s)


def until_processed(camera: Camera, count: int, timeout_s: float = 10.0) -> None:
    until(lambda: camera.statistics().processed >= count, f"{count} processed frames", timeout_s)


def assert_slots_back(ring: Ring | RingStatistics | None, *, readers: int = 0, writers: int = 0) -> None:
    """Every slot is free or shows the newest result, but for those of ``readers`` and ``writers`` who hold one."""
    assert ring is not None
    now = ring.statistics() if isinstance(ring, Ring) else ring
    assert (now.read_leases, now.write_leases, now.process_leases) == (readers, writers, 0), now
    assert (now.ready, now.processing, now.finishing, now.pending, now.writing) == (0, 0, 0, 0, writers), now
    assert now.free + now.done + now.writing + now.released == now.slots, now
    assert now.done <= 1 + readers, now


def settled(ring: Ring, *, readers: int = 0, writers: int = 0, timeout_s: float = 10.0) -> None:
    """Wait until :func:`assert_slots_back` holds."""
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            ring.drained(0)  # asks the device, as anybody who wants a slot does
            assert_slots_back(ring, readers=readers, writers=writers)
            return
        except AssertionError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.002)


class SlowCompletion:
    """Done when the test says so; a script of a device."""

    def __init__(self, *, finished: bool = False, error: Exception | None = None) -> None:
        self.finished = threading.Event()
        self.error = error
        self.asked = 0
        if finished:
            self.finished.set()

    def done(self) -> bool:
        self.asked += 1
        if self.error is not None:
            raise self.error
        return self.finished.is_set()

    def wait(self) -> None:
        assert self.finished.wait(10)
        self.done()

    def gpu_ns(self) -> int | None:
        return None


def as_completion(completion: SlowCompletion) -> Completion:
    return completion


@dataclass
class Picture:
    """A frame whose every byte is ``value``; arrives ``after_s`` after it was asked for."""

    value: int = 0
    after_s: float = 0.0
    captured_ns: int | None = None
    copied_bytes: int = 0


@dataclass
class Block:
    """A read that hangs. ``deaf``: even to ``interrupt``, until ``release`` is set."""

    deaf: bool = False
    entered: threading.Event = field(default_factory=threading.Event)
    release: threading.Event = field(default_factory=threading.Event)


Step = Picture | Block | Exception
Script = Iterable[Step]


class FakeConfig(SourceConfig):
    pass


class FakeSource(Source):
    """Plays a script; ends when it is over. Notes every breach of the rule whose thread may call what."""

    scheme: ClassVar[str] = "fake"
    Config = FakeConfig
    example: ClassVar[str] = "fake://"

    def __init__(self, script: Script = (), format: SourceFormat | None = None) -> None:
        super().__init__("fake://", FakeConfig())
        self.format = format if format is not None else source_format()
        self.open_error: Exception | Block | None = None
        self.breaches: list[str] = []
        self.opened = self.closed = 0
        self.given = 0
        self._steps: Iterator[Step] = iter(script)
        self._owner: threading.Thread | None = None
        self._inside = False

    @contextmanager
    def _calling(self, what: str) -> Iterator[None]:
        me = threading.current_thread()
        if self._inside:
            self.breaches.append(f"{what} while another call was active")
        if self._owner not in (None, me):
            self.breaches.append(f"{what} by {me.name}, not by {self._owner.name if self._owner else None}")
        if not me.name.startswith("cap-"):
            self.breaches.append(f"{what} by {me.name}")
        self._owner, self._inside = me, True
        try:
            yield
        finally:
            self._inside = False

    def open(self) -> SourceFormat:
        with self._calling("open"):
            self._interrupted.clear()
            if isinstance(self.open_error, Block):
                self._block(self.open_error)
            elif self.open_error is not None:
                raise self.open_error
            self.opened += 1
            return self.format

    def fill(self, view: ImageView) -> Capture:
        with self._calling("fill"):
            step = next(self._steps, None)
            if step is None:
                raise SourceEnded("the script is over")
            if isinstance(step, Exception):
                raise step
            if isinstance(step, Block):
                self._block(step)
                step = Picture()
            self.wait_until(time.monotonic_ns() + int(step.after_s * 1e9))
            return self.write(view, step)

    def write(self, view: ImageView, step: Picture) -> Capture:
        for plane in view.planes:
            plane[...] = step.value % 256
        self.given += 1
        now = time.monotonic_ns() if step.captured_ns is None else step.captured_ns
        return Capture(now, time.time_ns(), copied_bytes=step.copied_bytes)

    def skip(self) -> None:
        self.wait_until(time.monotonic_ns() + 1_000_000)

    def _block(self, block: Block) -> None:
        block.entered.set()
        while not block.release.wait(0.005):
            if self._interrupted.is_set() and not block.deaf:
                raise SourceError("interrupted")

    def close(self) -> None:
        with self._calling("close"):
            self.closed += 1


class Maker:
    """A source factory: the next source of a list each time, the last one's script again when the list is over."""

    def __init__(self, *make: Callable[[], Source]) -> None:
        self._make = list(make)
        self.made: list[Source] = []

    def __call__(self, uri: str) -> Source:
        make = self._make[min(len(self.made), len(self._make) - 1)]
        source = make()
        self.made.append(source)
        return source

    def breaches(self) -> list[str]:
        return [breach for source in self.made if isinstance(source, FakeSource) for breach in source.breaches]


def pictures(count: int | None = None, every_s: float = 0.005, first: int = 0) -> Iterator[Picture]:
    """That many pictures (or for ever), numbered in their pixels, at a steady pace."""
    number = first
    while count is None or number < first + count:
        yield Picture(number, every_s)
        number += 1


def then(*parts: Step | Script) -> Iterator[Step]:
    """One script after the other, also endless ones."""
    for part in parts:
        if isinstance(part, Picture | Block | Exception):
            yield part
        else:
            yield from part


def endless(every_s: float = 0.005, format: SourceFormat | None = None) -> Callable[[], FakeSource]:
    return lambda: FakeSource(pictures(every_s=every_s), format)


@contextmanager
def camera_of(
    *make: Callable[[], Source],
    device: Device | None = None,
    chain: Chain | None = None,
    slots: int = 6,
    wait: str = "block",
    stale_after_s: float = 3.0,
    start: bool = True,
    stops: bool = True,
) -> Iterator[Camera]:
    """A camera on fake sources; at the end it must stop, give every byte back, and have kept the threads' rules."""
    device = device if device is not None else NullDevice()
    maker = Maker(*make)
    before = held(device)
    config = CameraConfig(
        "cam", "fake://", chain if chain is not None else Chain(), slots, wait, stale_after_s  # type: ignore[arg-type]
    )  # fmt: skip
    camera = Camera(config, device, maker)
    try:
        if start:
            camera.start()
        yield camera
    finally:
        ended = camera.stop(10)
    assert ended is stops
    if stops:
        assert camera.state is CameraState.STOPPED
        assert held(device) == before, "slots that were not given back"
    assert maker.breaches() == []


def held(device: Device) -> int:
    return sum(device.ledger.held(kind) for kind in ("host", "pinned", "device"))


def ring_of(camera: Camera) -> Ring:
    """The ring a camera runs on now."""
    work = camera._core.work
    assert work is not None
    return work.ring
