"""Times chains way by way, everything in turn: Pinhole's plans, what people write instead, the link's floor.

What asks CUDA is behind :class:`Gpu` (kernels/bench_cuda.py has the one for CUDA), so that the rest is tested without.
"""

from __future__ import annotations

import mmap
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from kernels import bench_cupy, bench_opencv
from kernels.bench_case import Case, NoEquivalentError, Ready
from kernels.codegen import generate
from kernels.device import Completion, Device, Executor, HostDevice
from kernels.image import ImageView, Pixels
from kernels.plan import Plan, chain_params, make_plan, reads_in_place, result_nbytes, unfused

FUSED = "Pinhole"
UNFUSED = "Pinhole, a pass for each op"
ON_CPU = "Pinhole on the CPU"
BY_CUPY = bench_cupy.WAY
BY_HAND = bench_opencv.WAY

WARM_UP, WARM_UP_S = 20, 0.2
LEAST_FRAMES = 3
SLOW_S = 0.5
QUEUED = 16  # frames launched behind each other, so that a kernel's start does not wait for Python

Change = Callable[[Plan], Plan]


class DeviceBytes(Protocol):
    """Memory on the GPU; ``ptr`` is its address there."""

    @property
    def ptr(self) -> int: ...
    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Exchange:
    """What the copy engines take for a frame's bytes, both ways at once between pinned and device memory.

    ``floor_us``: for each of many frames queued on both; ``alone_us``: for one, from the first call to both done.
    """

    floor_us: float
    alone_us: float


@dataclass(frozen=True, slots=True)
class Link:
    """GB/s of long copies: over the link one way at a time, and within device memory (read plus written)."""

    in_gb_s: float
    out_gb_s: float
    device_gb_s: float


class Gpu(Protocol):
    """What is asked of a GPU. One thread."""

    @property
    def device(self) -> Device: ...

    def executor(self, plan: Plan, change: Change | None = None) -> Executor:
        """One that waits by spinning, for the plan as ``change`` makes it; from the cache of kernels where it can."""

    def forget_kernels(self) -> None:
        """Let the next executor compile its plan, or read what the cache on disk has."""

    def memory(self, content: Pixels) -> DeviceBytes:
        """Device memory that holds these bytes."""

    def op_by_op(self, case: Case) -> Ready:
        """The case in CuPy from and to ordinary memory. Raises NoEquivalentError."""

    def exchange(self, bytes_in: int, bytes_out: int) -> Exchange: ...
    def link(self) -> Link: ...


@dataclass(slots=True)
class WayFigures:
    """A way's figures for each turn; ``left_out`` says why there are none."""

    p50_us: list[float] = field(default_factory=list)
    p99_us: list[float] = field(default_factory=list)
    frames: int = 0  # of all turns
    left_out: str = ""


@dataclass(slots=True)
class CaseFigures:
    """What was measured of a case, turn by turn; lists stay empty for what was not asked for."""

    case: Case
    ways: dict[str, WayFigures] = field(default_factory=dict)
    floor_us: list[float] = field(default_factory=list)
    alone_us: list[float] = field(default_factory=list)
    kernels_us: list[float] = field(default_factory=list)
    kernels_plan: Plan | None = None
    cold_ms: list[float] = field(default_factory=list)
    warm_ms: list[float] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Options:
    """How much is measured: ``frames`` for each way and turn, ``runs`` turns."""

    frames: int = 120
    runs: int = 5
    kernels: bool = False
    starts: bool = True
    others: bool = True  # what Pinhole is compared with
    slow_s: float = SLOW_S  # how long each of those, and the CPU, may take for one turn


@dataclass(slots=True)
class Figures:
    """Everything of one run. ``links`` has an entry for each turn on a GPU."""

    cases: list[CaseFigures]
    links: list[Link] = field(default_factory=list)


def measure(
    cases: Sequence[Case], gpu: Gpu | None, options: Options, say: Callable[[str], object] = lambda text: None
) -> Figures:
    """All ways of all cases, one turn after the other. Blocks for seconds to minutes; ``say`` hears how far it is.

    Raises:
        PinholeError: a chain cannot be run here: memory, the compiler, the device.
    """
    figures = Figures([CaseFigures(case) for case in cases])
    # Sizes are data, so most cases start with the same kernel: once is enough.
    kernels = {generate(one.case.plan): one for one in reversed(figures.cases)}
    starting = [one.case for one in kernels.values() if options.starts]
    for turn in range(options.runs):
        if gpu is not None:
            gpu.device.activate()
            figures.links.append(gpu.link())
        for one in figures.cases:
            say(f"run {turn + 1} of {options.runs}: {one.case.text}")
            if gpu is not None:
                _measure_gpu(one, gpu, options, one.case in starting)
            for way, make in _ways(one.case, gpu, options).items():
                mine = way in (FUSED, UNFUSED)
                _time_way(one, way, make, options.frames, float("inf") if mine else options.slow_s)
    return figures


