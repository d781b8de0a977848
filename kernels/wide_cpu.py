"""Pictures of 16 bits on the CPU: exact sums over bands of rows, for ops whose OpenCV function rounds otherwise.

Sums are whole numbers (or whole numbers over a power of two) in floats that are wide enough, so nothing is rounded but
the result, once. Slower than the 8-bit forms, and never more than some rows of a picture at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import cv2
import numpy as np
import numpy.typing as npt

from kernels.image import Values
from kernels.op import Scratch
from kernels.stencil_cpu import bands

MOST = 65535
_BAND_VALUES = 1 << 15  # times 20 bytes of intermediates: a band stays in the L2 cache

Floats = npt.NDArray[np.float64]


def band_rows(picture: Values) -> int:
    """How many rows of a picture make a band."""
    return max(1, min(len(picture), _BAND_VALUES // int(picture[0].size)))


def store(values: npt.NDArray[np.floating], out: Values) -> None:
    """Round down to whole values, saturate, and write; ``values`` is used up."""
    np.clip(values, 0, MOST, out=values)
    np.copyto(out, values, casting="unsafe")


def mixed(src: Values, dst: Values, rows: Floats, scratch: Scratch) -> None:
    """Fill ``dst``, of as many channels as ``rows``, with ⌊rows · (blue, green, red, 1) + 1/2⌋, saturated."""
    matrix = rows.copy()
    matrix[:, 3] += 0.5
    for band, _, _ in bands(len(src), 0, band_rows(src)):
        values = scratch.array("wide.values", src[band].shape, np.float64)
        np.copyto(values, src[band])
        made = scratch.array("wide.made", (*src[band].shape[:2], len(rows)), np.float64)
        cv2.transform(values, matrix, dst=made)
        store(made.reshape(dst[band].shape), dst[band])


def mean_of_taps(src: Values, taps: Sequence[int], band: slice, read: slice, inner: slice, scratch: Scratch) -> Floats:
    """Σ_j Σ_i taps[j]·taps[i]·v of a band's rows, border reflect-101; in scratch memory, exact."""
    sums = scratch.array("wide.sums", src[read].shape, np.float64)
    kernel = np.array(taps, np.float64)
    cv2.sepFilter2D(src[read], cv2.CV_64F, kernel, kernel, dst=sums, borderType=cv2.BORDER_REFLECT_101)
    return sums[inner]


