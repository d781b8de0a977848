"""A camera with scripted frames, and a count of every lease it gave out."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import numpy as np

from kernels.device import Device, NullDevice
from kernels.formats import BGR8, PixelFormat
from kernels.image import ImageSpec, ImageView
from pipeline.demand import Place
from pipeline.frame import Capture, Frame, FrameTimes
from pipeline.lease import ReadLease
from pipeline.state import CameraState

SIZE = (64, 48)


@dataclass(slots=True)
class FakeConfig:
    """What the hub uses of a camera's configuration."""

    stale_after_s: float = 3.0


class FakeLease:
    """What the hub uses of a read lease."""

    def __init__(self, camera: FakeCamera, frame: Frame, result: ImageView, source: ImageView) -> None:
        self._camera = camera
        self.frame = frame
        self.result = result
        self.source = source
        self.consumed = False

    def release(self) -> None:
        assert not self.consumed, "released twice"
        self.consumed = True
        self._camera.count_lease(-1)

    def __enter__(self) -> FakeLease:
        return self

    def __exit__(self, *error: object) -> None:
        self.release()


class FakeCamera:
    """Shows what the test says; any thread."""

    def __init__(self, name: str = "cam", format: PixelFormat = BGR8, size: tuple[int, int] = SIZE) -> None:
        self.name = name
        self.state = CameraState.STARTING
        self.cause: str | None = None
        self.format = format
        self.size = size
        self.leases_out = 0
        self.leases_given = 0
        self.sequence = -1
        self.config = FakeConfig()
        self.device: Device = NullDevice()
        self.claims: list[Place] = []
        self.encoded_bytes = 0
        self._lock = threading.Lock()
        self._now: tuple[Frame, ImageView, ImageView] | None = None
        self._subscribers: list[Callable[[], None]] = []

    @property
    def subscribers(self) -> int:
        return len(self._subscribers)

    def count_lease(self, by: int) -> None:
        with self._lock:
            self.leases_out += by

    def show(self, sequence: int | None = None, *, age_s: float = 0.0, notify: bool = True) -> None:
        """Make a frame the newest: grey of ``sequence`` modulo 200 in the result, 255 minus that in the source."""
        self.sequence = self.sequence + 1 if sequence is None else sequence
        spec = ImageSpec.make(self.format, *self.size)
        result_spec = ImageSpec.make(BGR8, *self.size)
        level = self.sequence % 200
        result = ImageView(result_spec, np.full(result_spec.nbytes, level, np.uint8))
        source = ImageView(spec, np.full(spec.nbytes, 255 - level, np.uint8))
        now_ns = time.monotonic_ns() - int(age_s * 1e9)
        times = FrameTimes(now_ns, now_ns, now_ns, 0)
        frame = Frame(self.sequence, Capture(now_ns, time.time_ns()), times, chain_version=self.sequence + 1000)
        with self._lock:
            self._now = (frame, result, source)
        if notify:
            self.notify()

    def claim(self, place: Place) -> Callable[[], None]:
        self.claims.append(place)
        return lambda: self.claims.remove(place)

    def count_encoded(self, nbytes: int) -> None:
        self.encoded_bytes += nbytes

    def become(self, state: CameraState, cause: str | None = None) -> None:
        self.state, self.cause = state, cause
        self.notify()

    def notify(self) -> None:
        for callback in list(self._subscribers):
            callback()

    def latest(self) -> ReadLease | None:
        with self._lock:
            if self._now is None:
                return None
            self.leases_out += 1
            self.leases_given += 1
            return cast(ReadLease, FakeLease(self, *self._now))

    def subscribe(self, callback: Callable[[], None]) -> Callable[[], None]:
        self._subscribers.append(callback)
        return lambda: self._subscribers.remove(callback)
