"""What does each memory strategy make of one frame, and of sixteen cameras?

Question: how long from submit to done, host memory to host memory, waiting with a core; how much less is that than with
pageable copies of the same work; how near is it to the floor; does ``auto`` pick the best?

Cases: a point op (gamma) and std4 (gaussian_blur 5x5, gamma, gain and offset, sharpen) on BGR8, 1080p and 4K, in every
strategy that the device offers, in turn, some frames of each at a time. Two baselines: "pageable", the strategy, is
synchronous copies between buffers that stay; "asarray … get" is what people write with CuPy: a NumPy frame to the
device, the same kernels, a new array back. Sixteen cameras: an executor each, a frame of each under way at once, one
thread submits.

Budget (bars), against each of the two: zero_copy, 1080p: a point op at least 5.5 times, std4 at least 5 times less,
std4 by the best strategy 6 times; staged, a point op: at most 1.55 times the floor at 1080p and 1.25 at 4K; auto at
most 1.05 times the best; sixteen cameras of 1080p through std4 at least 5,000 frames/s.

Floor: both copy engines at once, the same bytes, in the same run.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import numpy as np

from kernels.bench_cuda import CudaGpu
from kernels.chain import parse_chain
from kernels.device import MEMORY_STRATEGIES, Completion, CudaDevice
from kernels.errors import DeviceUnavailableError
from kernels.formats import BGR8
from kernels.image import ImageSpec, ImageView
from kernels.plan import Plan, chain_params, make_plan, result_nbytes, slot_source_spec
from kernels.run_cuda import CudaExecutor
from tests.benchmarks.harness import arguments, median, percentile, publish, table

STD4 = "gaussian_blur(ksize=5) | gamma(gamma=1.2) | gain_offset(gain=1.1, offset=5) | sharpen"
CHAINS = {"point": "gamma(gamma=1.2)", "std4": STD4}
SIZES = ((1920, 1080), (3840, 2160))
FRAMES, WARM_UP = 40, 5
CAMERAS, CAMERA_FRAMES = 16, 200
WRITTEN = "asarray … get"
BASELINES = ("pageable", WRITTEN)


def views(device: CudaDevice, plan: Plan, stack: ExitStack) -> tuple[ImageView, ImageView]:
    made = []
    for spec, nbytes in ((plan.source, plan.source.nbytes), (plan.result, result_nbytes(plan))):
        memory = device.allocate_slot(nbytes)
        stack.callback(memory.close)
        memory.array[:] = np.random.default_rng(0).integers(0, 256, memory.array.size, np.uint8)
        made.append(ImageView(spec, memory.array, memory.dev_ptr))
    return made[0], made[1]


def as_people_write_it(device: CudaDevice, plan: Plan, chain: str, stack: ExitStack) -> Callable[[], object]:
    import cupy

    executor = CudaExecutor(device, plan, "spin")
    stack.callback(executor.close)
    frame = np.random.default_rng(0).integers(0, 256, plan.source.nbytes, np.uint8)
    out = cupy.empty(result_nbytes(plan), cupy.uint8)
    view = ImageView(plan.result, np.empty(result_nbytes(plan), np.uint8), out.data.ptr)
    params = chain_params(parse_chain(chain))

    def once() -> None:
        on_device = cupy.asarray(frame)
        executor.submit(ImageView(plan.source, frame, on_device.data.ptr), view, params).wait()
        out.get()

    return once


def one_frame(devices: dict[str, CudaDevice], plan: Plan, chain: str) -> dict[str, list[float]]:
    """Microseconds of each of ``FRAMES`` frames, by strategy, in turn."""
    params = chain_params(parse_chain(chain))
    with ExitStack() as stack:
        ways: dict[str, Callable[[], object]] = {}
        for name, device in devices.items():
            executor = device.make_executor(plan, "spin")
            stack.callback(executor.close)
            source, result = views(device, plan, stack)

            def once(executor: Any = executor, source: ImageView = source, result: ImageView = result) -> None:
                completion: Completion = executor.submit(source, result, params)
                completion.wait()
                completion.gpu_ns()

            ways[name] = once
        ways[WRITTEN] = as_people_write_it(devices["zero_copy"], plan, chain, stack)
        taken: dict[str, list[float]] = {name: [] for name in ways}
        for name, run in ways.items():
            for number in range(FRAMES + WARM_UP):
                began = time.perf_counter_ns()
                run()
                if number >= WARM_UP:
                    taken[name].append((time.perf_counter_ns() - began) / 1e3)
    return taken


def many_cameras(device: CudaDevice, plan: Plan, chain: str) -> float:
    """Frames a second of ``CAMERAS`` executors together."""
    params = chain_params(parse_chain(chain))
    with ExitStack() as stack:
        cameras = []
        for _ in range(CAMERAS):
            executor = device.make_executor(plan, "spin")
            stack.callback(executor.close)
            cameras.append((executor, *views(device, plan, stack)))
        under_way: list[Completion | None] = [None] * CAMERAS
        began = 0.0
        for number in range(CAMERA_FRAMES + 20):
            if number == 20:
                began = time.perf_counter()
            for index, (executor, source, result) in enumerate(cameras):
                if (completion := under_way[index]) is not None:
                    completion.wait()
                    completion.gpu_ns()
                under_way[index] = executor.submit(source, result, params)
        for completion in under_way:
            assert completion is not None
            completion.wait()
        return CAMERAS * CAMERA_FRAMES / (time.perf_counter() - began)


def main() -> None:
    given = arguments(__doc__)
    devices: dict[str, CudaDevice] = {}
    for name in MEMORY_STRATEGIES:
        if name != "host":
            try:
                devices[name] = CudaDevice(memory=name)
            except DeviceUnavailableError as error:
                print(error)
    gpu = CudaGpu(devices["zero_copy"])
    rows, figures, ratios = [], [], {}
    for width, height in SIZES:
        for label, chain in CHAINS.items():
            plan = make_plan(parse_chain(chain), slot_source_spec(ImageSpec.make(BGR8, width, height)))
            p50s: dict[str, list[float]] = {}
            p99s: dict[str, list[float]] = {}
            floors = []
            for turn in range(given.runs):
                print(f"run {turn + 1} of {given.runs}: {width}x{height}, {label}", flush=True)
                floors.append(gpu.exchange(plan.link_bytes_in, plan.link_bytes_out).floor_us)
                for name, taken in one_frame(devices, plan, chain).items():
                    p50s.setdefault(name, []).append(percentile(taken, 50))
                    p99s.setdefault(name, []).append(percentile(taken, 99))
            floor = median(floors)
            p50 = {name: median(values) for name, values in p50s.items()}
            for name, value in p50.items():
                less, than = p50["pageable"] / value, p50[WRITTEN] / value
                case = f"{width}x{height} {label}"
                rows.append([case, name, value, median(p99s[name]), value / floor, less, than])
                figures.append({"case": case, "way": name, "p50_us": value, "floor_us": floor, "runs": p50s[name]})
            best = min(value for name, value in p50.items() if name not in ("auto", "pageable", WRITTEN))
            ratios[width, label] = {
                "floor": p50["staged"] / floor, "auto": p50["auto"] / best,
                **{f"{base}, best": p50[base] / best for base in BASELINES},
                **{f"{base}, zero_copy": p50[base] / p50["zero_copy"] for base in BASELINES},
            }  # fmt: skip
    plan = make_plan(parse_chain(STD4), slot_source_spec(ImageSpec.make(BGR8, *SIZES[0])))
    rate = median([many_cameras(devices["zero_copy"], plan, STD4) for _ in range(given.runs)])
    large = make_plan(parse_chain(""), slot_source_spec(ImageSpec.make(BGR8, 8192, 8192)))
    peak = large.link_bytes_in / median(one_frame({"zero_copy": devices["zero_copy"]}, large, "")["zero_copy"]) / 1e3
    share = rate * plan.link_bytes_in / 1e9 / peak
    bars = (
        *(
            bar
            for base in BASELINES
            for bar in (
                (f"a point op, zero_copy under {base}, 1080p", ratios[1920, "point"][f"{base}, zero_copy"], 5.5, False),
                (f"std4, zero_copy under {base}, 1080p", ratios[1920, "std4"][f"{base}, zero_copy"], 5.0, False),
                (f"std4, the best under {base}, 1080p", ratios[1920, "std4"][f"{base}, best"], 6.0, False),
            )
        ),
        ("a point op, staged over the floor, 1080p", ratios[1920, "point"]["floor"], 1.55, True),
        ("a point op, staged over the floor, 4K", ratios[3840, "point"]["floor"], 1.25, True),
        ("auto over the best, the worst case", max(one["auto"] for one in ratios.values()), 1.05, True),
        ("sixteen cameras, std4, frames/s", rate, 5000.0, False),
    )
    verdict = [
        f"{what}: {value:.2f}, {'at most' if most else 'at least'} {bar:g}: "
        f"{'met' if (value <= bar if most else value >= bar) else 'MISSED'}."
        for what, value, bar, most in bars
    ]
    verdict.append(
        f"Sixteen cameras move {rate * plan.link_bytes_in / 1e9:.1f} GB/s each way: {share:.0%} of what one kernel "
        f"moves both ways at once through mapped memory ({peak:.1f} GB/s, 201 MB each way, in this run)."
    )
    head = ["case", "way", "p50 µs", "p99 µs", "over floor", "pageable over it", f"{WRITTEN} over it"]
    data: dict[str, Any] = {
        "figures": figures, "cameras_fps": rate, "mapped_both_ways_gb_s": peak,
        "ratios": {f"{width} {label}": values for (width, label), values in ratios.items()},
    }  # fmt: skip
    publish("bench_memory", (__doc__ or "").strip(), table(head, rows) + "\n\n" + "\n".join(verdict), data, given.out)


if __name__ == "__main__":
    main()
