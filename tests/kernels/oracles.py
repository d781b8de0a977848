"""What every op and conversion must yield, in plain integer numpy written from the definitions, not from the code.

Slow on purpose: no OpenCV, no code of the package but its plain data (views, chains, parameters).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from kernels.chain import Chain
from kernels.formats import Matrix, Range
from kernels.image import NO_STAMP, ImageSpec, ImageView, Pixels, Stamp, Values
from tests.kernels.oracles_depth import most, saturated
from tests.kernels.oracles_gather import GATHER_ORACLES
from tests.kernels.oracles_global import GLOBAL_ORACLES, STATISTIC_ORACLES, Counting
from tests.kernels.oracles_point import POINT_ORACLES, Oracle
from tests.kernels.oracles_stencil import LEVELS_APART, STENCIL_ORACLES, gaussian_taps
from tests.kernels.oracles_temporal import FIRST_FRAME_ORACLES, TEMPORAL_ORACLES
from tests.kernels.oracles_text import TEXT_ORACLES, UNSTAMPED_ORACLES

Ints = npt.NDArray[np.int64]


def oracle_chain(source: ImageView, chain: Chain) -> Pixels:
    """The result of a chain for the first frame it sees: (H, W) grey or (H, W, 3) BGR."""
    return ChainOracle()(source, chain)


class ChainOracle:
    """What a chain makes of one frame after the other: parameters may change in between, the ops stay the same."""

    def __init__(self) -> None:
        self._memories: dict[int, Oracle] = {}

    def __call__(self, source: ImageView, chain: Chain, stamp: Stamp = NO_STAMP) -> Pixels:
        picture = oracle_working(source)
        for index, step in enumerate(chain.steps):
            if step.op.name in TEXT_ORACLES:
                picture = TEXT_ORACLES[step.op.name](picture, step.params.model_dump(), stamp)
                continue
            oracle = ORACLES[step.op.name]
            if step.op.name in TEMPORAL_ORACLES:
                oracle = self._memories.setdefault(index, TEMPORAL_ORACLES[step.op.name]())
            if step.op.name in STATISTIC_ORACLES:
                oracle = self._memories.setdefault(index, Counting(STATISTIC_ORACLES[step.op.name]))
            picture = oracle(picture, step.params.model_dump())
        return picture


def oracle_working(source: ImageView) -> Pixels:
    """Source pixels as (H, W) grey or (H, W, 3) BGR."""
    spec = source.spec
    if spec.format.name == "GRAY8":
        return bytes_of(source, 0)
    if spec.format.name in ("GRAY16", "BGR16"):
        low_high = bytes_of(source, 0).reshape(spec.height, spec.width, -1, 2).astype(np.uint16)
        values = low_high[..., 0] + 256 * low_high[..., 1]
        return values[..., 0] if spec.format.name == "GRAY16" else values
    if spec.format.name in ("BGR8", "RGB8"):
        picture = bytes_of(source, 0).reshape(spec.height, spec.width, 3)
        return picture if spec.format.name == "BGR8" else picture[:, :, [2, 1, 0]]
    return yuv_to_bgr(*yuv_samples(source), spec.matrix, spec.range)


def bytes_of(view: ImageView, plane: int) -> Pixels:
    """One plane's own bytes, (rows, bytes of a row), gathered byte by byte from the buffer's addresses."""
    spec = view.spec
    layout = spec.format.planes[plane]
    rows, columns = -(-spec.height // layout.y_step), -(-spec.width // layout.x_step) * layout.group_bytes
    where = spec.offsets[plane] + np.arange(rows)[:, None] * spec.strides[plane] + np.arange(columns)
    gathered: Pixels = view.buffer[where]
    return gathered


def yuv_samples(view: ImageView) -> tuple[Ints, Ints, Ints]:
    """Y, U and V of every pixel, each (H, W); chroma replicated over the pixels it covers."""
    spec = view.spec
    y, x = np.mgrid[0 : spec.height, 0 : spec.width]
    first = bytes_of(view, 0).astype(np.int64)
    match spec.format.name:
        case "NV12":
            second = bytes_of(view, 1).astype(np.int64)
            return first[y, x], second[y // 2, x // 2 * 2], second[y // 2, x // 2 * 2 + 1]
        case "I420":
            u, v = bytes_of(view, 1).astype(np.int64), bytes_of(view, 2).astype(np.int64)
            return first[y, x], u[y // 2, x // 2], v[y // 2, x // 2]
        case "YUYV":
            group = x // 2 * 4
            return first[y, group + x % 2 * 2], first[y, group + 1], first[y, group + 3]
        case "UYVY":
            group = x // 2 * 4
            return first[y, group + 1 + x % 2 * 2], first[y, group], first[y, group + 2]
    raise AssertionError(spec.format)


# ITU-R BT.601-7 section 2.5.1 and BT.709-6 item 3.2, as exact fractions.
LUMA_WEIGHTS = {
    Matrix.BT601: (Fraction(299, 1000), Fraction(587, 1000), Fraction(114, 1000)),
    Matrix.BT709: (Fraction(2126, 10000), Fraction(7152, 10000), Fraction(722, 10000)),
}


def standard_factors(matrix: Matrix, value_range: Range) -> tuple[int, dict[str, Fraction]]:
    """The offset of luma, and the factors of (Y - offset), (U - 128), (V - 128) for output 0 to 255."""
    red, green, blue = LUMA_WEIGHTS[matrix]
    limited = value_range is Range.LIMITED
    luma = Fraction(255, 219) if limited else Fraction(1)
    chroma = Fraction(255, 224) if limited else Fraction(1)
    factors = {
        "y": luma,
        "bu": 2 * (1 - blue) * chroma,
        "gu": -2 * (1 - blue) * blue / green * chroma,
        "gv": -2 * (1 - red) * red / green * chroma,
        "rv": 2 * (1 - red) * chroma,
    }
    return (16 if limited else 0), factors


def yuv_to_bgr(y: Ints, u: Ints, v: Ints, matrix: Matrix, value_range: Range) -> Pixels:
    """The exact integer definition: terms in 1/32 level, summed, rounded half up, saturated."""
    offset, factors = standard_factors(matrix, value_range)
    fixed = {name: math.floor(factor * 32768 + Fraction(1, 2)) for name, factor in factors.items()}

    def term(name: str, value: Ints) -> Ints:
        return (fixed[name] * value + 512) >> 10

    luma, u, v = term("y", y - offset), u - 128, v - 128
    sums = (luma + term("bu", u), luma + term("gu", u) + term("gv", v), luma + term("rv", v))
    return np.stack([np.clip((s + 16) >> 5, 0, 255) for s in sums], axis=-1).astype(np.uint8)


def yuv_to_bgr_real(y: Ints, u: Ints, v: Ints, matrix: Matrix, value_range: Range) -> npt.NDArray[np.float64]:
    """The standards' real numbers, clamped to 0–255 and not rounded."""
    offset, factors = standard_factors(matrix, value_range)
    f = {name: float(factor) for name, factor in factors.items()}
    luma, du, dv = f["y"] * (y - offset), u - 128, v - 128
    sums = (luma + f["bu"] * du, luma + f["gu"] * du + f["gv"] * dv, luma + f["rv"] * dv)
    real: npt.NDArray[np.float64] = np.clip(np.stack(sums, axis=-1), 0.0, 255.0)
    return real