def _measure_gpu(one: CaseFigures, gpu: Gpu, options: Options, starts: bool) -> None:
    case = one.case
    if starts:
        cold, warm = start_times_ms(gpu, case)
        one.cold_ms.append(cold)
        one.warm_ms.append(warm)
    exchange = gpu.exchange(case.bytes_in, case.bytes_out)
    one.floor_us.append(exchange.floor_us)
    one.alone_us.append(exchange.alone_us)
    if options.kernels:
        one.kernels_plan = reads_in_place(case.plan)
        one.kernels_us.append(percentile(kernel_times_us(gpu, case, options.frames), 50))


def _ways(case: Case, gpu: Gpu | None, options: Options) -> dict[str, Callable[[], Ready]]:
    ways: dict[str, Callable[[], Ready]] = {}
    if gpu is not None:
        ways[FUSED] = lambda: on_gpu(gpu, case)
        if len(case.chain.steps) > 1:
            ways[UNFUSED] = lambda: on_gpu(gpu, case, unfused)
        if options.others:
            ways[BY_CUPY] = lambda: gpu.op_by_op(case)
    if options.others or gpu is None:
        ways[ON_CPU] = lambda: on_cpu(case)
        ways[BY_HAND] = lambda: opencv_by_hand(case)
    return ways


def _time_way(one: CaseFigures, way: str, make: Callable[[], Ready], frames: int, most_s: float) -> None:
    figures = one.ways.setdefault(way, WayFigures())
    try:
        ready = make()
    except NoEquivalentError as error:
        figures.left_out = error.what
        return
    try:
        taken = time_frames(ready, frames, most_s)
    finally:
        ready.close()
    figures.p50_us.append(percentile(taken, 50))
    figures.p99_us.append(percentile(taken, 99))
    figures.frames += len(taken)


def time_frames(
    ready: Ready,
    frames: int,
    most_s: float = float("inf"),
    clock_ns: Callable[[], int] = time.perf_counter_ns,
) -> list[float]:
    """Microseconds of ``frames`` frames after a warm-up; fewer, but a few, where they would take over ``most_s``."""
    began = clock_ns()
    for _ in range(WARM_UP):
        ready.settle(ready.frame())
        if clock_ns() - began > WARM_UP_S * 1e9:
            break
    taken: list[float] = []
    began = clock_ns()
    while len(taken) < frames:
        before = clock_ns()
        if len(taken) >= LEAST_FRAMES and before - began > most_s * 1e9:
            break
        end = ready.frame()
        taken.append((clock_ns() - before) / 1e3)
        ready.settle(end)
    return taken


def on_gpu(gpu: Gpu, case: Case, change: Change | None = None) -> Ready:
    """Submit to done through slots that the GPU reads and writes in place."""
    with ExitStack() as stack:
        source, result = _views(stack, gpu.device, case)
        if case.on_device:
            result = ImageView(result.spec, result.buffer, _on_device(stack, gpu, result.buffer))
        return _through(stack, lambda: gpu.executor(case.plan, change), case, source, result)


def on_cpu(case: Case) -> Ready:
    """The executor of ``--memory host``, on this machine's cores."""
    return on_device(HostDevice(), case)


def on_device(device: Device, case: Case) -> Ready:
    """Submit to done, waiting by spinning, through the device's own slots, whatever its memory strategy is."""
    with ExitStack() as stack:
        device.activate()
        source, result = _views(stack, device, case)
        return _through(stack, lambda: device.make_executor(case.plan, "spin"), case, source, result)


def from_camera(device: Device, case: Case) -> Ready:
    """As :func:`on_device`, for frames that a camera writes: before each, the CPU has written to each of its pages and
    read each of the result's before it, behind the clock, so that managed memory is where it is in life.
    """
    with ExitStack() as stack:
        device.activate()
        source, result = _views(stack, device, case)
        ready = _through(stack, lambda: device.make_executor(case.plan, "spin"), case, source, result)
        written, read = source.buffer[:: mmap.PAGESIZE], result.buffer[:: mmap.PAGESIZE]

        def settle(end: Completion) -> None:
            ready.settle(end)
            read.max()
            written[:] ^= 1

        return Ready(ready.frame, ready.close, settle)


