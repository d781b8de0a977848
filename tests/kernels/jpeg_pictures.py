"""Pictures that JPEG keeps well, in the formats that go into it, and how near two pictures are."""

from __future__ import annotations

import math

import cv2
import numpy as np

from kernels.formats import BGR8, GRAY8, Matrix, PixelFormat, Range
from kernels.image import ImageSpec, ImageView, Pixels


def smooth(format: PixelFormat, width: int, height: int, padding: int = 0, shift: int = 0) -> ImageView:
    """Slopes of light and colour, another for each ``shift``; rows with ``padding`` bytes of noise behind them."""
    x, y = np.meshgrid(np.arange(width), np.arange(height))
    across, down = 96 * x / max(width - 1, 32), 96 * y / max(height - 1, 32)
    bgr = np.stack([60 + across, 80 + down, 40 + (across + down) / 2 + shift % 64], axis=2).round().astype(np.uint8)
    tight = ImageSpec.make(format, width, height, matrix=Matrix.BT601, range=Range.FULL)
    strides = tuple(stride + padding for stride in tight.strides)
    rows = [plane.rows(height) for plane in format.planes]
    offsets, end = [], 0
    for stride, count in zip(strides, rows, strict=True):
        offsets.append(end)
        end += stride * count
    spec = ImageSpec(format, width, height, tuple(offsets), strides, Matrix.BT601, Range.FULL)
    view = ImageView(spec, np.random.default_rng(0).integers(0, 256, spec.nbytes, dtype=np.uint8))
    for plane, content in zip(view.planes, planes_of(bgr, format), strict=True):
        plane[:] = content
    return view


def planes_of(bgr: Pixels, format: PixelFormat) -> list[Pixels]:
    """BGR, or luma, or luma and chroma by BT.601 with full range, chroma the mean of 2x2."""
    if format is BGR8:
        return [bgr]
    b, g, r = (bgr[:, :, i].astype(float) for i in range(3))
    luma = 0.299 * r + 0.587 * g + 0.114 * b
    if format is GRAY8:
        return [luma.round().astype(np.uint8)]
    height, width = luma.shape
    halves = []
    for chroma in (128 + (b - luma) / 1.772, 128 + (r - luma) / 1.402):
        even = np.pad(chroma, ((0, height % 2), (0, width % 2)), mode="edge")
        halves.append(even.reshape(even.shape[0] // 2, 2, even.shape[1] // 2, 2).mean((1, 3)).round().astype(np.uint8))
    return [luma.round().astype(np.uint8), *halves]


def as_bgr(view: ImageView) -> Pixels:
    """The same picture, (H, W, 3) uint8."""
    planes = view.planes
    if view.spec.format is BGR8:
        return np.array(planes[0], np.uint8)
    luma = planes[0].astype(float)
    if len(planes) == 1:
        return np.repeat(planes[0][:, :, None], 3, axis=2)
    size = (luma.shape[0], luma.shape[1])
    cb, cr = (np.repeat(np.repeat(p.astype(float) - 128, 2, 0), 2, 1)[: size[0], : size[1]] for p in planes[1:])
    bgr = np.stack([luma + 1.772 * cb, luma - 0.344136 * cb - 0.714136 * cr, luma + 1.402 * cr], axis=2)
    return np.asarray(np.clip(bgr.round(), 0, 255), np.uint8)


def psnr(a: Pixels, b: Pixels) -> float:
    """In dB; infinite where they are equal."""
    return math.inf if np.array_equal(a, b) else float(cv2.PSNR(a, b))
