"""How many cameras does one process carry, every frame through std4 and JPEG?

Each is NV12 1080p at 30 fps: its capture thread copies a picture that was rendered before into a slot on a clock, its
stage thread runs the chain and then, as an in-process subscriber, encodes the result on the GPU at quality 80. All
metrics are on, and a client takes /metrics and the state every 5 s. Then what the parts cost: CPU time of a frame by
cameras alone, with the encoding, and with the service and its client. Last, one camera in the running service with one
MJPEG viewer: from published to encoded.

Budget, on an H200: 96 cameras give 2,880 frames/s for 60 s with less than 0.1 % dropped and p99 from published to JPEG
under 10 ms; one camera in the service takes 700 µs at most.
"""

from __future__ import annotations

import argparse
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from kernels.bench_case import make_case
from kernels.device import CudaDevice
from kernels.formats import NV12
from kernels.image import ImageSpec, ImageView, Pixels
from kernels.plan import slot_source_spec
from pipeline.camera import Camera, CameraConfig
from pipeline.encoders import device_encoder_for, holds_results
from pipeline.engine import Engine
from pipeline.frame import Capture
from pipeline.rendition import DeviceRendition
from pipeline.sources.base import Source, SourceConfig, SourceFormat
from service.app import create_app
from service.connection import listen
from service.live import Hub
from service.server import Server
from service.settings import Settings
from tests.benchmarks.bench_jpeg import picture
from tests.benchmarks.harness import ROOT, percentile, publish, table

WIDTH, HEIGHT, FPS, QUALITY = 1920, 1080, 30.0, 80
WARM_UP_S = 4.0
SCRAPE_S = 5.0


class Rendered(Source):
    """The same NV12 picture again and again, on a clock that starts at a time of its own."""

    scheme = "rendered"
    Config = SourceConfig
    example = "rendered://"

    def __init__(self, content: Pixels, offset_s: float) -> None:
        super().__init__("rendered://", SourceConfig())
        self._image = ImageSpec.make(NV12, WIDTH, HEIGHT)
        spec = slot_source_spec(self._image)
        self._bytes = np.zeros(spec.nbytes, np.uint8)
        view = ImageView(spec, self._bytes)
        view.plane(0)[:] = content[:HEIGHT]
        view.plane(1)[:] = content[HEIGHT:].reshape(view.plane(1).shape)
        self._offset_ns = int(offset_s * 1e9)

    def open(self) -> SourceFormat:
        self._due_ns = time.monotonic_ns() + self._offset_ns
        return SourceFormat(self._image, FPS, live=True)

    def fill(self, view: ImageView) -> Capture:
        self._due_ns += int(1e9 / FPS)
        self.wait_until(self._due_ns)
        now_ns = time.monotonic_ns()
        np.copyto(view.buffer[: self._bytes.nbytes], self._bytes)
        return Capture(now_ns, time.time_ns())

    def close(self) -> None:
        return None


class Encoding:
    """Encodes every result of a camera in its stage thread; microseconds from published to the bytes."""

    def __init__(self, camera: Camera, device: CudaDevice) -> None:
        encoder = device_encoder_for("jpg", device)
        assert encoder is not None, "nvJPEG is not installed"
        self._camera = camera
        self._rendition = DeviceRendition(device, encoder, of_source=False, width=None)
        self._last = -1
        self.taken: list[float] = []
        self.nbytes = 0
        self.unsubscribe = camera.subscribe(self._encode)

    def _encode(self) -> None:
        if (lease := self._camera.latest()) is None:
            return
        with lease:
            frame = lease.frame
            if frame.sequence == self._last:
                return
            data, _ = self._rendition.encode(lease, QUALITY)
            self._last = frame.sequence
            published_ns = frame.times.published_ns
        self.taken.append((time.monotonic_ns() - published_ns) / 1e3)
        self.nbytes = len(data)

    def close(self) -> None:
        self.unsubscribe()
        self._rendition.close()


