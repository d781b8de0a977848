"""The pictures of the catalogue: a photograph through each op, on the CPU, with parameters that one can see.

An op without an entry in ``EXAMPLES`` is shown with its defaults. Nothing depends on clock, time zone or chance.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np

from kernels.chain import Chain, parse_chain
from kernels.formats import BGR8
from kernels.image import ImageSpec, ImageView, Pixels, Stamp
from kernels.op import OpKind
from kernels.plan import Plan, make_plan
from kernels.registry import AnyOp
from kernels.run_cpu import CpuExecutor

FOLDER = Path(__file__).parents[2] / "kernels" / "ops" / "pictures"
QUALITY = 80
FRAMES = 24
FRAME_NS = 40_000_000

Frames = Sequence[Pixels]


def kite(photograph: Pixels) -> Frames:
    """The pavilion's roof, half as large, flies through the sky; in the first frame it is not there."""
    roof = cv2.resize(photograph[20:108, 62:246], None, fx=0.5, fy=0.5, interpolation=cv2.INTER_AREA)
    mask = cv2.morphologyEx((roof.max(axis=2) < 190).astype(np.uint8), cv2.MORPH_CLOSE, np.ones((5, 5), np.uint8))
    height, width = mask.shape
    frames = [photograph]
    for number in range(1, FRAMES):
        x, y = photograph.shape[1] - width - 4 * number, 8 + number * number // 12
        frame = photograph.copy()
        np.copyto(frame[y : y + height, x : x + width], roof, where=mask[:, :, None] > 0)
        frames.append(frame)
    return frames


def noisy_kite(photograph: Pixels) -> Frames:
    """The same from a camera that has too little light."""
    chance = np.random.RandomState(1)  # NumPy promises that this one's numbers never change
    return [np.clip(f + chance.normal(0, 14, f.shape).round(), 0, 255).astype(np.uint8) for f in kite(photograph)]


def specks(photograph: Pixels) -> Frames:
    """A tenth of the pixels black or white."""
    chance = np.random.RandomState(2).random_sample((*photograph.shape[:2], 1))
    return [np.where(chance < 0.05, 0, np.where(chance > 0.95, 255, photograph)).astype(np.uint8)]


def treated(chain: str) -> Callable[[Pixels], Frames]:
    """The photograph after other ops."""
    return lambda photograph: [through(chain, [photograph])]


@dataclass(frozen=True, slots=True)
class Given:
    """What an op is shown on: frames made of the photograph. ``file`` is the name of the last one's picture."""

    file: str
    told: str
    frames: Callable[[Pixels], Frames]


@dataclass(frozen=True, slots=True)
class Example:
    """How an op is shown: a chain with it, and what that is given. The picture is what becomes of the last frame."""

    chain: str
    given: Given


_CAMERA = "camera=[300, 300, 239.5, 159.5], calibrated_width=480, calibrated_height=320"
_PLANE = "[1.3063309, -0.0824631, 70, 0.1893209, 0.9645988, 20, 0.0012133824, 0.0002895194, 1]"

PHOTOGRAPH = Given("photograph", "the photograph", lambda photograph: [photograph])
DULL = Given("given_dull", "a picture of little contrast", treated("gain_offset(gain=0.35, offset=70)"))
LAMP = Given("given_lamp", "the light of a lamp", treated("white_balance(red=1.0, green=0.8, blue=0.5)"))
LENS = Given(
    "given_lens",
    "what a lens makes of a straight grid",
    treated(f"overlay_grid(spacing=40) | undistort({_CAMERA}, coefficients=[0.35, 0.1, 0, 0])"),
)
POSTER = Given(
    "given_poster",
    "a poster on a wall, seen from the side",
    treated(f'warp_perspective(matrix={_PLANE}, fill="#605850")'),
)
SPECKS = Given("given_specks", "a tenth of the pixels lost", specks)
KITE = Given("given_kite", f"the last of {FRAMES} frames of a kite that flies to the left", kite)
NIGHT = Given("given_night", f"the last of {FRAMES} frames, in noise", noisy_kite)

