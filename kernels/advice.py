"""Which memory strategy to use here, from a few seconds of measuring.

Run as ``python -m kernels.advice gpu|host`` by :mod:`kernels.probe`, in a process of its own; prints one JSON object.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from kernels.bench_case import make_case
from kernels.bench_frame import BASELINE, FrameFigures, FrameOptions, Open, measure_frames
from kernels.device import MEMORY_STRATEGIES, CudaDevice, open_device
from kernels.errors import PinholeError
from kernels.formats import BGR8
from kernels.probe import Answer
from kernels.proof import end_with
from kernels.transfer import Figures, Machine, Options, measure
from kernels.transfer_host import HostMachine
from kernels.transfer_plan import DIRECTIONS, Way

BUDGET_S = 5.0  # of measuring, after which nothing new is begun
CHAIN, WIDTH, HEIGHT = "std4", 1920, 1080
TRANSFER_BYTES = 10_000_000
# What is compared, with what is listed first where two are as good; `auto` measures for itself.
CANDIDATES = tuple(name for name in MEMORY_STRATEGIES if name != "auto")
MAX_PINNED_BYTES = 64 << 20


def advise(
    machines: Sequence[Machine],
    candidates: Sequence[str],
    open: Open = open_device,
    clock: Callable[[], float] = time.monotonic,
) -> Answer:
    """Measure for at most about ``BUDGET_S`` and say what is best; ``facts`` are the figures, as plain data.

    ``absent`` is the answer where nothing could be measured.
    """
    began = clock()

    def late() -> bool:
        return clock() - began > BUDGET_S

    case = make_case(CHAIN, BGR8, WIDTH, HEIGHT)
    frames = measure_frames([case], candidates, FrameOptions(30, 2, 0.1, opencv=False), stop=late, open=open)
    transfers = measure(machines, [TRANSFER_BYTES], Options(10, 0.05, peak=False), stop=late, wanted=_tells)
    (one,) = frames.cases
    best = one.best()
    if best is None:
        return Answer("absent", f"nothing could be measured: {frames.failure or '; '.join(frames.absent.values())}")
    return Answer("ok", _reason(frames, best), facts=_facts(frames, transfers, best, clock() - began))


def _tells(way: Way) -> bool:
    return way.is_baseline or (way.memory == "pinned" and (way.how == "kernel" or way.streams == 1))


def _facts(frames: FrameFigures, transfers: Figures, best: str, seconds: float) -> dict[str, Any]:
    (one,) = frames.cases
    return {
        "memory": best,
        "frame": {
            "chain": CHAIN,
            "source": one.case.source_text,
            "p50_us": {way: round(p50, 1) for way in one.ways if (p50 := one.p50_us(way)) is not None},
            "saved_over_pageable_percent": one.saved_percent(best, BASELINE),
        },
        "transfer": {
            "bytes": TRANSFER_BYTES,
            "gb_s": {f"{DIRECTIONS[r.way.direction]}, {r.way.name}": round(r.gb_s, 2) for r in transfers.results},
        },
        "absent": frames.absent,
        "measured_s": round(seconds, 2),
    }


def _reason(frames: FrameFigures, best: str) -> str:
    """Why it is the best, with figures."""
    (one,) = frames.cases
    times = {way: p50 for way in one.ways if (p50 := one.p50_us(way)) is not None}
    what = f"a {one.case.source_text} frame through {CHAIN} takes {times[best]:.0f} µs"
    if list(times) == ["host"]:
        return f"it is what there is: {what}"
    saved = one.saved_percent(best, BASELINE)
    over = f", {saved:.0f} % less than by pageable copies" if saved is not None and saved > 0 else ""
    others = ", ".join(f"{way} {p50:.0f}" for way, p50 in times.items() if way != best)
    return f"{what}{over}; {others}"


def answer(kind: str) -> Answer:
    """Measure in this process; what it raises becomes the answer."""
    machines: list[Machine] = [HostMachine()]
    try:
        if kind != "gpu":
            return advise(machines, ("host",))
        from kernels.transfer_cuda import CudaMachine

        machines.insert(0, CudaMachine(CudaDevice(), MAX_PINNED_BYTES, "the doctor's"))
        return advise(machines, CANDIDATES)
    except PinholeError as error:
        return Answer("failed", str(error))
    except Exception as error:  # the border of a process: CuPy, NVRTC and drivers raise what they like
        return Answer("failed", f"{type(error).__name__}: {error}"[:300])


if __name__ == "__main__":
    end_with(answer(sys.argv[1]))
