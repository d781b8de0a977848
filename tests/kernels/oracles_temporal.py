"""Oracles of the temporal ops: what remembers earlier frames, in plain 64-bit integers, written from the definitions.

Each is a class: an object sees the frames of one place in a chain, one call a frame.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt

from kernels.image import Pixels, Values
from tests.kernels.oracles_depth import level
from tests.kernels.oracles_point import Oracle, brightness

Ints = npt.NDArray[np.int64]


def nearest(value: Fraction | float) -> int:
    """Rounded half up, where rounding errors of the 10th digit do not count."""
    return math.floor(round(Fraction(value), 9) + Fraction(1, 2))


class FrameDifference:
    def __init__(self) -> None:
        self.before: Ints | None = None

    def __call__(self, picture: Pixels, params: dict[str, Any]) -> Pixels:
        now = picture.astype(np.int64)
        before, self.before = self.before, now
        if before is None:
            return np.zeros_like(picture)
        gain = Fraction(params["gain"])
        distances, places = np.unique(np.abs(now - before), return_inverse=True)
        if picture.dtype == np.uint16:
            fixed = math.floor(gain * 2**32 + Fraction(1, 2))
            made = [min((fixed * int(d) + 2**31) // 2**32, 65535) for d in distances]
        else:
            made = [min(nearest(gain * int(d)), 255) for d in distances]
        result: Values = np.array(made, picture.dtype)[places.reshape(picture.shape)]
        return result


class TemporalDenoise:
    """The mean is kept in 1/256 level, without the half that rounds it."""

    def __init__(self) -> None:
        self.mean: Ints | None = None

    @staticmethod
    def share(distance: int, params: dict[str, Any]) -> int:
        """Of the new value, in 1/128."""
        end, start = Fraction(params["threshold"]), Fraction(params["threshold"], 2)
        least = 1 - Fraction(params["strength"])
        if distance >= end:
            return 128
        if distance <= start:
            return max(nearest(128 * least), 1)
        return max(nearest(128 * (least + (1 - least) * (distance - start) / (end - start))), 1)

    def __call__(self, picture: Pixels, params: dict[str, Any]) -> Pixels:
        now = picture.astype(np.int64) * 256
        if self.mean is None:
            self.mean = now
        shown = (self.mean + 128) // 256
        table = np.array([self.share(d, params) for d in range(256)])
        levels_apart = (2 * np.abs(picture.astype(np.int64) - shown) + level(picture)) // (2 * level(picture))
        share = table[levels_apart]
        self.mean = self.mean + np.floor_divide(2 * share * (now - self.mean) + 128, 256)
        return ((self.mean + 128) // 256).astype(picture.dtype)


class BackgroundSubtraction:
    """All Gaussians of all pixels in (3, H, W), sorted anew by their weights after each frame."""

    def __init__(self) -> None:
        self.mean: Ints | None = None

    def __call__(self, picture: Pixels, params: dict[str, Any]) -> Pixels:
        value = brightness(picture).astype(np.int64) * 256
        if self.mean is None:
            none = np.zeros_like(value)
            self.mean = np.stack([value, none, none])
            self.variance = np.stack([none + 15 * 256, none, none])
            self.weight = np.stack([none + 32768, none, none])
            return none.astype(np.uint8)
        rate = nearest(Fraction(params["learning_rate"]) * 32768)
        limit = nearest(Fraction(params["threshold"]) ** 2 * 16)
        way = value - self.mean
        distance = way * way // 256
        there = self.weight > 0
        near = there & (distance < 9 * self.variance)
        owner = np.where(near.any(axis=0), near.argmax(axis=0), 3)
        place = np.arange(3)[:, None, None]
        forerunners = np.cumsum(self.weight, axis=0) - self.weight
        fits = there & (place <= owner) & (forerunners < 29491) & (16 * distance < limit * self.variance)
        result = np.where(fits.any(axis=0), 0, 255).astype(np.uint8)
        if rate > 0:
            self.learn(value, way, distance, owner, place, rate)
        return result

    def learn(self, value: Ints, way: Ints, distance: Ints, owner: Ints, place: Ints, rate: int) -> None:
        assert self.mean is not None
        prune = max(nearest(Fraction(rate, 20)), 1)
        owns = place == owner
        self.mean = np.where(owns, self.mean + outwards(rate * way), self.mean)
        moved = self.variance + outwards(rate * (distance - self.variance))
        self.variance = np.where(owns, np.clip(moved, 4 * 256, 75 * 256), self.variance)
        lighter = np.maximum(self.weight - rate * self.weight // 32768 - prune, 0)
        homeless = (owner == 3) & (place == 2)
        self.mean = np.where(homeless, value, self.mean)
        self.variance = np.where(homeless, 15 * 256, self.variance)
        lighter = np.where(homeless, rate, lighter)
        heir = place == owner % 3
        rest = 32768 - np.where(heir, 0, lighter).sum(axis=0)
        weight = np.where(heir, rest, lighter)
        order = np.argsort(-weight, axis=0, kind="stable")
        self.mean, self.variance, self.weight = (
            np.take_along_axis(what, order, axis=0) for what in (self.mean, self.variance, weight)
        )


def outwards(product: Ints) -> Ints:
    """Divided by 2^15, rounded away from zero."""
    result: Ints = np.sign(product) * ((np.abs(product) + 32767) // 32768)
    return result


class MotionHeatmap:
    def __init__(self) -> None:
        self.luma: Ints | None = None

    def __call__(self, picture: Pixels, params: dict[str, Any]) -> Pixels:
        luma = brightness(picture).astype(np.int64)
        if self.luma is None:
            self.heat: Ints = np.zeros_like(luma)
        else:
            change = np.maximum(np.abs(luma - self.luma) - params["threshold"], 0)
            left = self.heat * nearest(256 * Fraction(params["decay"])) // 256
            self.heat = np.minimum(left + nearest(256 * Fraction(params["gain"])) * change, 65535)
        self.luma = luma
        level = self.heat // 256
        share = (nearest(256 * Fraction(params["opacity"])) * np.minimum(level, 64) + 32) // 64
        every = cv2.applyColorMap(np.arange(256, dtype=np.uint8).reshape(16, 16), cv2.COLORMAP_TURBO).reshape(256, 3)
        below = picture.astype(np.int64) if picture.ndim == 3 else np.repeat(picture[:, :, None], 3, 2).astype(np.int64)
        share = share[:, :, None]
        mixed: Pixels = ((below * (256 - share) + every[level].astype(np.int64) * share + 128) // 256).astype(np.uint8)
        return mixed


TEMPORAL_ORACLES: dict[str, Callable[[], Oracle]] = {
    "background_subtraction": BackgroundSubtraction,
    "frame_difference": FrameDifference,
    "motion_heatmap": MotionHeatmap,
    "temporal_denoise": TemporalDenoise,
}


def first_frame(make: Callable[[], Oracle]) -> Oracle:
    """The same for ops that have seen nothing yet."""
    return lambda picture, params: make()(picture, params)


FIRST_FRAME_ORACLES = {name: first_frame(make) for name, make in TEMPORAL_ORACLES.items()}