def oracle_op(name: str, picture: Pixels, params: dict[str, Any]) -> Pixels:
    """One op on (H, W) or (H, W, 3), the first frame it sees."""
    return ORACLES[name](picture, params)


def assert_agrees(result: Pixels, expected: Pixels, ops: Sequence[str], what: str) -> None:
    """Assert that a result of these ops equals the oracles': exactly, but for what the last op may be off."""
    assert not LEVELS_APART.keys() & set(ops[:-1]), "what follows may enlarge the difference"
    levels = LEVELS_APART.get(ops[-1], 0) if ops else 0
    if levels == 0:
        np.testing.assert_array_equal(result, expected, what)
    else:
        assert result.shape == expected.shape
        assert np.abs(result.astype(int) - expected).max() <= levels, what


def reflect_101(index: Ints, size: int) -> Ints:
    """Border reflect-101, iterated where the window is wider than the picture: … 2 1 0 1 2 … n-2 n-1 n-2 …"""
    if size == 1:
        return np.zeros_like(index)
    period = 2 * (size - 1)
    index = index % period
    return np.minimum(index, period - index)


def shifted(picture: Pixels, dx: int, dy: int) -> Ints:
    """The value at (x + dx, y + dy) for every pixel (x, y)."""
    height, width = picture.shape[:2]
    rows = reflect_101(np.arange(height) + dy, height)
    columns = reflect_101(np.arange(width) + dx, width)
    return picture[rows][:, columns].astype(np.int64)