def gaussian_mean(src: Values, dst: Values, taps: npt.NDArray[np.uint16], scratch: Scratch) -> None:
    """``(Σ taps·taps·v + 2^15) >> 16``."""
    for band, read, inner in bands(len(src), len(taps) // 2, band_rows(src)):
        sums = mean_of_taps(src, taps.tolist(), band, read, inner, scratch)
        sums += 1 << 15
        sums /= 1 << 16
        np.copyto(dst[band], sums, casting="unsafe")


def box_mean(src: Values, dst: Values, ksize: int, scratch: Scratch) -> None:
    """The mean of ksize·ksize values, rounded half up."""
    whole = ksize**2
    for band, read, inner in bands(len(src), ksize // 2, band_rows(src)):
        sums = mean_of_taps(src, [1] * ksize, band, read, inner, scratch)
        sums += whole // 2
        sums /= whole  # at least 1/whole away from the next whole number, unless it is one
        np.copyto(dst[band], sums, casting="unsafe")


def weighed(src: Values, dst: Values, weights: Floats, offset: float, scratch: Scratch, *, magnitude: bool) -> None:
    """⌊Σ weights·v + offset⌋, saturated; of its magnitude if asked for. Border reflect-101; weights in 1/2^k."""
    for band, read, inner in bands(len(src), max(weights.shape) // 2, band_rows(src)):
        sums = scratch.array("wide.sums", src[read].shape, np.float64)
        _correlate(src[read], weights, sums, scratch)
        made = sums[inner]
        if magnitude:
            np.abs(made, out=made)
        made += offset
        store(made, dst[band])


def _correlate(rows: Values, weights: Floats, sums: Floats, scratch: Scratch) -> None:
    # Small ones are summed up directly; larger ones OpenCV would take over Fourier transforms: one row at a time.
    if weights.size <= 121:
        cv2.filter2D(rows, cv2.CV_64F, weights, dst=sums, borderType=cv2.BORDER_REFLECT_101)
        return
    sums[...] = 0
    part = scratch.array("wide.part", sums.shape, np.float64)
    for index in range(len(weights)):
        row = np.zeros((len(weights), 1))
        row[index] = 1
        cv2.sepFilter2D(rows, cv2.CV_64F, weights[index], row, dst=part, borderType=cv2.BORDER_REFLECT_101)
        np.add(sums, part, out=sums)


def gradient_strength(src: Values, dst: Values, ksize: int, scratch: Scratch) -> None:
    """|gx| + |gy|, saturated: ``stencil_cpu.gradient_strength`` of 16 bits."""
    for band, read, inner in bands(len(src), 1, band_rows(src)):
        rows = src[read]
        gx, gy = (scratch.array(name, rows.shape, np.float64) for name in ("wide.gx", "wide.gy"))
        cv2.Sobel(rows, cv2.CV_64F, 1, 0, dst=gx, ksize=ksize, borderType=cv2.BORDER_REFLECT_101)
        cv2.Sobel(rows, cv2.CV_64F, 0, 1, dst=gy, ksize=ksize, borderType=cv2.BORDER_REFLECT_101)
        strength = np.add(np.abs(gx[inner], out=gx[inner]), np.abs(gy[inner], out=gy[inner]), out=gx[inner])
        store(strength, dst[band])


def narrow(src: Values, dst: Values) -> None:
    """Fill ``dst``, of 8 bits, with v / 257, rounded; distinct buffers. Allocates nothing."""
    # v / 257 is never nearer to a half than 1 / 514, far more than the error of OpenCV's 32-bit floats.
    cv2.convertScaleAbs(src, dst=dst, alpha=1 / 257)


class AxisTaps(Protocol):
    """Of one axis, for each place of the result: see :class:`kernels.resample_cpu.Taps`."""

    @property
    def index(self) -> npt.NDArray[np.intp]: ...
    @property
    def weight(self) -> npt.NDArray[np.float32]: ...
    @property
    def total(self) -> int: ...


def weighted_means(src: Values, dst: Values, across: AxisTaps, down: AxisTaps, scratch: Scratch) -> None:
    """Fill ``dst`` with weighted means of ``src``, row by row: ``resample_cpu.weighted_means`` of 16 bits."""
    channels = 1 if dst.ndim == 2 else dst.shape[2]
    row_in, row_out = src.shape[1] * channels, dst.shape[1] * channels
    # Sums are below 2^16·2^28: exact in 64-bit floats.
    column, weighted = (scratch.array(name, (row_in,), np.float64) for name in ("wide.column", "wide.weighted"))
    picked, sums = (scratch.array(name, (row_out,), np.float64) for name in ("wide.picked", "wide.row"))
    index = (across.index[:, :, None] * channels + np.arange(channels)).reshape(-1, row_out)
    weight = across.weight.repeat(channels, axis=1).astype(np.float64)
    whole = across.total * down.total
    for y, out in enumerate(dst):
        column[...] = 0
        for place, share in zip(down.index[:, y], down.weight[:, y], strict=True):
            if share:
                np.multiply(src[place].reshape(-1), float(share), out=weighted)
                np.add(column, weighted, out=column)
        sums[...] = 0
        for places, shares in zip(index, weight, strict=True):
            np.take(column, places, out=picked, mode="clip")
            np.multiply(picked, shares, out=picked)
            np.add(sums, picked, out=sums)
        # At least 1 / (2 whole) away from a half, unless it is one: far more than a division's error.
        sums *= 2
        sums += whole
        sums /= 2 * whole
        store(np.floor(sums, out=sums), out.reshape(-1))


_NO_FRACTIONS = np.empty((0, 0), np.uint16)


def remap(
    src: Values, pixels: npt.NDArray[np.int16], fractions: npt.NDArray[np.uint16], dst: Values,
    border: int, fill: Sequence[int], scratch: Scratch,
) -> None:  # fmt: skip
    """What ``cv2.remap`` with fixed-point maps is for 8 bits: (Σ weight·v + 512) >> 10 of the four pixels around."""
    rows = max(1, _BAND_VALUES // dst[0].size)
    for top in range(0, len(dst), rows):
        band = slice(top, min(top + rows, len(dst)))
        out, fraction = dst[band], fractions[band]
        if not len(fraction):
            cv2.remap(src, pixels[band], _NO_FRACTIONS, cv2.INTER_NEAREST, dst=out, borderMode=border, borderValue=fill)
            continue
        tap, places = (
            scratch.array("wide.tap", out.shape, out.dtype),
            scratch.array("wide.at", pixels[band].shape, np.int16),
        )
        total, part = (scratch.array(name, out.shape, np.uint32) for name in ("wide.total", "wide.part"))
        across, down = fraction & 31, fraction >> 5
        total[...] = 512
        for dx, dy in ((0, 0), (1, 0), (0, 1), (1, 1)):
            np.add(pixels[band], (dx, dy), out=places, casting="unsafe")
            cv2.remap(src, places, _NO_FRACTIONS, cv2.INTER_NEAREST, dst=tap, borderMode=border, borderValue=fill)
            share = (across if dx else 32 - across) * (down if dy else 32 - down)
            np.multiply(tap, share.reshape(*share.shape, *[1] * (out.ndim - 2)), out=part, dtype=np.uint32)
            np.add(total, part, out=total)
        np.copyto(out, np.right_shift(total, 10, out=total), casting="unsafe")
