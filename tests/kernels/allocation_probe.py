"""Run with ``large_allocations.so`` preloaded: prints, as JSON, how many large allocations each piece of work made.

Large is half a grey frame; an executor, warm, should make none, the controls at least one each.
"""

from __future__ import annotations

import ctypes
import gc
import json
import mmap
import sys
from collections.abc import Callable

import cv2
import numpy as np

from kernels.chain import parse_chain
from kernels.color_cpu import to_working
from kernels.device import HostDevice
from kernels.formats import FORMATS
from kernels.image import VALUE_TYPES, ImageSpec, ImageView
from kernels.op import Scratch
from kernels.plan import chain_params, make_plan, result_nbytes, slot_source_spec
from tests.kernels.cases import random_source

WIDTH, HEIGHT = 2560, 1440  # half of it is more than an arena of Python's own allocator
LARGE_BYTES = WIDTH * HEIGHT // 2
FRAMES = 4
EDGES = "edges"  # what OpenCV alone does, in memory of its own

# Parameters change from frame to frame, as under a moving slider.
CHAINS = {
    "": [""] * FRAMES,
    "sobel": ["sobel"] * FRAMES,
    "gaussian_blur": [f"gaussian_blur(ksize={ksize}, sigma={ksize / 4})" for ksize in (31, 1, 9, 15)],
    "all four": [
        f"gaussian_blur(ksize={5 + 2 * i}) | gamma(gamma={1 + i}) | gain_offset(gain=1.1, offset={i}) | sobel"
        for i in range(FRAMES)
    ],
    "points": [f"invert | threshold(threshold={50 + i}) | grayscale | invert" for i in range(FRAMES)],
    "colours": [
        f"levels(black={i}) | white_balance(red=1.{i}) | saturation(factor={i}) | hue(degrees={i})"
        f" | color_matrix(offsets=[{i}, 0, 0]) | overlay_grid(spacing={60 + i}) | colormap(map='{name}')"
        for i, name in enumerate(("jet", "turbo", "bone", "hot"))
    ],
    "masks": [
        f"privacy_mask(mode='{mode}', block={block}, polygons=[[[0, 0], [0.{i}, 0.9], [1, 0.2]]])"
        for i, (mode, block) in enumerate((("pixelate", 4), ("fill", 16), ("pixelate", 512), ("pixelate", 37)))
    ],
    "sharpen": ["sharpen"] * FRAMES,
    "gradients": [f"scharr | laplacian(ksize={ksize})" for ksize in (1, 3, 3, 1)],
    "morphology": [
        f"erode(ksize={2 * ksize + 1}) | dilate(ksize={ksize}) | open(ksize={ksize}) | close(ksize={ksize})"
        for ksize in (15, 3, 1, 9)
    ],
    "bilateral": [f"bilateral(ksize={ksize})" for ksize in (3, 9, 5, 7)],
    "means": [
        f"box_blur(ksize={ksize}) | unsharp_mask(ksize={ksize}, threshold={ksize % 4})"
        f" | adaptive_threshold(method='{method}', ksize={ksize}, max_value={254 + ksize % 2})"
        for ksize, method in ((3, "mean"), (31, "gaussian"), (13, "mean"), (5, "gaussian"))
    ],
    "windows": [
        f"median(ksize={ksize}) | filter2d(weights={[[i] * side] * side}, normalize=True)"
        for i, (ksize, side) in enumerate(((3, 3), (5, 15), (5, 11), (3, 1)))
    ],
    "flip": [f"flip(direction='{direction}')" for direction in ("horizontal", "vertical", "both", "both")],
    "resize": [
        f"resize(width=1920, interpolation='{how}') | sharpen | resize(width=2566, interpolation='{how}')"
        for how in ("nearest", "linear", "area", "cubic")
    ],
    "crop and rotate": [
        f"crop(x={x}, y=8, width=2540, height=1400) | rotate(degrees={degrees}) | rotate(degrees={180 * (x % 2)})"
        for x, degrees in ((0, 90), (8, 270), (9, 270), (3, 90))
    ],
    "letterbox": [
        f"letterbox(width=2048, height=2048, fill='#0000{how}', interpolation='{name}')"
        for how, name in ((10, "nearest"), (20, "linear"), (30, "linear"), (40, "linear"))
    ],
    # Other parameters for each frame: the maps are made again where they lie.
    "warps": [
        f"warp_affine(matrix=[0.9, {i / 10}, 3, -0.2, 1.1, 5], width=1280, height=720) | rotate_angle(degrees={i})"
        for i in range(FRAMES)
    ],
    "perspective and lens": [
        f"warp_perspective(corners=[{i}, 0, 2000, 9, 2100, 1400, 5, 999], width=1280, height=720) | undistort(zoom={i})"
        for i in range(1, 5)
    ],
    EDGES: [f"canny(low={40 + i}, high={200 - i})" for i in range(FRAMES)],
    "regions": [
        f"clahe(clip_limit={i}, tiles_x={2 * i}, tiles_y={tiles}, statistic='{how}')"
        for i, (tiles, how) in enumerate((
            (2, "frame"), (8, "previous"), (8, "previous"), (16, "frame")), start=1)
    ],
    "what is remembered": [
        f"temporal_denoise(threshold={20 + i}) | motion_heatmap(gain=1{i})"
        f" | background_subtraction(learning_rate=0.{i}) | frame_difference(gain={i})"
        for i in (0, 1, 2, 0)
    ],
    "texts": [
        f"overlay_text(scale={scale}, position='{position}', text='{{camera}} {{time}} #{{sequence}} {'x' * 80}')"
        for scale, position in ((2, "top_left"), (8, "bottom_right"), (1, "xy"), (3, "top_right"))
    ],
    "statistics": [
        f"equalize_histogram(channels='{channels}') | auto_contrast(dark={i}, channels='{channels}')"
        f" | auto_white_balance(max_gain={1 + i}) | otsu_threshold(max_value={200 + i})"
        for i, channels in enumerate(("together", "each", "each", "together"))
    ],
    "resize with weights of our own": ["resize(width=2048, height=2049)"] * FRAMES,
}  # fmt: skip


