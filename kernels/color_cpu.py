"""Colour conversion on the CPU: any source picture to the working picture, and that to a result with planes, exactly.

Also what a snapshot of a source takes. Works on bands of rows that stay in the cache.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import cv2
import numpy as np
import numpy.typing as npt

from kernels.errors import InputError
from kernels.formats import (
    CHROMA_U,
    CHROMA_V,
    I420,
    NV12,
    RGB8,
    UYVY,
    YUYV,
    Matrix,
    PixelFormat,
    Range,
    yuv_coefficients,
)
from kernels.image import VALUE_TYPES, ImageView, Pixels, Values
from kernels.op import Scratch

BAND_PIXELS = 1 << 16  # times 10 bytes of intermediates: a band stays in the L2 cache


def to_working(source: ImageView, out: Values, scratch: Scratch) -> None:
    """Write the source's pixels into ``out`` as grey or as blue, green, red.

    ``out``: uint8, or uint16 of 16 bits, (H, W) of grey, else (H, W, 3); rows may be padded, pixels not; not
    overlapping the source. Blocks; allocates nothing of a frame's size; any thread, one at a time for each ``scratch``.

    Raises:
        InputError: ``out`` is of another shape, type or layout.
    """
    spec = source.spec
    shape: tuple[int, ...] = (spec.height, spec.width)
    pixel_strides: tuple[int, ...] = (1,)
    if spec.format.channels == 3:
        shape, pixel_strides = (*shape, 3), (3, 1)
    dtype = np.dtype(VALUE_TYPES[spec.format.depth])
    pixel_strides = tuple(stride * dtype.itemsize for stride in pixel_strides)
    if out.shape != shape or out.dtype != dtype or out.strides[1:] != pixel_strides:
        got = f"{out.dtype} {out.shape} with strides {out.strides}"
        raise InputError("out", f"{got} cannot hold {spec.describe()}", f"{dtype} {shape} with pixels side by side")
    if spec.format.is_yuv:
        _yuv_to_bgr(source, out, scratch)
    elif spec.format is RGB8:
        cv2.cvtColor(source.plane(0), cv2.COLOR_RGB2BGR, dst=out)
    else:
        np.copyto(out, source.plane(0))


def to_planes(picture: Pixels, result: ImageView, scratch: Scratch) -> None:
    """Write a (H, W) or (H, W, 3) picture as GRAY8, I420 or NV12, exactly as ``formats.LUMA`` and its chroma say.

    Blocks; allocates nothing of a frame's size; any thread, but one at a time for each ``scratch``.
    """
    height, width = picture.shape[:2]
    luma, *chroma = result.planes
    if picture.ndim == 2:
        np.copyto(luma, picture)
        for plane in chroma:
            plane.fill(128)
        return
    cv2.cvtColor(picture, cv2.COLOR_BGR2GRAY, dst=luma)
    if not chroma:
        return
    rows = min(height + height % 2, max(2, BAND_PIXELS // width // 2 * 2))
    both = scratch.array("color.both", (rows // 2, -(-width // 2), 2), np.uint8)
    for top in range(0, height, rows):
        band = picture[top : top + rows]
        m = -(-len(band) // 2)
        _squares(band, both[:m], scratch)
        if len(chroma) == 1:
            np.copyto(chroma[0][top // 2 : top // 2 + m], both[:m])
        else:
            cv2.split(both[:m], [plane[top // 2 : top // 2 + m] for plane in chroma])


# Of two pixels side by side, each the sum of two rows: a quarter of them is the mean. Products, their sums and the half
# of the last digit, which leaves no ties, are exact in 32-bit floats.
_OF_SUMS = np.array([(*weights, *weights) for weights in (CHROMA_U, CHROMA_V)], np.float32).T / (4 * 4096)
_ROUNDED = 128 + 1 / (8 * 4096)


def _squares(band: Pixels, out: Pixels, scratch: Scratch) -> None:
    """U and V of each 2x2 pixels; a last column or row stands for what an odd size lacks."""
    height, width = band.shape[:2]
    rows, columns = height // 2, width // 2
    if height % 2:
        _squares(np.repeat(band[-1:], 2, axis=0), out[rows:], scratch)
    if width % 2 and rows:
        _squares(np.repeat(band[: 2 * rows, -1:], 2, axis=1), out[:rows, columns:], scratch)
    if not (rows and columns):
        return
    sums = scratch.array("color.sums", (rows, columns, 6), np.uint16)
    exact = scratch.array("color.exact", (rows, columns, 6), np.float32)
    chroma = scratch.array("color.chroma_of_sums", (rows, columns, 2), np.float32)
    pairs = band[: 2 * rows, : 2 * columns]
    np.add(pairs[0::2], pairs[1::2], out=sums.reshape(rows, 2 * columns, 3), dtype=np.uint16)
    np.copyto(exact, sums)
    np.matmul(exact.reshape(-1, 6), _OF_SUMS, out=chroma.reshape(-1, 2))
    cv2.convertScaleAbs(chroma, dst=out[:rows, :columns], alpha=1, beta=_ROUNDED)


# Half of it is more than any green term (3,330), all of it more than any other term (8,905), both in 1/32 level.
_BIAS = 12288


@dataclass(frozen=True, slots=True)
class _Tables:
    """Each term for each code: ``y`` (256,) uint16 is ``_BIAS`` plus luma; the others ``_BIAS`` minus chroma.

    OpenCV's unsigned subtraction saturates at 0, so that the first minus the second is max(0, sum of the terms).
    Chroma is (256,) int32 that holds the same 16 bits twice: a look-up at half width writes a row of full width,
    each value replicated. Green has half the bias in both of its terms.
    """

    y: npt.NDArray[np.uint16]
    bu: npt.NDArray[np.int32]
    gu: npt.NDArray[np.int32]
    gv: npt.NDArray[np.int32]
    rv: npt.NDArray[np.int32]


@cache
def _tables(matrix: Matrix, value_range: Range) -> _Tables:
    c = yuv_coefficients(matrix, value_range)
    codes = np.arange(256)

    def term(coefficient: int, offset: int) -> npt.NDArray[np.int64]:
        return (coefficient * (codes - offset) + 512) >> 10

    def chroma(bias: int, coefficient: int) -> npt.NDArray[np.int32]:
        return np.repeat((bias - term(coefficient, 128)).astype(np.uint16), 2).view(np.int32)

    return _Tables(
        y=(_BIAS + term(c.y, c.y_offset)).astype(np.uint16),
        bu=chroma(_BIAS, c.bu),
        gu=chroma(_BIAS // 2, c.gu),
        gv=chroma(_BIAS // 2, c.gv),
        rv=chroma(_BIAS, c.rv),
    )


def _yuv_to_bgr(source: ImageView, out: Pixels, scratch: Scratch) -> None:
    spec, planes = source.spec, source.planes
    width, height = spec.width, spec.height
    tables = _tables(spec.matrix, spec.range)
    groups = -(-width // 2)
    y_step = spec.format.planes[-1].y_step  # rows that share a row of chroma
    rows = min(height + height % 2, max(2, BAND_PIXELS // width // 2 * 2))

    bytes_in = scratch.array("color.bytes_in", (4, rows, groups), np.uint8)
    luma = scratch.array("color.luma", (rows, width), np.uint16)
    chroma = scratch.array("color.chroma", (rows, groups), np.int32)
    chroma_v = scratch.array("color.chroma_v", (rows, groups), np.int32)
    total = scratch.array("color.total", (rows, width), np.uint16)
    bytes_out = scratch.array("color.bytes_out", (3, rows, width), np.uint8)

    for top in range(0, height, rows):
        n = min(rows, height - top)
        m = -(-n // y_step)
        first, *others = planes
        band = [first[top : top + n], *(plane[top // 2 : top // 2 + m] for plane in others)]
        y, u, v = _samples(spec.format, band, bytes_in)
        cv2.LUT(y[:, :width], tables.y, dst=luma[:n])
        for channel in range(3):
            if channel == 0:
                cv2.LUT(u, tables.bu, dst=chroma[:m])
            elif channel == 1:
                cv2.LUT(u, tables.gu, dst=chroma[:m])
                cv2.LUT(v, tables.gv, dst=chroma_v[:m])
                both = chroma[:m].view(np.uint16)
                cv2.add(both, chroma_v[:m].view(np.uint16), dst=both)
            else:
                cv2.LUT(v, tables.rv, dst=chroma[:m])
            wide = chroma[:m].view(np.uint16)[:, :width]
            for row in range(y_step):
                part = luma[row:n:y_step]
                cv2.subtract(part, wide[: len(part)], dst=total[row:n:y_step])
            # Round half up from 1/32 level: OpenCV rounds half to even, and 1/128 leaves no halves.
            cv2.convertScaleAbs(total[:n], dst=bytes_out[channel, :n], alpha=1 / 32, beta=1 / 128)
        cv2.merge(tuple(bytes_out[:, :n]), dst=out[top : top + n])


def _samples(format: PixelFormat, band: list[Pixels], room: Pixels) -> tuple[Pixels, Pixels, Pixels]:
    """Y, U and V of a band of planes; taken apart into ``room``, (4, rows, groups), where they are interleaved."""
    if format is I420:
        y, u, v = band
    elif format is NV12:
        y, pairs = band
        u, v = room[0, : len(pairs)], room[1, : len(pairs)]
        cv2.split(pairs, (u, v))
    elif format in (YUYV, UYVY):
        (fours,) = band
        n, groups, _ = fours.shape
        y = room[:2].reshape(-1, 2 * groups)[:n]
        u, v = room[2, :n], room[3, :n]
        first_luma = 0 if format is YUYV else 1
        cv2.extractChannel(fours.reshape(n, 2 * groups, 2), first_luma, dst=y)
        cv2.extractChannel(fours, 1 - first_luma, dst=u)
        cv2.extractChannel(fours, 3 - first_luma, dst=v)
    else:
        raise NotImplementedError(f"{format} has no conversion on the CPU")
    return y, u, v
