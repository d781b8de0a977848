"""Shared cases for every executor: sizes, layouts, poisoned buffers, and checks that take any device.

A check takes a device, so ``tests/gpu`` runs the same ones on CUDA as ``tests/kernels`` runs on the CPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

import numpy as np

from kernels.chain import Chain, parse_chain
from kernels.device import Device
from kernels.formats import BGR8, FORMATS, I420, NV12, RGB8, UYVY, YUYV, Matrix, PixelFormat, Range
from kernels.image import ImageSpec, ImageView, Pixels, Stamp
from kernels.op import of_previous
from kernels.plan import chain_params, make_plan, result_nbytes
from tests.kernels.oracles import ChainOracle, assert_agrees
from tests.kernels.oracles_depth import level, most
from tests.kernels.oracles_temporal import TEMPORAL_ORACLES

POISON = 0xAA  # fills padding of sources
STALE = 0x55  # fills results before they are written, and the guard behind them
GUARD_BYTES = 512

FORMATS_8 = tuple(format for format in FORMATS.values() if format.depth == 8)

Paint = Callable[[ImageView], None]


@dataclass(frozen=True, slots=True)
class SourceCase:
    """A format, size and layout. ``offset`` bytes lie before the first plane and between the planes.

    Of 16 bits twice as many, and rows are aligned to twice as many, as values lie at even addresses.
    """

    format: PixelFormat
    width: int
    height: int
    row_alignment: int = 1
    offset: int = 0

    def spec(self, matrix: Matrix | None = None, value_range: Range = Range.LIMITED) -> ImageSpec:
        alignment, offset = (n * self.format.value_bytes for n in (self.row_alignment, self.offset))
        spec = ImageSpec.make(
            self.format, self.width, self.height, row_alignment=alignment, matrix=matrix, range=value_range
        )
        return replace(spec, offsets=tuple(o + offset * (i + 1) for i, o in enumerate(spec.offsets)))

    def __str__(self) -> str:
        return f"{self.format}-{self.width}x{self.height}-align{self.row_alignment}-offset{self.offset}"


TINY_SIZES = ((1, 1), (1, 2), (2, 1), (2, 2), (3, 1), (1, 64), (64, 1), (3, 3), (5, 5))
SIZES = (*TINY_SIZES, (17, 9), (62, 50), (97, 131), (424, 240), (641, 479))

# Packed; whole lines; GStreamer's rows of 4; odd strides at odd addresses; packed at an odd address.
LAYOUTS = ((1, 0), (128, 0), (4, 0), (13, 3), (1, 1))

CHAINS = (
    "",
    "gamma(gamma=2.2)",
    "gain_offset(gain=1.7, offset=-40.5)",
    "gaussian_blur(ksize=5)",
    "gaussian_blur(ksize=31, sigma=7.5)",
    "sobel",
    "gaussian_blur(ksize=5) | gamma(gamma=1.2) | gain_offset(gain=1.1, offset=5) | sobel",
    "sharpen | invert | threshold(threshold=100, max_value=200)",
    "sobel | grayscale | gaussian_blur(ksize=9) | sharpen | threshold(threshold=90, inverted=True)",
    "flip(direction='vertical') | flip(direction='horizontal')",
    "resize(width=50)",
    "resize(height=77, interpolation='nearest')",
    "resize(width=33, height=21, interpolation='area')",
    "sobel | resize(width=200, height=3) | gaussian_blur(ksize=5) | resize(width=7, height=90, interpolation='area') "
    "| grayscale | sharpen | flip | resize(width=131, interpolation='nearest')",
)


def source_cases(
    formats: tuple[PixelFormat, ...] = tuple(FORMATS.values()),
    sizes: tuple[tuple[int, int], ...] = SIZES,
    layouts: tuple[tuple[int, int], ...] = LAYOUTS,
) -> Iterator[SourceCase]:
    """Every format, size and layout; quick enough to run them all through one chain."""
    for format in formats:
        for width, height in sizes:
            for row_alignment, offset in layouts:
                yield SourceCase(format, width, height, row_alignment, offset)


def paint_random(seed: int) -> Paint:
    """Seeded noise with many 0s and greatest values, so that saturation and borders show."""

    def paint(view: ImageView) -> None:
        random = np.random.default_rng(seed)
        for plane in view.planes:
            noise = random.integers(0, most(plane) + 1, plane.shape, plane.dtype)
            extreme = random.integers(0, 8, plane.shape, np.uint8)
            plane[...] = np.where(extreme == 0, 0, np.where(extreme == 1, most(plane), noise))

    return paint


def paint_scene(seed: int, number: int) -> Paint:
    """Frame ``number`` of a scene: the noise of ``paint_random``, a little other noise on it, and a part that moves."""

    def paint(view: ImageView) -> None:
        paint_random(seed)(view)
        random = np.random.default_rng((seed, number))
        for plane in view.planes:
            jitter = random.integers(-4, 5, plane.shape) * level(plane)
            plane[...] = np.clip(plane + jitter, 0, most(plane))
            first, size = number * 5 % len(plane), len(plane) // 4 + 1
            moving = plane[first : first + size, number % 3 :: 2]
            moving[...] = random.integers(0, most(plane) + 1, moving.shape, plane.dtype)

    return paint


def paint_constant(*codes: int) -> Paint:
    """One colour of 8 bits: (Y, U, V) for a YUV format, (B, G, R), for RGB8 too, or (grey,) otherwise."""

    def paint(view: ImageView) -> None:
        for plane, value in zip(view.planes, group_codes(view.spec.format, codes), strict=True):
            plane[...] = value.astype(np.int64) * level(plane)

    return paint


def group_codes(format: PixelFormat, codes: tuple[int, ...]) -> list[Pixels]:
    """The bytes of one group of each plane for a picture of one colour."""
    if format is NV12:
        groups = [codes[:1], codes[1:]]
    elif format is I420:
        groups = [(code,) for code in codes]
    elif format is YUYV:
        groups = [(codes[0], codes[1], codes[0], codes[2])]
    elif format is UYVY:
        groups = [(codes[1], codes[0], codes[2], codes[0])]
    elif format is RGB8:
        groups = [codes[::-1]]
    else:
        groups = [codes]
    return [np.array(group, np.uint8) for group in groups]


def paint_bars(view: ImageView) -> None:
    """Of 8 bits: vertical black and white bars, 8 px wide, grey chroma: skewed rows or a shifted plane show at once."""
    spec = view.spec
    bars = np.where(np.arange(spec.width + 1) // 8 % 2 == 0, 16, 235).astype(np.uint8)
    if spec.format in (YUYV, UYVY):
        groups, luma = view.plane(0), 0 if spec.format is YUYV else 1
        groups[:, :, luma], groups[:, :, luma + 2] = bars[: spec.width : 2], bars[1::2][: groups.shape[1]]
        groups[:, :, 1 - luma :: 2] = 128
        return
    first, *chroma = view.planes
    first[...] = bars[: spec.width, None] if spec.format in (BGR8, RGB8) else bars[: spec.width]
    for plane in chroma:
        plane[...] = 128


def make_source(spec: ImageSpec, buffer: Pixels, paint: Paint, dev_ptr: int | None = None) -> ImageView:
    """A view over ``buffer`` whose picture is painted and whose every other byte is ``POISON``."""
    buffer[:] = POISON
    view = ImageView(spec, buffer, dev_ptr)
    paint(view)
    return view


def random_source(spec: ImageSpec, seed: int = 0) -> ImageView:
    """A painted source in memory of its own."""
    return make_source(spec, np.empty(spec.nbytes, np.uint8), paint_random(seed))


def stamp_of(number: int) -> Stamp:
    """What is known of frame ``number`` of a sequence: a name that is not all ASCII, and another second each."""
    return Stamp("Tür {2}", 41 + 1000 * number, 1_764_547_199_987_654_321 + 1_000_999_999 * number)


def run_sequence(
    device: Device, spec: ImageSpec, frames: Sequence[tuple[Chain, Paint]]
) -> list[tuple[ImageView, Pixels]]:
    """Process frames on one executor, each with its parameters; private copies of each source and (H, W[, 3]) result.

    Asserts what holds for every executor: the source is not written, nothing is written behind the result.
    """
    plan = make_plan(frames[0][0], spec)
    result_bytes = result_nbytes(plan)
    made = []
    with ExitStack() as stack:
        source_memory = device.allocate_slot(spec.nbytes)
        stack.callback(source_memory.close)
        result_memory = device.allocate_slot(result_bytes + GUARD_BYTES)
        stack.callback(result_memory.close)
        result = ImageView(plan.result, result_memory.array, result_memory.dev_ptr)
        executor = device.make_executor(plan)
        stack.callback(executor.close)
        for number, (chain, paint) in enumerate(frames):
            assert plan.accepts(chain.steps)
            source = make_source(spec, source_memory.array[: spec.nbytes], paint, source_memory.dev_ptr)
            before = source.buffer.copy()
            result_memory.array[:] = STALE
            executor.submit(source, result, chain_params(chain), stamp_of(number)).wait()
            np.testing.assert_array_equal(source.buffer, before, "the source was written")
            guard = result_memory.array[result_bytes:]
            np.testing.assert_array_equal(guard, np.full_like(guard, STALE), "written behind the result")
            made.append((ImageView(spec, before), result.plane(0).copy()))
    return made


def run_on(device: Device, spec: ImageSpec, chain: Chain, paint: Paint) -> tuple[ImageView, Pixels]:
    """One frame of ``run_sequence``."""
    return run_sequence(device, spec, [(chain, paint)])[0]


def check_exact(
    device: Device, spec: ImageSpec, chain: Chain | str, paint: Paint | None = None, frames: int = 1
) -> Pixels:
    """Assert that a device's result equals the oracle's, pixel for pixel, as nearly as the ops promise; the result.

    With more than one frame the last result; the frames are those of a scene, unless they are to be painted alike.
    """
    chain = parse_chain(chain) if isinstance(chain, str) else chain
    seed = spec.width * 31 + spec.height
    scene = [paint_scene(seed, number) for number in range(frames)] if frames > 1 else [paint_random(seed)]
    return check_sequence(device, spec, [(chain, paint or painted) for painted in scene])[-1]


def check_sequence(device: Device, spec: ImageSpec, frames: Sequence[tuple[Chain | str, Paint]]) -> list[Pixels]:
    """The same for each of some frames, on one executor; the results.

    Of a chain that remembers nothing the last frame is compared, of others all.
    """
    read = [(parse_chain(chain) if isinstance(chain, str) else chain, paint) for chain, paint in frames]
    made = run_sequence(device, spec, read)
    names = [step.op.name for step in read[0][0].steps]
    steps = [step for chain, _ in read for step in chain.steps]
    remembers = any(step.op.name in TEMPORAL_ORACLES or of_previous(step.params) for step in steps)
    first = 0 if remembers else len(made) - 1
    oracle = ChainOracle()
    for number, ((chain, _), (source, result)) in enumerate(zip(read, made, strict=True)):
        if number >= first:
            assert_agrees(
                result, oracle(source, chain, stamp_of(number)), names, f"{spec.describe()}, frame {number}: {chain}"
            )
    return [result for _, result in made]