def opencv_by_hand(case: Case) -> Ready:
    """The same between the same kinds of buffers, without an executor. Raises NoEquivalentError."""
    with ExitStack() as stack:
        frame = bench_opencv.by_hand(case, *_views(stack, HostDevice(), case))
        return Ready(frame, stack.pop_all().close)


def _through(stack: ExitStack, make: Callable[[], Executor], case: Case, source: ImageView, result: ImageView) -> Ready:
    executor = make()
    stack.callback(executor.close)
    submit, params = executor.submit, chain_params(case.chain)

    def frame() -> Completion:
        end = submit(source, result, params)
        end.wait()
        return end

    # The time on the GPU is asked for, as the stage does: it lets the frame's events be used again.
    return Ready(frame, stack.pop_all().close, lambda end: end.gpu_ns())


def _views(stack: ExitStack, device: Device, case: Case) -> tuple[ImageView, ImageView]:
    """Slots for the case's source, which is noise, and its result."""
    plan = case.plan
    source, result = device.allocate_slot(plan.source.nbytes), device.allocate_slot(result_nbytes(plan))
    stack.callback(source.close)
    stack.callback(result.close)
    source.array[:] = noise(source.nbytes)
    result.array[:] = 0  # pages that are not there yet would cost the first frames
    return (
        ImageView(plan.source, source.array, source.dev_ptr),
        ImageView(plan.result, result.array, result.dev_ptr),
    )


@lru_cache(maxsize=2)
def noise(nbytes: int) -> Pixels:
    """(nbytes,) uint8: what no cache, table or branch has an easy time with."""
    return np.random.default_rng(0).integers(0, 256, nbytes, np.uint8)


def _on_device(stack: ExitStack, gpu: Gpu, content: Pixels) -> int:
    memory = gpu.memory(content)
    stack.callback(memory.close)
    return memory.ptr


def kernel_times_us(gpu: Gpu, case: Case, frames: int) -> list[float]:
    """Microseconds of the launch alone, by CUDA events, source and result in device memory."""
    with ExitStack() as stack:
        source, result = (
            ImageView(view.spec, view.buffer, _on_device(stack, gpu, view.buffer))
            for view in _views(stack, gpu.device, case)
        )
        executor = gpu.executor(case.plan, reads_in_place)
        stack.callback(executor.close)
        params = chain_params(case.chain)
        taken: list[float] = []
        for turn in range(1 + -(-frames // (QUEUED - 1))):
            ends = [executor.submit(source, result, params) for _ in range(QUEUED)]
            ends[-1].wait()
            times = [_gpu_us(end) for end in ends]
            taken += (
                times[1:] if turn > 0 else []
            )  # the first frame of each row waits for Python, the first row warms up
        return taken[:frames]


def _gpu_us(end: Completion) -> float:
    end.wait()
    taken = end.gpu_ns()
    assert taken is not None, "the executors of a GPU tell how long it worked"
    return taken / 1e3


def start_times_ms(gpu: Gpu, case: Case) -> tuple[float, float]:
    """From a chain to its first frame done: with nothing compiled, and with its kernels in the cache on disk."""
    with tempfile.TemporaryDirectory(prefix="pinhole-bench-") as folder, ExitStack() as stack:
        stack.enter_context(_cache_in(folder))
        source, result = _views(stack, gpu.device, case)
        taken = []
        for _ in range(2):
            gpu.forget_kernels()
            began = time.perf_counter()
            plan = make_plan(case.chain, case.plan.source, case.plan.result.format if case.plan.converts else None)
            executor = gpu.executor(plan)
            try:
                executor.submit(source, result, chain_params(case.chain)).wait()
                taken.append((time.perf_counter() - began) * 1e3)
            finally:
                executor.close()
        return taken[0], taken[1]


@contextmanager
def _cache_in(folder: str | Path) -> Iterator[None]:
    before: Any = os.environ.get("PINHOLE_CACHE_DIR")
    os.environ["PINHOLE_CACHE_DIR"] = str(folder)
    try:
        yield
    finally:
        if before is None:
            del os.environ["PINHOLE_CACHE_DIR"]
        else:
            os.environ["PINHOLE_CACHE_DIR"] = before


def percentile(values: Sequence[float], percent: float) -> float:
    """The value below or at which ``percent`` of ``values`` lie (nearest rank)."""
    ordered = sorted(values)
    rank = max(1, -(-len(ordered) * percent // 100))
    return ordered[int(rank) - 1]


def ratio(these: Sequence[float], those: Sequence[float]) -> float:
    """The median over turns of one figure in terms of another of the same turn."""
    return statistics.median([a / b for a, b in zip(these, those, strict=True)])