_EXAMPLES = (
    ("grayscale | adaptive_threshold(ksize=15, offset=6)", PHOTOGRAPH),
    ("auto_contrast", DULL),
    ("auto_white_balance", LAMP),
    ("background_subtraction", KITE),
    ("bilateral(ksize=9, sigma_color=60, sigma_space=4)", PHOTOGRAPH),
    ("box_blur(ksize=11)", PHOTOGRAPH),
    ("gaussian_blur(ksize=5) | canny", PHOTOGRAPH),
    ("clahe", DULL),
    ("close(ksize=7)", PHOTOGRAPH),
    ("color_matrix(matrix=[0.131, 0.534, 0.272, 0.168, 0.686, 0.349, 0.189, 0.769, 0.393])", PHOTOGRAPH),
    ('colormap(map="turbo")', PHOTOGRAPH),
    ("crop(x=50, y=10, width=240, height=160)", PHOTOGRAPH),
    ("dilate(ksize=7)", PHOTOGRAPH),
    ("equalize_histogram", DULL),
    ("erode(ksize=7)", PHOTOGRAPH),
    ("filter2d(weights=[[-1, -1, 0], [-1, 0, 1], [0, 1, 1]], offset=128)", PHOTOGRAPH),
    ("frame_difference(gain=2)", KITE),
    ("gain_offset(gain=1.5, offset=-60)", PHOTOGRAPH),
    ("gamma(gamma=2.2)", PHOTOGRAPH),
    ("gaussian_blur(ksize=11)", PHOTOGRAPH),
    ("hue(degrees=120)", PHOTOGRAPH),
    ("letterbox(width=320, height=320)", PHOTOGRAPH),
    ("levels(black=40, white=220)", PHOTOGRAPH),
    ("median(ksize=3)", SPECKS),
    ("open(ksize=7)", PHOTOGRAPH),
    ("grayscale | otsu_threshold", PHOTOGRAPH),
    ('overlay_grid(spacing=40, thickness=2, color="#ffff00", opacity=0.6)', PHOTOGRAPH),
    ("overlay_text(scale=1)", PHOTOGRAPH),
    (
        "privacy_mask(rectangles=[[0.1, 0.05, 0.5, 0.4]], polygons=[[[0.62, 1], [0.8, 0.55], [1, 1]]], "
        'mode="pixelate")',
        PHOTOGRAPH,
    ),
    ('resize(width=240, interpolation="area")', PHOTOGRAPH),
    ('rotate_angle(degrees=15, scale=0.8, border="reflect_101")', PHOTOGRAPH),
    ("saturation(factor=2)", PHOTOGRAPH),
    ("gain_offset(gain=0.25) | scharr", PHOTOGRAPH),
    ("temporal_denoise(strength=0.9, threshold=90)", NIGHT),
    ("grayscale | threshold(threshold=110)", PHOTOGRAPH),
    (f"undistort({_CAMERA}, coefficients=[-0.28, 0.08, 0, 0], zoom=1.05)", LENS),
    ("unsharp_mask(ksize=9, amount=2)", PHOTOGRAPH),
    ("warp_affine(matrix=[0.8, 0.3, 0, 0, 0.8, 30])", PHOTOGRAPH),
    ("warp_perspective(corners=[70, 20, 440, 70, 400, 250, 40, 300])", POSTER),
    ("white_balance(red=1.2, green=1.0, blue=0.7)", PHOTOGRAPH),
)
# By the op that the example is of: the last in its chain.
EXAMPLES = {chain.rpartition("| ")[2].partition("(")[0]: Example(chain, given) for chain, given in _EXAMPLES}


def example_of(op: AnyOp) -> Example:
    """The op's entry, else its defaults; what remembers frames is given some in which something moves."""
    return EXAMPLES.get(op.name) or Example(op.name, KITE if op.kind is OpKind.TEMPORAL else PHOTOGRAPH)


def pictures(ops: Sequence[AnyOp]) -> Iterator[tuple[str, Pixels]]:
    """The name and the pixels of each picture, made now: of what ops are given, then of what they make."""
    photograph = read("photograph")
    examples = {op.name: example_of(op) for op in ops}
    given = {example.given.file: example.given.frames(photograph) for example in examples.values()}
    for file, frames in given.items():
        if file != PHOTOGRAPH.file:
            yield file, frames[-1]
    for name, example in examples.items():
        yield name, through(example.chain, given[example.given.file])


def plan_of(chain: Chain, frame: Pixels) -> Plan:
    """For BGR8 frames of that size."""
    return make_plan(chain, ImageSpec.make(BGR8, frame.shape[1], frame.shape[0]))


def through(text: str, frames: Frames) -> Pixels:
    """What a chain makes of the last of some BGR8 frames, after the others."""
    chain = parse_chain(text)
    plan = plan_of(chain, frames[0])
    params = tuple(step.params for step in chain.steps)
    result = ImageView(plan.result, np.empty(plan.result.nbytes, np.uint8))
    noon_ns = int(time.mktime((2026, 11, 30, 12, 0, 0, 0, 0, -1))) * 10**9  # wherever this runs
    executor = CpuExecutor(plan)
    for number, frame in enumerate(frames):
        source = ImageView(plan.source, np.empty(plan.source.nbytes, np.uint8))
        source.plane(0)[...] = frame
        executor.submit(source, result, params, Stamp("front", number, noon_ns + number * FRAME_NS))
    executor.close()
    return result.plane(0)


def read(name: str) -> Pixels:
    """A picture of the folder: BGR8, or GRAY8 where its file holds no colours."""
    return decoded((FOLDER / f"{name}.jpg").read_bytes())


def write(name: str, picture: Pixels) -> None:
    """Lay a picture into the folder, unless one that looks the same lies there."""
    try:
        same = looks_like(read(name), picture)
    except FileNotFoundError:
        same = False
    if not same:
        (FOLDER / f"{name}.jpg").write_bytes(encoded(picture))


def looks_like(kept: Pixels, picture: Pixels) -> bool:
    """Whether a decoded JPEG shows the picture, as JPEG has it: other decoders may be off by some levels."""
    now = decoded(encoded(picture))
    if now.shape != kept.shape:
        return False
    difference = cv2.absdiff(now, kept)
    return bool(difference.mean() <= 0.5 and np.count_nonzero(difference > 32) <= difference.size / 1000)


def decoded(jpeg: bytes) -> Pixels:
    picture = cv2.imdecode(np.frombuffer(jpeg, np.uint8), cv2.IMREAD_UNCHANGED)
    assert picture is not None
    return picture.astype(np.uint8, copy=False)


def encoded(picture: Pixels) -> bytes:
    good, jpeg = cv2.imencode(".jpg", picture, [cv2.IMWRITE_JPEG_QUALITY, QUALITY])
    assert good
    return jpeg.tobytes()