def gaussian_blur(picture: Pixels, params: dict[str, Any]) -> Pixels:
    taps = gaussian_taps(params["ksize"], params["sigma"])
    half = len(taps) // 2
    rows = sum(tap * shifted(picture, i - half, 0) for i, tap in enumerate(taps))
    assert not isinstance(rows, int)
    height = picture.shape[0]
    total = sum(tap * rows[reflect_101(np.arange(height) + i - half, height)] for i, tap in enumerate(taps))
    assert not isinstance(total, int)
    return ((total + 32768) >> 16).astype(picture.dtype)


def sobel(picture: Pixels, params: dict[str, Any]) -> Pixels:
    weights = ((-1, 0, 1), (-2, 0, 2), (-1, 0, 1))
    gx = np.zeros(picture.shape, np.int64)
    gy = np.zeros(picture.shape, np.int64)
    for dy in (-1, 0, 1):
        for dx in (-1, 0, 1):
            value = shifted(picture, dx, dy)
            gx += weights[dy + 1][dx + 1] * value
            gy += weights[dx + 1][dy + 1] * value
    return saturated(np.abs(gx) + np.abs(gy), picture)


def sharpen(picture: Pixels, params: dict[str, Any]) -> Pixels:
    value = 5 * shifted(picture, 0, 0)
    for dx, dy in ((-1, 0), (1, 0), (0, -1), (0, 1)):
        value -= shifted(picture, dx, dy)
    return saturated(value, picture)


def grayscale(picture: Pixels, params: dict[str, Any]) -> Pixels:
    if picture.ndim == 2:
        return picture
    red, green = (math.floor(weight * 32768 + Fraction(1, 2)) for weight in LUMA_WEIGHTS[Matrix.BT601][:2])
    blue = 32768 - red - green
    b, g, r = np.moveaxis(picture.astype(np.int64), -1, 0)
    grey: Ints = (blue * b + green * g + red * r + 16384) >> 15
    return grey.astype(picture.dtype)


def flip(picture: Pixels, params: dict[str, Any]) -> Pixels:
    height, width = picture.shape[:2]
    rows = range(height)[::-1] if params["direction"] in ("vertical", "both") else range(height)
    columns = range(width)[::-1] if params["direction"] in ("horizontal", "both") else range(width)
    return picture[list(rows)][:, list(columns)]


def resized(width: int, height: int, params: dict[str, Any]) -> tuple[int, int]:
    """Width and height of a resized picture."""
    new_width, new_height = params["width"], params["height"]
    if not new_width and not new_height:
        return width, height
    if not new_width:
        new_width = math.floor(Fraction(width * new_height, height) + Fraction(1, 2))
    if not new_height:
        new_height = math.floor(Fraction(height * new_width, width) + Fraction(1, 2))
    return min(max(new_width, 1), 16384), min(max(new_height, 1), 16384)


