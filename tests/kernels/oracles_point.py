"""Oracles of the point ops on colours and places, in plain integers, written from the definitions."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt

from kernels.image import Pixels, Values
from tests.kernels.oracles_depth import level, most
from tests.kernels.oracles_depth import saturated as clipped

Oracle = Callable[[Pixels, dict[str, Any]], Pixels]


def levels(picture: Pixels, params: dict[str, Any]) -> Pixels:
    greatest = most(picture) if picture.dtype == np.uint8 else 2 ** params["bits"] - 1
    black, white = (math.floor(Fraction(params[k]) * greatest / 255 + Fraction(1, 2)) for k in ("black", "white"))
    width = white - black if white > black else 1
    values, places = np.unique(picture, return_inverse=True)
    table = [math.floor(Fraction(255 * (int(v) - black), width) + Fraction(1, 2)) for v in values]
    result: Pixels = np.clip(np.array(table), 0, 255).astype(np.uint8)[places.reshape(picture.shape)]
    return result


def whole(value: float) -> int:
    """In 1/1024, rounded half up, where rounding errors of the 10th digit do not count."""
    return math.floor(Fraction(round(value, 9)) * 1024 + Fraction(1, 2))


def mixed(mix: Callable[[dict[str, Any], str, tuple[float, float, float]], float]) -> Oracle:
    """From what a channel of the result is for a colour of real blue, green, red: a linear function and an offset.

    The factors are its values for one of each; what rounding takes from a row's sum goes to the channel's own factor.
    """

    def apply(picture: Pixels, params: dict[str, Any]) -> Pixels:
        if picture.ndim == 2:
            return picture
        values = picture.astype(np.int64)
        result = np.empty_like(values)
        for place, channel in enumerate("bgr"):
            offset = mix(params, channel, (0.0, 0.0, 0.0))
            factors = [mix(params, channel, colour) - offset for colour in ((1, 0, 0), (0, 1, 0), (0, 0, 1))]
            fixed = [whole(factor) for factor in factors]
            fixed[place] = whole(sum(factors)) - sum(fixed[:place] + fixed[place + 1 :])
            added = 1024 * round(offset) * level(picture)
            total = sum(factor * values[:, :, j] for j, factor in enumerate(fixed)) + added
            result[:, :, place] = (total + 512) // 1024
        return clipped(result, picture)

    return apply


def balanced(params: dict[str, Any], channel: str, colour: tuple[float, float, float]) -> float:
    gain: float = params[{"b": "blue", "g": "green", "r": "red"}[channel]]
    return gain * colour["bgr".index(channel)]


def luma(colour: tuple[float, float, float]) -> float:
    blue, green, red = colour
    return 0.299 * red + 0.587 * green + 0.114 * blue


def saturated(params: dict[str, Any], channel: str, colour: tuple[float, float, float]) -> float:
    grey = luma(colour)
    return grey + float(params["factor"]) * (colour["bgr".index(channel)] - grey)


def turned(params: dict[str, Any], channel: str, colour: tuple[float, float, float]) -> float:
    """Cb + i·Cr times e^(i·angle)."""
    y = luma(colour)
    chroma = complex((colour[0] - y) / 1.772, (colour[2] - y) / 1.402)
    angle = math.pi * params["degrees"] / 180
    chroma *= complex(math.cos(angle), math.sin(angle))
    blue, red = y + 1.772 * chroma.real, y + 1.402 * chroma.imag
    green = (y - 0.114 * blue - 0.299 * red) / 0.587
    return {"b": blue, "g": green, "r": red}[channel]


def multiplied(params: dict[str, Any], channel: str, colour: tuple[float, float, float]) -> float:
    row = "bgr".index(channel)
    factors = params["matrix"][3 * row : 3 * row + 3]
    return float(math.fsum(f * c for f, c in zip(factors, colour, strict=True)) + params["offsets"][row])


def brightness(picture: Pixels) -> Pixels:
    """Grey of a picture, BT.601 luma in 1/2^15."""
    if picture.ndim == 2:
        return picture
    weighed = picture.astype(np.int64) * (3735, 19235, 9798)
    grey: Pixels = ((weighed.sum(axis=2) + 16384) // 32768).astype(picture.dtype)
    return grey


def colormap(picture: Pixels, params: dict[str, Any]) -> Pixels:
    """The colours are OpenCV's by definition, so they come from there."""
    code = getattr(cv2, "COLORMAP_" + params["map"].upper())
    every = cv2.applyColorMap(np.arange(256, dtype=np.uint8).reshape(16, 16), code).reshape(256, 3)
    colours: Pixels = every[brightness(picture)].astype(np.uint8)
    return colours


