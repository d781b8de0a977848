"""What does the V4L2 source cost per frame beside what the driver does?

Case: 1920x1080 NV12 from a driver in Python that writes nothing (``tests.pipeline.v4l2.fake_driver``), into the slots
of a real ring, each frame picked up and let go as the stage does; whose memory the driver writes: the slots (USERPTR),
or its own (MMAP), which is copied; and MJPG of a photo-like picture, which is decoded. ``read()`` as a whole, the
driver's share in it too; p50 and p99 of 2000 frames (of MJPG 200), median of the runs.

Budget: 0.1 ms with USERPTR.
"""

from __future__ import annotations

import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import cv2
import numpy as np
import simplejpeg

from kernels.device import HostDevice
from pipeline.frame import Capture, Frame, FrameTimes
from pipeline.lease import WriteLease
from pipeline.ring import Ring
from pipeline.sources import make_source
from pipeline.sources.base import WriteSlot
from pipeline.sources.v4l2 import V4l2
from tests.benchmarks.harness import LoadMeter, arguments, median, percentile, publish, table
from tests.pipeline.v4l2.fake_driver import FakeCamera, FakeSystem, make_nodes

BUDGET_MS = 0.1
SIZE = (1920, 1080)
FRAMES = 2000
CASES = {"slots (USERPTR)": "format=NV12", "copied (MMAP)": "format=NV12&io=mmap", "decoded (MJPG)": "format=MJPG"}


@dataclass(frozen=True, slots=True)
class Figure:
    """One case; milliseconds a frame."""

    case: str
    p50_ms: float
    p99_ms: float
    copied_bytes: int

    @property
    def is_judged(self) -> bool:
        return self.copied_bytes == 0

    @property
    def is_met(self) -> bool:
        return self.p50_ms < BUDGET_MS


class Stage:
    """Takes what the source hands on, and lets it go at once."""

    def __init__(self, ring: Ring) -> None:
        self._ring = ring
        self.sequence = self.copied_bytes = 0

    def acquire(self) -> WriteSlot | None:
        return self._ring.acquire_write()

    def publish(self, slot: WriteSlot, capture: Capture) -> None:
        assert isinstance(slot, WriteLease)
        self.copied_bytes = capture.copied_bytes
        slot.publish(Frame(self.sequence, capture, FrameTimes()))
        self.sequence += 1

    def give_back(self, slot: WriteSlot, reason: str | None = None) -> None:
        assert isinstance(slot, WriteLease)
        slot.give_back(reason)

    def lost(self, reason: str, count: int = 1) -> None:
        raise AssertionError("the driver loses nothing")


def picture() -> bytes:
    """A JPEG as a webcam would send it: shapes and some noise."""
    noise = np.random.default_rng(2).integers(0, 256, (*SIZE[::-1], 3), np.uint8)
    smooth = cv2.normalize(cv2.GaussianBlur(noise, (0, 0), 9), np.empty_like(noise), 0, 255, cv2.NORM_MINMAX)
    data: bytes = simplejpeg.encode_jpeg(
        np.ascontiguousarray(smooth), quality=85, colorspace="BGR", colorsubsampling="422"
    )
    return data


def measure(case: str, frames: int = FRAMES) -> Figure:
    """One run."""
    with tempfile.TemporaryDirectory() as folder:
        dev = make_nodes(Path(folder), 0)
        camera = FakeCamera({"NV12": {SIZE: (60,)}, "MJPG": {SIZE: (60,)}})
        data = picture() if "MJPG" in case else b""
        camera.fill = lambda number, nbytes: data
        source = make_source(f"v4l2://{dev}/video0?{CASES[case]}")
        assert isinstance(source, V4l2)
        source.system, source.dev, source.sysfs = FakeSystem({f"{dev}/video0": camera}), dev, dev
        try:
            format = source.open()
            ring = Ring(HostDevice(), format.image, layout=format.layout)
            stage = Stage(ring)
            times = []
            for _ in range(frames + frames // 10):
                begin = time.perf_counter_ns()
                source.read(stage)
                times.append((time.perf_counter_ns() - begin) / 1e6)
                lease = ring.acquire_ready(0)
                assert lease is not None
                lease.abandon("shown")
        finally:
            source.close()
        ring.close(1)
    times = times[frames // 10 :]
    return Figure(case, percentile(times, 50), percentile(times, 99), stage.copied_bytes)


def combined(runs: list[Figure]) -> Figure:
    first = runs[0]
    return Figure(first.case, median([r.p50_ms for r in runs]), median([r.p99_ms for r in runs]), first.copied_bytes)


def shown(figures: list[Figure]) -> str:
    rows = [
        [
            f.case, f"{f.p50_ms:.3f}", f"{f.p99_ms:.3f}", f"{f.copied_bytes:,}",
            ("met" if f.is_met else "MISSED") if f.is_judged else "not judged",
        ]
        for f in figures
    ]  # fmt: skip
    return table(["driver's frames are", "p50, ms", "p99, ms", "bytes by a CPU", f"below {BUDGET_MS:g} ms"], rows)


def main() -> int:
    given, load = arguments(__doc__), LoadMeter()
    counts = {case: FRAMES // 10 if "MJPG" in case else FRAMES for case in CASES}
    runs = [[measure(case, count) for _ in range(given.runs)] for case, count in counts.items()]
    figures = [combined(one) for one in runs]
    data = {"figures": [asdict(one) for one in figures], "runs": [[asdict(one) for one in r] for r in runs]}
    publish("bench_v4l2", __doc__ or "", f"{shown(figures)}\n\nLoad: {load.stop()}.", data, given.out)
    return 0 if all(one.is_met for one in figures if one.is_judged) else 1


if __name__ == "__main__":
    raise SystemExit(main())
