"""What does a chain of operations cost, from host memory to host memory, beside the link alone and what people write?

Cases: std4 (gaussian_blur, gamma, gain_offset, sharpen), one point op and std8, BGR at 1080p and 4K; std4 from NV12 to
I420 that stays on the device. Everything in turn within one run, medians over the runs; p99 over 10,000 frames.
Without a GPU: std4 on the CPU beside the same ops by hand.

Budget, on an H200: the bars in ``verdicts``. The floor is both copy engines at once, measured in the same run.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kernels.bench import (
    BY_HAND,
    FUSED,
    ON_CPU,
    CaseFigures,
    Figures,
    Gpu,
    Options,
    measure,
    on_gpu,
    percentile,
    ratio,
    start_times_ms,
    time_frames,
)
from kernels.bench_case import STD4, Case, make_case, missing_ops
from kernels.device import open_device
from kernels.formats import BGR8, I420, NV12
from service.bench import table, to_json, to_markdown, to_svg
from service.bench_cli import gpu_of
from service.environment import LoadMeter, environment
from tests.benchmarks.harness import arguments, publish

HD, UHD = (1920, 1080), (3840, 2160)
RUNS = 3  # the whole of it takes a machine that is lent by the minute
FRAMES, MANY_FRAMES = 100, 10_000
SLOW_S = 0.25


@dataclass(frozen=True, slots=True)
class Verdict:
    """A bar: what was measured, and the most that it may be; ``found`` is None where it could not be judged."""

    what: str
    found: float | None
    most: float
    unit: str = ""

    @property
    def word(self) -> str:
        if self.found is None:
            return "not judged"
        return "met" if self.found <= self.most else "MISSED"


def cases_of(has_gpu: bool) -> list[Case]:
    """Standard chains whose operations are all there."""
    if not has_gpu:
        return [make_case("std4", BGR8, *HD), make_case("point", BGR8, *HD)]
    names = ["std4", "point", *(["std8"] if not missing_ops("std8") else [])]
    cases = [make_case(name, BGR8, *size) for size in (HD, UHD) for name in names]
    return [*cases, make_case("std4", NV12, *HD, I420, on_device=True)]


def eight_ops() -> Case:
    """The chain whose start is judged: std8, or eight ops until all of its are there."""
    return make_case("std8" if not missing_ops("std8") else f"{STD4} | {STD4}", BGR8, *HD)


def verdicts(
    figures: Figures, steadiness: float | None, starts: Sequence[tuple[float, float]], has_gpu: bool
) -> Iterable[Verdict]:
    """Every bar. ``steadiness`` is p99 over p50 of many frames, ``starts`` cold and warm milliseconds."""
    found = {one.case.text: one for one in figures.cases}

    def of(name: str, size: tuple[int, int]) -> CaseFigures | None:
        return found.get(f"{name}, {size[0]}x{size[1]} BGR8")

    hand = of("std4", HD)
    yield Verdict(
        "std4 1080p on the CPU, times by hand", None if hand is None else _over(hand, ON_CPU, BY_HAND), 1.1, "x"
    )
    if not has_gpu:
        return
    for size, most, kernels_us, floors in ((HD, 205, 45, 1.55), (UHD, 745, 120, 1.25)):
        label = "1080p" if size is HD else "4K"
        std4, point, std8 = of("std4", size), of("point", size), of("std8", size)
        yield Verdict(f"std4 {label} p50", _p50(std4), most, " µs")
        yield Verdict(f"std4 {label}, kernels alone", _median(std4.kernels_us if std4 else ()), kernels_us, " µs")
        yield Verdict(f"one point op {label}, times the floor", _over_floor(point), floors, "x")
        yield Verdict(f"std8 {label}, times std4", _between(std8, std4), 1.2, "x")
    on_device = next((one for one in figures.cases if one.case.on_device), None)
    yield Verdict("NV12 1080p → std4 → I420 on the device, p50", _p50(on_device), 140, " µs")
    yield Verdict(f"std4 1080p, p99 over p50 of {MANY_FRAMES} frames", steadiness, 1.3, "x")
    yield Verdict("8 ops, cold start, slowest", max((cold for cold, _ in starts), default=None), 1500, " ms")
    yield Verdict("8 ops, warm start, slowest", max((warm for _, warm in starts), default=None), 100, " ms")


def _median(values: Sequence[float]) -> float | None:
    return statistics.median(values) if values else None


def _p50s(one: CaseFigures | None, way: str = FUSED) -> list[float]:
    return one.ways[way].p50_us if one is not None and way in one.ways else []


def _p50(one: CaseFigures | None) -> float | None:
    return _median(_p50s(one))


def _over(one: CaseFigures, way: str, other: str) -> float | None:
    these, those = _p50s(one, way), _p50s(one, other)
    return ratio(these, those) if these and those else None


def _over_floor(one: CaseFigures | None) -> float | None:
    return ratio(_p50s(one), one.floor_us) if one is not None and _p50s(one) and one.floor_us else None


def _between(one: CaseFigures | None, other: CaseFigures | None) -> float | None:
    return ratio(_p50s(one), _p50s(other)) if _p50s(one) and _p50s(other) else None


def many_frames(gpu: Gpu) -> float:
    """p99 over p50 of ``MANY_FRAMES`` frames of std4 at 1080p."""
    ready = on_gpu(gpu, make_case("std4", BGR8, *HD))
    try:
        taken = time_frames(ready, MANY_FRAMES)
    finally:
        ready.close()
    return percentile(taken, 99) / percentile(taken, 50)


def judged(found: Iterable[Verdict]) -> str:
    """The bars as a table."""
    rows = [
        [one.what, "" if one.found is None else f"{one.found:.3g}{one.unit}", f"{one.most:g}{one.unit}", one.word]
        for one in found
    ]
    return table(["bar", "found", "at most", "verdict"], rows)


def main() -> None:
    given = arguments(__doc__)
    runs = min(given.runs, RUNS)
    device, reason = open_device()
    gpu = gpu_of(device)
    print(reason, flush=True)
    load = LoadMeter()
    starts: list[tuple[float, float]] = []
    steadiness = None
    if gpu is not None:
        # Before anything else is compiled, so that the first has the compiler's own loading in it.
        starts = [start_times_ms(gpu, eight_ops()) for _ in range(runs)]
        print(f"starts of 8 ops, cold and warm, ms: {starts}", flush=True)
    options = Options(FRAMES, runs, kernels=gpu is not None, starts=False, slow_s=SLOW_S)
    figures = measure(cases_of(gpu is not None), gpu, options, lambda text: print(text, flush=True))
    if gpu is not None:
        steadiness = many_frames(gpu)
    busy = load.stop()
    report = to_json(figures, environment(), busy)
    found = list(verdicts(figures, steadiness, starts, gpu is not None))
    report["bars"] = [{"what": one.what, "found": one.found, "most": one.most, "verdict": one.word} for one in found]
    report["starts_ms"] = starts
    del report["environment"]  # publish writes it
    given.out.mkdir(parents=True, exist_ok=True)
    (given.out / "bench_chain.svg").write_text(to_svg(figures), encoding="utf-8")
    publish(
        "bench_chain", __doc__ or "", f"{judged(found)}\n\n{to_markdown(figures)}\n\nLoad: {busy}.", report, given.out
    )
    device.close()


if __name__ == "__main__":
    main()