def resize(picture: Pixels, params: dict[str, Any]) -> Pixels:
    """By matrices of weights, one for each axis: rows are places of the result, columns of the source."""
    height, width = picture.shape[:2]
    new_width, new_height = resized(width, height, params)
    across = WEIGHTS[params["interpolation"]](width, new_width)
    down = WEIGHTS[params["interpolation"]](height, new_height)
    whole = int(across[0].sum() * down[0].sum())
    # In 64-bit floats, which hold these sums (below 2^53) exactly and are multiplied much more quickly.
    values = picture.reshape(height, width, -1).astype(np.float64)
    left, right = down.astype(np.float64), across.T.astype(np.float64)
    sums = np.stack([left @ values[:, :, c] @ right for c in range(values.shape[2])], axis=-1)
    means = saturated((2 * sums.astype(np.int64) + whole) // (2 * whole), picture)
    return means.reshape(new_height, new_width, *picture.shape[2:])


@lru_cache(maxsize=64)
def nearest_weights(size: int, new_size: int) -> Ints:
    weights = np.zeros((new_size, size), np.int64)
    for x in range(new_size):
        weights[x, math.floor(Fraction((2 * x + 1) * size, 2 * new_size))] = 1
    return weights


@lru_cache(maxsize=64)
def linear_weights(size: int, new_size: int) -> Ints:
    weights = np.zeros((new_size, size), np.int64)
    for x in range(new_size):
        centre = Fraction((2 * x + 1) * size, 2 * new_size) - Fraction(1, 2)
        first = math.floor(centre)
        second = math.floor(256 * (centre - first) + Fraction(1, 2))
        weights[x, max(first, 0)] += 256 - second
        weights[x, min(first + 1, size - 1)] += second
    return weights


@lru_cache(maxsize=64)
def area_weights(size: int, new_size: int) -> Ints:
    """In size * new_size pieces: a pixel of the source is new_size of them, one of the result is size of them."""
    weights = np.zeros((new_size, size), np.int64)
    for x in range(new_size):
        for place in range(x * size // new_size, min((x + 1) * size // new_size + 1, size)):
            pieces = min((x + 1) * size, (place + 1) * new_size) - max(x * size, place * new_size)
            weights[x, place] = max(pieces, 0)
    return weights


@lru_cache(maxsize=64)
def cubic_weights(size: int, new_size: int) -> Ints:
    """Keys' convolution kernel at four distances, in 1/2048; the second takes what rounding leaves."""
    a = Fraction(-3, 4)

    def kernel(distance: Fraction) -> Fraction:
        if distance <= 1:
            return (a + 2) * distance**3 - (a + 3) * distance**2 + 1
        return a * (distance**3 - 5 * distance**2 + 8 * distance - 4)

    weights = np.zeros((new_size, size), np.int64)
    for x in range(new_size):
        centre = Fraction((2 * x + 1) * size, 2 * new_size) - Fraction(1, 2)
        first = math.floor(centre)
        t = Fraction(math.floor(256 * (centre - first) + Fraction(1, 2)), 256)
        of = [math.floor(2048 * kernel(abs(t - place)) + Fraction(1, 2)) for place in (-1, 0, 1, 2)]
        of[1] += 2048 - sum(of)
        for place, weight in zip(range(first - 1, first + 3), of, strict=True):
            weights[x, min(max(place, 0), size - 1)] += weight
    return weights


WEIGHTS = {"nearest": nearest_weights, "linear": linear_weights, "area": area_weights, "cubic": cubic_weights}


def point(curve: Callable[[int, dict[str, Any]], float]) -> Callable[[Values, dict[str, Any]], Values]:
    """A point op from its real-number curve: rounded half up, saturated."""
    return point_of_depth(lambda v, params, _: curve(v, params))


def point_of_depth(curve: Callable[[int, dict[str, Any], int], float]) -> Callable[[Values, dict[str, Any]], Values]:
    """The same from a curve that is told the greatest value: 255, or 65535."""

    def apply(picture: Values, params: dict[str, Any]) -> Values:
        values, places = np.unique(picture, return_inverse=True)
        made = [min(max(math.floor(curve(int(v), params, most(picture)) + 0.5), 0), most(picture)) for v in values]
        return np.asarray(made, picture.dtype)[places.reshape(picture.shape)]

    return apply


ORACLES: dict[str, Callable[[Pixels, dict[str, Any]], Pixels]] = {
    "flip": flip,
    "gain_offset": point_of_depth(lambda v, p, most: p["gain"] * v + p["offset"] * most / 255),
    "gamma": point_of_depth(lambda v, p, most: most * (v / most) ** (1.0 / p["gamma"])),
    "gaussian_blur": gaussian_blur,
    "grayscale": grayscale,
    "invert": point_of_depth(lambda v, p, most: most - v),
    "resize": resize,
    "sharpen": sharpen,
    "sobel": sobel,
    "threshold": point_of_depth(
        lambda v, p, most: p["max_value"] * most / 255 if (255 * v > most * p["threshold"]) != p["inverted"] else 0
    ),
    **GATHER_ORACLES,
    **GLOBAL_ORACLES,
    **POINT_ORACLES,
    **STENCIL_ORACLES,
    **FIRST_FRAME_ORACLES,
    **UNSTAMPED_ORACLES,
}


def packed_size(spec: ImageSpec) -> int:
    """Bytes of the picture without padding, from the format's definition."""
    w, h, cw, ch = spec.width, spec.height, -(-spec.width // 2), -(-spec.height // 2)
    return {"BGR8": 3 * w * h, "RGB8": 3 * w * h, "GRAY8": w * h, "GRAY16": 2 * w * h, "BGR16": 6 * w * h,
            "NV12": w * h + 2 * cw * ch,
            "I420": w * h + 2 * cw * ch, "YUYV": 4 * cw * h, "UYVY": 4 * cw * h}[spec.format.name]  # fmt: skip