# Ops see one channel or three, however it came: all chains for one format of each, the conversions for all formats.
OP_FORMATS = ("BGR8", "GRAY8")


def chains_of(format: str) -> dict[str, list[str]]:
    """The chains to run on a format, by name."""
    if format == "GRAY16":
        return {name: texts[-2:] for name, texts in CHAINS.items() if takes_16_bit(texts)}
    return CHAINS if format in OP_FORMATS else {name: CHAINS[name] for name in ("", "all four")}


def alignments_of(format: str) -> tuple[int, ...]:
    """Of the source's rows; what takes 16 bits is slow, and shown once."""
    return (1, 13) if FORMATS[format].depth == 8 else (13,)


def takes_16_bit(texts: list[str]) -> bool:
    """True if all ops of a chain do."""
    return all(step.op.takes_16_bit for step in parse_chain(texts[0]).steps)


def counted(work: Callable[[], object]) -> int:
    library = ctypes.CDLL(None)
    library.large_allocations_stop.restype = ctypes.c_size_t
    library.large_allocations_start(ctypes.c_size_t(LARGE_BYTES))
    work()
    return int(library.large_allocations_stop())


def executor_work(format: str, texts: list[str], row_alignment: int) -> Callable[[], None]:
    packed = ImageSpec.make(FORMATS[format], WIDTH, HEIGHT, row_alignment=row_alignment)
    source = random_source(slot_source_spec(packed) if row_alignment == 1 else packed)
    chains = [parse_chain(text) for text in texts]
    plan = make_plan(chains[0], source.spec)
    result = ImageView(plan.result, np.empty(result_nbytes(plan), np.uint8))
    executor = HostDevice().make_executor(plan)

    def frames() -> None:
        for chain in chains:
            executor.submit(source, result, chain_params(chain)).wait()

    return frames


def conversion_work(format: str) -> Callable[[], None]:
    source = random_source(ImageSpec.make(FORMATS[format], WIDTH, HEIGHT))
    shape = (HEIGHT, WIDTH, 3)[: 2 if FORMATS[format].channels == 1 else 3]
    out = np.empty(shape, VALUE_TYPES[FORMATS[format].depth])
    scratch = Scratch()
    return lambda: to_working(source, out, scratch)


def controls() -> dict[str, Callable[[], object]]:
    frame = np.zeros((HEIGHT, WIDTH, 3), np.uint8)
    mirrored, out = frame[:, ::-1], np.empty_like(frame)
    return {
        "cv2.GaussianBlur without dst": lambda: cv2.GaussianBlur(frame, (5, 5), 0),
        "cv2 given pixels that it must copy": lambda: cv2.GaussianBlur(mirrored, (5, 5), 0, dst=out),
        "cv2.split, a third of a frame each": lambda: cv2.split(frame),
        "numpy.empty": lambda: np.empty(frame.shape, np.uint8),
        "numpy.zeros": lambda: np.zeros(frame.shape, np.uint8),
        "ndarray.copy": frame.copy,
        "bytes": frame.tobytes,
        "mmap": lambda: mmap.mmap(-1, frame.nbytes).close(),
    }


def main() -> None:
    gc.disable()
    counts: dict[str, int] = {}
    for format in FORMATS:
        for name, texts in chains_of(format).items():
            for row_alignment in alignments_of(format):
                work = executor_work(format, texts, row_alignment)
                work()
                counts[f"executor {format} {name or 'empty'} aligned {row_alignment}"] = counted(work)
        work = conversion_work(format)
        work()
        counts[f"conversion {format}"] = counted(work)
    counts |= {f"control {name}": counted(work) for name, work in controls().items()}
    json.dump(counts, sys.stdout)


if __name__ == "__main__":
    main()
