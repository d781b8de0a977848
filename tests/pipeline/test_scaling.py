from __future__ import annotations

import numpy as np
import pytest

from pipeline.scaling import Downscaler, scaled_size


@pytest.mark.parametrize("shape", [(90, 160), (90, 160, 3), (1, 1, 3), (7, 301, 3)])
def test_only_ever_smaller(shape: tuple[int, ...]) -> None:
    pixels = np.zeros(shape, np.uint8)
    assert Downscaler(None)(pixels) is pixels
    assert Downscaler(shape[1])(pixels) is pixels
    assert Downscaler(10_000)(pixels) is pixels


def test_each_pixel_is_the_mean_of_what_falls_on_it() -> None:
    pixels = np.random.default_rng(1).integers(0, 256, (48, 64, 3), np.uint8)
    expected = pixels.reshape(12, 4, 16, 4, 3).mean(axis=(1, 3))
    assert np.abs(Downscaler(16)(pixels) - expected).max() <= 0.5 + 1e-6


def test_the_buffer_is_kept_and_follows_the_size() -> None:
    scale = Downscaler(20)
    for height, width, channels in [(48, 64, 3), (480, 640, 3), (30, 333, 0), (20, 40, 3)]:
        shape = (height, width, channels) if channels else (height, width)
        value = height % 251
        out = scale(np.full(shape, value, np.uint8))
        assert out.shape[:2] == scaled_size(width, height, 20)[::-1]
        assert (out == value).all(), "nothing of an older picture shows"
    first = scale(np.zeros((480, 640, 3), np.uint8))
    assert np.shares_memory(first, scale(np.zeros((480, 640, 3), np.uint8)))


@pytest.mark.parametrize(
    ("size", "width", "expected"),
    [
        ((1280, 720), 640, (640, 360)),
        ((1281, 721), 640, (640, 360)),
        ((3000, 1), 16, (16, 1)),
        ((16, 9000), 16, (16, 9000)),
    ],
)
def test_sizes(size: tuple[int, int], width: int, expected: tuple[int, int]) -> None:
    assert scaled_size(*size, width) == expected