@contextmanager
def served(engine: Engine) -> Iterator[tuple[str, Hub]]:
    """The service of these cameras, in a thread: its address, and its hub."""
    settings = Settings()
    app = create_app(engine, settings, memory_reason="a benchmark")
    started = threading.Event()
    urls: list[str] = []

    def at(url: str) -> None:
        urls.append(url)
        started.set()

    with listen(settings.host, 0) as listener:
        server = Server(app, listener, stop_viewers=app.state.pinhole.hub.stop, started_at=at)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            if not started.wait(30):
                raise RuntimeError("the service did not start")
            yield urls[0], app.state.pinhole.hub
        finally:
            server.should_exit = True
            thread.join(10)


def scrape(url: str, stop: threading.Event) -> None:
    while not stop.wait(SCRAPE_S):
        for path in ("/metrics", "/api/v1/state"):
            with urllib.request.urlopen(url + path, timeout=10) as answer:
                answer.read()


def engine_of(device: CudaDevice, cameras: int, content: Pixels, wait: str = "auto") -> Engine:
    chain = make_case("std4", NV12, WIDTH, HEIGHT).chain
    numbers = iter(range(10**9))

    def make(uri: str) -> Source:
        return Rendered(content, (next(numbers) % cameras) / (cameras * FPS))

    engine = Engine(device, max_cameras=cameras, source_factory=make)
    for index in range(cameras):
        config = CameraConfig(f"cam{index}", "testcard://", chain, slots=4, wait=wait)  # type: ignore[arg-type]
        engine.add(config, start=False, check=False)
    return engine


def many(
    content: Pixels, cameras: int, seconds: float, encoded: bool = True, in_service: bool = True
) -> dict[str, Any]:
    """One run with that many cameras."""
    device = CudaDevice()
    device.holds_results = holds_results(device)
    engine = engine_of(device, cameras, content)
    running = list(engine.cameras.values())
    with ExitStack() as stack:
        stack.callback(engine.stop, 5.0)
        if in_service:
            (url, _), stop = stack.enter_context(served(engine)), threading.Event()
            stack.callback(stop.set)
            client = threading.Thread(target=scrape, args=(url, stop), daemon=True)
        else:
            engine.start()
        encodings = [Encoding(camera, device) for camera in running] if encoded else []
        for encoding in encodings:
            stack.callback(encoding.close)
        deadline = time.monotonic() + 120
        while any(camera.statistics().processed < 5 for camera in running):
            if time.monotonic() > deadline:
                raise RuntimeError("not every camera runs")
            time.sleep(0.1)
        if in_service:
            client.start()
        time.sleep(WARM_UP_S)
        before = [camera.statistics() for camera in running]
        for encoding in encodings:
            encoding.taken.clear()
        cpu_s, began = time.process_time(), time.perf_counter()
        time.sleep(seconds)
        taken = sorted(us for encoding in encodings for us in list(encoding.taken))
        passed, cpu_s = time.perf_counter() - began, time.process_time() - cpu_s
        after = [camera.statistics() for camera in running]
        for encoding in encodings:
            encoding.unsubscribe()
    dropped = sum(sum(a.dropped.values()) - sum(b.dropped.values()) for a, b in zip(after, before, strict=True))
    frames = sum(a.processed - b.processed for a, b in zip(after, before, strict=True))
    found = {
        "cameras": cameras, "seconds": passed, "frames_per_s": frames / passed,
        "encoded_per_s": len(taken) / passed, "dropped": dropped, "dropped_percent": 100 * dropped / max(frames, 1),
        "cores": cpu_s / passed, "cpu_us_per_frame": 1e6 * cpu_s / max(frames, 1),
    }  # fmt: skip
    if taken:
        found |= {
            "p50_ms": percentile(taken, 50) / 1e3,
            "p99_ms": percentile(taken, 99) / 1e3,
            "max_ms": taken[-1] / 1e3,
        }
    return found