def ink(picture: Pixels, color: str) -> Pixels:
    """A colour as a pixel of the picture: (3,), or () in a grey one."""
    blue_green_red: Pixels = np.array([int(color[i : i + 2], 16) for i in (5, 3, 1)], np.uint8)
    one_grey: Pixels = brightness(blue_green_red.reshape(1, 1, 3))[0, 0]
    eight = blue_green_red if picture.ndim == 3 else one_grey
    scaled: Values = (eight.astype(np.int64) * level(picture)).astype(picture.dtype)
    return scaled


def overlay_grid(picture: Pixels, params: dict[str, Any]) -> Pixels:
    opaque = math.floor(Fraction(params["opacity"]) * 256 + Fraction(1, 2))
    y, x = np.mgrid[0 : picture.shape[0], 0 : picture.shape[1]]
    line = (x % params["spacing"] < params["thickness"]) | (y % params["spacing"] < params["thickness"])
    drawn = picture.astype(np.int64) * (256 - opaque) + ink(picture, params["color"]).astype(np.int64) * opaque
    result: Pixels = picture.copy()
    result[line] = ((drawn + 128) // 256)[line]
    return result


def hidden_pixels(width: int, height: int, params: dict[str, Any]) -> npt.NDArray[np.bool_]:
    """(H, W): true where a pixel's centre is in one of the regions, by exact fractions."""
    across, down = (width, height) if params["unit"] == "fraction" else (1, 1)

    def place(value: float) -> Fraction:
        return Fraction(math.floor(Fraction(value) * 65536 + Fraction(1, 2)), 65536)

    def centres_before(edge: Fraction, size: int) -> int:
        return min(max(math.ceil(edge - Fraction(1, 2)), 0), size)

    hidden = np.zeros((height, width), bool)
    for left, top, wide, tall in params["rectangles"]:
        columns = [centres_before(edge * across, width) for edge in (place(left), place(left) + place(wide))]
        rows = [centres_before(edge * down, height) for edge in (place(top), place(top) + place(tall))]
        hidden[slice(*rows), slice(*columns)] = True
    for polygon in params["polygons"]:
        points = [(place(x) * across, place(y) * down) for x, y in polygon]
        inside = np.zeros((height, width), bool)
        for (x0, y0), (x1, y1) in zip(points, points[1:] + points[:1], strict=True):
            for row in range(height):
                middle = row + Fraction(1, 2)
                if (y0 <= middle) != (y1 <= middle):
                    crossing = x0 + (middle - y0) * (x1 - x0) / (y1 - y0)
                    inside[row, centres_before(crossing, width) :] ^= True
        hidden |= inside
    return hidden


def privacy_mask(picture: Pixels, params: dict[str, Any]) -> Pixels:
    height, width = picture.shape[:2]
    hidden = hidden_pixels(width, height, params)
    result: Pixels = picture.copy()
    if params["mode"] == "fill":
        result[hidden] = ink(picture, params["color"])
        return result
    block = params["block"]
    for top in range(0, height, block):
        for left in range(0, width, block):
            part = picture[top : top + block, left : left + block].astype(np.int64)
            rows = [(2 * i + 1) * part.shape[0] // 8 for i in range(4)]
            columns = [(2 * i + 1) * part.shape[1] // 8 for i in range(4)]
            mean = (part[rows][:, columns].sum(axis=(0, 1)) + 8) // 16
            here = hidden[top : top + block, left : left + block]
            result[top : top + block, left : left + block][here] = mean
    return result


POINT_ORACLES: dict[str, Oracle] = {
    "color_matrix": mixed(multiplied),
    "colormap": colormap,
    "hue": mixed(turned),
    "levels": levels,
    "overlay_grid": overlay_grid,
    "privacy_mask": privacy_mask,
    "saturation": mixed(saturated),
    "white_balance": mixed(balanced),
}


def in_the_unit(values: dict[str, Any]) -> dict[str, Any]:
    """A mask's places fit for its unit: fractions at most 1, pixels mostly in the small pictures of tests."""

    def fit(value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return [fit(item) for item in value]
        if values["unit"] == "fraction":
            return value if value <= 1 else value / 16384
        return value if value == 16384 else value % 97

    return {name: fit(value) if name in ("rectangles", "polygons") else value for name, value in values.items()}


POINT_REPAIRS: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {"privacy_mask": in_the_unit}
