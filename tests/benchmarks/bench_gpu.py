"""How long from a slot published to its result ready, on a GPU?

Question: what does Pinhole take from the moment the source hands a frame over (``published_ns``) to the moment its
result can be read (``done_ns``), hand-over between the threads included, and how much less is that than with pageable
copies?

Cases: the chain gaussian_blur(ksize=5) | gamma(gamma=1.2) | gain_offset(gain=1.1, offset=5) | sobel through a real
camera (two threads, ring of 6) on frames of noise at a steady rate below saturation; zero_copy with each way to
wait; the same pipeline and kernels with the slots in ordinary memory and synchronous cudaMemcpy both ways
("pageable"); and, outside any pipeline, ``cp.asarray(frame)``, the kernels, ``.get()`` as people write it. All in the
same run, in turn.

Budget (bars): 1080p BGR, spinning: p50 at most 350 µs, and at least 4 times less than "pageable". Median of five runs
of 120 frames each.

Floor: the larger of the bytes in and the bytes out over the link, 50.4 GB/s each way (both copy engines at once).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from typing import Any

import numpy as np

from kernels.chain import parse_chain
from kernels.device import CudaDevice, WaitMode
from kernels.formats import BGR8, NV12, PixelFormat
from kernels.image import ImageSpec, ImageView
from kernels.plan import chain_params, make_plan, slot_source_spec
from kernels.run_cuda import CudaExecutor
from pipeline.camera import Camera, CameraConfig
from pipeline.frame import Capture
from pipeline.sources.base import Source, SourceConfig, SourceFormat
from tests.benchmarks.harness import LoadMeter, arguments, median, percentile, publish, table

CHAIN = "gaussian_blur(ksize=5) | gamma(gamma=1.2) | gain_offset(gain=1.1, offset=5) | sobel"
FRAMES = 120
WARM_UP = 20
CASES: tuple[tuple[PixelFormat, int, int, float], ...] = (
    (BGR8, 1920, 1080, 200.0),
    (NV12, 1920, 1080, 200.0),
    (BGR8, 3840, 2160, 80.0),
)
LINK_BYTES_PER_US = 50.4e3
BAR_US, BAR_RATIO = 350.0, 4.0


class Noise(Source):
    """Frames of fixed noise at a steady rate."""

    scheme = "noise"
    Config = SourceConfig
    example = "noise://"

    def __init__(self, image: ImageSpec, fps: float) -> None:
        super().__init__("noise://", SourceConfig())
        self._image = image
        self._period_ns = int(1e9 / fps)
        self._bytes = np.random.default_rng(0).integers(0, 256, slot_source_spec(image).nbytes, np.uint8)

    def open(self) -> SourceFormat:
        self._due_ns = time.monotonic_ns()
        return SourceFormat(self._image, 1e9 / self._period_ns, live=True)

    def fill(self, view: ImageView) -> Capture:
        np.copyto(view.buffer[: self._bytes.nbytes], self._bytes)
        self._due_ns += self._period_ns
        self.wait_until(self._due_ns)
        return Capture(time.monotonic_ns(), time.time_ns())

    def close(self) -> None:
        return None


def through_camera(device: CudaDevice, image: ImageSpec, fps: float, wait: WaitMode) -> list[float]:
    """Microseconds from published to done of ``FRAMES`` frames."""
    taken: list[float] = []
    enough = threading.Event()
    config = CameraConfig("bench", "testcard://", chain=parse_chain(CHAIN), wait=wait)
    camera = Camera(config, device, lambda uri: Noise(image, fps))

    def look() -> None:
        if (lease := camera.latest()) is None:
            return
        with lease:
            times = lease.frame.times
            taken.append((times.done_ns - times.published_ns) / 1e3)
        if len(taken) >= WARM_UP + FRAMES:
            enough.set()

    unsubscribe = camera.subscribe(look)
    camera.start()
    if not enough.wait(60):
        raise RuntimeError(f"the camera gave {len(taken)} frames in 60 s; it is {camera.state.value}: {camera.cause}")
    unsubscribe()
    if not camera.stop(5):
        raise RuntimeError("the camera did not stop")
    return taken[WARM_UP : WARM_UP + FRAMES]


def as_people_write_it(device: CudaDevice, image: ImageSpec) -> list[float]:
    """Microseconds of asarray, the kernels and get, on numpy frames."""
    import cupy

    chain = parse_chain(CHAIN)
    plan = make_plan(chain, image)
    executor = CudaExecutor(device, plan, "spin")
    frame = np.random.default_rng(0).integers(0, 256, image.nbytes, np.uint8)
    out = cupy.empty(plan.result.nbytes, cupy.uint8)
    view = ImageView(plan.result, np.empty(plan.result.nbytes, np.uint8), out.data.ptr)
    params = chain_params(chain)
    taken = []
    for _ in range(10 + FRAMES // 2):
        started = time.perf_counter()
        on_device = cupy.asarray(frame)
        executor.submit(ImageView(image, frame, on_device.data.ptr), view, params).wait()
        out.get()
        taken.append((time.perf_counter() - started) * 1e6)
    executor.close()
    return taken[10:]


def main() -> None:
    given = arguments(__doc__)
    device, pageable = CudaDevice(), CudaDevice(memory="pageable")
    device.activate()
    runs: dict[str, dict[str, list[dict[str, float]]]] = {}
    load = LoadMeter()
    for turn in range(given.runs):
        for format, width, height, fps in CASES:
            image = ImageSpec.make(format, width, height)
            case = f"{width}x{height} {format}"
            print(f"run {turn + 1} of {given.runs}: {case}", flush=True)
            ways: dict[str, Callable[[], list[float]]] = {
                "zero_copy, spin": partial(through_camera, device, image, fps, "spin"),
                "zero_copy, auto": partial(through_camera, device, image, fps, "auto"),
                "zero_copy, block": partial(through_camera, device, image, fps, "block"),
                "pageable, spin": partial(through_camera, pageable, image, fps, "spin"),
                "asarray … get": partial(as_people_write_it, device, image),
            }
            for way, measure in ways.items():
                taken = measure()
                runs.setdefault(case, {}).setdefault(way, []).append(
                    {"p50_us": percentile(taken, 50), "p99_us": percentile(taken, 99)}
                )
    rows, figures = [], []
    for format, width, height, _ in CASES:
        case = f"{width}x{height} {format}"
        plan = make_plan(parse_chain(CHAIN), ImageSpec.make(format, width, height))
        floor = max(plan.link_bytes_in, plan.link_bytes_out) / LINK_BYTES_PER_US
        zero_copy = median([run["p50_us"] for run in runs[case]["zero_copy, spin"]])
        for way, measured in runs[case].items():
            p50, p99 = (median([run[key] for run in measured]) for key in ("p50_us", "p99_us"))
            rows.append([case, way, p50, p99, p50 / floor, p50 / zero_copy])
            figures.append({"case": case, "way": way, "p50_us": p50, "p99_us": p99, "floor_us": floor})
    first = runs[next(iter(runs))]
    p50 = median([run["p50_us"] for run in first["zero_copy, spin"]])
    ratio = median(
        [a["p50_us"] / b["p50_us"] for a, b in zip(first["pageable, spin"], first["zero_copy, spin"], strict=True)]
    )
    verdict = [
        f"Bar 1: {p50:.0f} µs p50 at 1080p BGR, spinning, at most {BAR_US:.0f}: "
        f"{'met' if p50 <= BAR_US else 'MISSED'}.",
        f"Bar 2: {ratio:.2f}x less than pageable in the same run, at least {BAR_RATIO:.0f}: "
        f"{'met' if ratio >= BAR_RATIO else 'MISSED'}.",
    ]
    head = ["case", "way", "p50 µs", "p99 µs", "over floor", "over zero_copy"]
    data: dict[str, Any] = {
        "figures": figures, "runs": runs, "load": asdict(load.stop()), "p50_us": p50, "ratio": ratio,
    }  # fmt: skip
    publish("bench_gpu", (__doc__ or "").strip(), table(head, rows) + "\n\n" + "\n".join(verdict), data, given.out)


if __name__ == "__main__":
    main()