def in_service(content: Pixels, seconds: float, wait: str) -> dict[str, Any]:
    """One camera with one MJPEG viewer in the running service; microseconds from published to encoded."""
    device = CudaDevice()
    device.holds_results = holds_results(device)
    engine = engine_of(device, 1, content, wait)
    camera = next(iter(engine.cameras.values()))
    taken: list[float] = []
    with served(engine) as (url, hub):
        stop = threading.Event()

        def view() -> None:
            with urllib.request.urlopen(f"{url}/cameras/{camera.name}/stream?quality={QUALITY}", timeout=10) as stream:
                while not stop.is_set():
                    stream.read(65536)

        viewer = threading.Thread(target=view, daemon=True)
        viewer.start()
        time.sleep(WARM_UP_S)
        seen: set[int] = set()
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            time.sleep(0.5)
            published = {frame.sequence: frame.times.published_ns for frame in camera.recent_frames(60)}
            for made in hub.recent(camera.name)[0]:
                if made.sequence in published and made.sequence not in seen:
                    seen.add(made.sequence)
                    taken.append((made.ended_ns - published[made.sequence]) / 1e3)
        stop.set()
    engine.stop(5.0)
    return {"frames": len(taken), "p50_us": percentile(taken, 50), "p99_us": percentile(taken, 99)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "benchmarks", help="folder for JSON and table")
    parser.add_argument("--cameras", default="1,16,64,96,128", help="runs, by their number of cameras")
    parser.add_argument("--seconds", type=float, default=10, help="of each run but that of 96 cameras")
    parser.add_argument("--bar-seconds", type=float, default=60, help="of the run with 96 cameras")
    given = parser.parse_args()
    content = picture(WIDTH, HEIGHT)
    runs, parts, rows = [], [], []
    for cameras in map(int, given.cameras.split(",")):
        print(f"{cameras} cameras", flush=True)
        run = many(content, cameras, given.bar_seconds if cameras == 96 else given.seconds)
        runs.append(run)
        rows.append([
            cameras, f"{run['encoded_per_s']:.0f}", f"{run['dropped_percent']:.2f}", f"{run['cores']:.2f}",
            f"{run['cpu_us_per_frame']:.0f}", f"{run['p50_ms']:.2f}", f"{run['p99_ms']:.2f}", f"{run['max_ms']:.1f}",
        ])  # fmt: skip
        print(rows[-1], flush=True)
    head = ["cameras", "JPEGs/s", "dropped %", "CPU cores", "CPU µs/frame", "p50 ms", "p99 ms", "max ms"]
    text = table(head, rows)
    part_rows = []
    for name, encoded, service in (
        ("cameras and std4 alone", False, False), ("with JPEG for a subscriber", True, False),
        ("with the service and a client that scrapes it", True, True),
    ):  # fmt: skip
        part = {"part": name, **many(content, 64, given.seconds, encoded, service)}
        parts.append(part)
        part_rows.append([name, f"{part['frames_per_s']:.0f}", f"{part['cpu_us_per_frame']:.0f}"])
        print(part_rows[-1], flush=True)
    text += "\n\n64 cameras:\n\n" + table(["what runs", "frames/s", "CPU µs/frame"], part_rows)
    live = {wait: in_service(content, given.seconds, wait) for wait in ("auto", "spin", "block")}
    live_rows = [[wait, one["frames"], f"{one['p50_us']:.0f}", f"{one['p99_us']:.0f}"] for wait, one in live.items()]
    text += "\n\nOne camera, one MJPEG viewer:\n\n" + table(["wait", "frames", "p50 µs", "p99 µs"], live_rows)
    publish("bench_cameras", __doc__ or "", text, {"runs": runs, "parts": parts, "in_service": live}, given.out)


if __name__ == "__main__":
    main()
