"""What does each operation cost on the CPU beside the same operation written with OpenCV by hand?

Cases: every op of the catalogue, those that resample in each interpolation, at 1080p grey and colour, and colour
results with planes; with one thread and with all of OpenCV's. Ours and OpenCV's take turns frame by frame;
p50, median of the runs. Where OpenCV's is another method (``ops_by_hand.DIFFERS``) the ratio is shown and not judged.

Budget: 1.1 times OpenCV's time.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

import cv2
import numpy as np

from kernels.bench_case import Case, make_case
from kernels.formats import BGR8, GRAY8, I420, NV12, PixelFormat
from kernels.image import ImageView
from kernels.registry import all_ops
from kernels.run_cpu import CpuExecutor
from service.environment import LoadMeter
from tests.benchmarks.harness import arguments, publish, table
from tests.benchmarks.ops_by_hand import DIFFERS, by_hand

WIDTH, HEIGHT = 1920, 1080
MOST = 1.1
FRAMES = 16
RUNS = 3
# What is measured of an op whose neutral parameters are no case of use; every other op as it comes.
SHAPES = {
    "color_matrix": ["color_matrix(matrix=[0.9,0.1,0,0,1,0,0,0.2,0.8])"],
    "crop": ["crop(x=100, y=50, width=1280, height=720)"],
    "gain_offset": ["gain_offset(gain=1.1, offset=5)"],
    "gamma": ["gamma(gamma=1.2)"],
    "hue": ["hue(degrees=20)"],
    "letterbox": [
        f"letterbox(width=640, height=640, interpolation='{how}')" for how in ("nearest", "linear", "area", "cubic")
    ],
    "levels": ["levels(black=16, white=235)"],
    "privacy_mask": ["privacy_mask", "privacy_mask(rectangles=[], polygons=[[[0.2,0.1],[0.8,0.3],[0.5,0.9]]])"],
    "resize": [
        f"resize(width={width}, height={height}, interpolation='{how}')"
        for how in ("nearest", "linear", "area", "cubic")
        for width, height in ((1280, 720), (960, 540))
    ],
    "rotate_angle": ["rotate_angle(degrees=10)"],
    "saturation": ["saturation(factor=1.3)"],
    "warp_affine": ["warp_affine(matrix=[0.9, 0.1, 3, -0.1, 1.1, 5])"],
    "warp_perspective": ["warp_perspective(matrix=[0.9, 0.1, 3, -0.1, 1.1, 5, 0.00002, 0.00001, 1])"],
    "white_balance": ["white_balance(red=1.2, blue=1.1)"],
}
Frame = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Figure:
    """One case with so many threads; times in µs, None where OpenCV has nothing for it."""

    case: str
    format: str
    threads: int
    ours_us: float
    opencv_us: float | None

    @property
    def ratio(self) -> float | None:
        return self.ours_us / self.opencv_us if self.opencv_us else None

    @property
    def is_judged(self) -> bool:
        return self.opencv_us is not None and self.case.partition("(")[0] not in DIFFERS


def pair(case: Case) -> tuple[Frame, Frame | None]:
    """A frame of ours and one by hand, over one random picture and results of their own."""
    plan = case.plan
    picture = np.random.default_rng(4).integers(0, 256, (HEIGHT, WIDTH, plan.source.format.channels), np.uint8)
    # Smooth as pictures are: branches that follow the values would otherwise miss at every one.
    picture = cv2.GaussianBlur(picture, (0, 0), 4).reshape(picture.shape)
    cv2.normalize(picture, picture, 0, 255, cv2.NORM_MINMAX)
    source, result, other = (
        ImageView(spec, np.zeros(spec.nbytes, np.uint8)) for spec in (plan.source, plan.result, plan.result)
    )
    np.copyto(source.plane(0), picture.reshape(source.plane(0).shape))
    executor = CpuExecutor(plan)
    params = tuple(step.params for step in case.chain.steps)

    def ours() -> object:
        return executor.submit(source, result, params)

    if plan.converts:
        return ours, _planes_by_hand(source, other)
    (step,) = case.chain.steps
    return ours, by_hand(step.op.name, step.params, source.plane(0), other.plane(0))


def _planes_by_hand(source: ImageView, result: ImageView) -> Frame:
    i420 = np.empty((HEIGHT * 3 // 2, WIDTH), np.uint8)
    if result.spec.format is I420:
        return lambda: cv2.cvtColor(source.plane(0), cv2.COLOR_BGR2YUV_I420, dst=i420)
    chroma = i420[HEIGHT:].reshape(2, HEIGHT // 2, WIDTH // 2)

    def frame() -> None:
        cv2.cvtColor(source.plane(0), cv2.COLOR_BGR2YUV_I420, dst=i420)
        np.copyto(result.plane(0), i420[:HEIGHT])
        cv2.merge((chroma[0], chroma[1]), dst=result.plane(1))

    return frame


def cases() -> list[Case]:
    texts = [text for name in all_ops() for text in SHAPES.get(name, [name])]
    made = [make_case(text, format, WIDTH, HEIGHT) for text in texts for format in (GRAY8, BGR8)]
    return [*made, *(make_case("", BGR8, WIDTH, HEIGHT, target) for target in (I420, NV12))]


def measure(case: Case, threads: int, frames: int = FRAMES) -> Figure:
    """Both in turn, frame by frame."""
    cv2.setNumThreads(threads)
    ours, hand = pair(case)
    ways = [way for way in (ours, hand) if way is not None]
    taken: list[list[float]] = [[] for _ in ways]
    for i in range(frames + 3):
        # Each goes first as often: the second finds the source in the cache.
        for way, times in list(zip(ways, taken, strict=True))[:: 1 - 2 * (i % 2)]:
            start = time.perf_counter_ns()
            way()
            if i >= 3:  # the first make their buffers
                times.append((time.perf_counter_ns() - start) / 1000)
    p50 = [statistics.median(times) for times in taken]
    return Figure(_name(case), str(case.plan.source.format), threads, p50[0], p50[1] if hand else None)


def _name(case: Case) -> str:
    target: PixelFormat = case.plan.result.format
    return f"to {target}" if case.plan.converts else case.name


def middle(runs: list[Figure]) -> Figure:
    """The run whose ratio is the median."""
    return sorted(runs, key=lambda one: one.ratio or one.ours_us)[len(runs) // 2]


def shown(figures: list[Figure]) -> str:
    rows = []
    for one in figures:
        ratio = "" if one.ratio is None else f"{one.ratio:.2f}"
        word = "not judged" if one.ratio is None or not one.is_judged else "met" if one.ratio <= MOST else "MISSED"
        hand = "" if one.opencv_us is None else f"{one.opencv_us:.0f}"
        rows.append([one.case, one.format, str(one.threads), f"{one.ours_us:.0f}", hand, ratio, word])
    return table(["op", "picture", "threads", "ours µs", "OpenCV µs", "ratio", "at most 1.1"], rows)


def to_svg(figures: list[Figure]) -> str:
    """A bar for each case with one thread: the ratio, on a logarithmic axis from 1/4 to 32, and a line at the bar."""
    chosen = [one for one in figures if one.threads == 1 and one.ratio is not None]
    line, left, scale = 15, 420, 60.0

    def x(ratio: float) -> float:
        return left + scale * (math.log2(min(max(ratio, 0.25), 32.0)) + 2)

    height = line * (len(chosen) + 2)
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="880" height="{height}" font-family="sans-serif">']
    parts.append('<rect width="100%" height="100%" fill="#fff"/>')
    for at, one in enumerate(chosen, start=1):
        assert one.ratio is not None
        color = "#999" if not one.is_judged else "#2a7" if one.ratio <= MOST else "#c43"
        width, y = max(x(one.ratio) - x(0.25), 1), at * line
        label = f"{one.case} {one.format}"
        parts.append(f'<text x="{left - 6}" y="{y + 10}" font-size="10" text-anchor="end">{label[:78]}</text>')
        parts.append(f'<rect x="{x(0.25)}" y="{y}" width="{width:.1f}" height="{line - 3}" fill="{color}"/>')
        parts.append(f'<text x="{x(one.ratio) + 4:.1f}" y="{y + 10}" font-size="10">{one.ratio:.2f}</text>')
    bar = x(MOST)
    parts.append(f'<path d="M{bar:.1f} 0V{height}" stroke="#000" stroke-dasharray="3 3"/></svg>')
    return "\n".join(parts) + "\n"


def main() -> None:
    given = arguments(__doc__)
    runs, load = min(given.runs, RUNS), LoadMeter()
    every, before = cases(), cv2.getNumThreads()
    found: list[list[Figure]] = [[] for _ in range(2 * len(every))]
    for _ in range(runs):
        for i, case in enumerate(every):
            for k, threads in enumerate((1, before)):
                found[2 * i + k].append(measure(case, threads))
    cv2.setNumThreads(before)
    figures = [middle(runs_of) for runs_of in found]
    missed = [one for one in figures if one.is_judged and one.ratio is not None and one.ratio > MOST]
    judged = sum(one.is_judged for one in figures)
    remark = f"{judged - len(missed)} of {judged} judged figures are at most {MOST}.\n\nLoad: {load.stop()}."
    data = {"figures": [_with_ratio(one) for one in figures], "runs": [[asdict(one) for one in r] for r in found]}
    given.out.mkdir(parents=True, exist_ok=True)
    (given.out / "bench_cpu_ops.svg").write_text(to_svg(figures), encoding="utf-8")
    publish("bench_cpu_ops", __doc__ or "", f"{shown(figures)}\n\n{remark}", data, given.out)


def _with_ratio(one: Figure) -> dict[str, object]:
    return {**asdict(one), "ratio": one.ratio}


if __name__ == "__main__":
    main()
